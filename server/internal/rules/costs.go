package rules

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
)

// MeterOf returns the meter that a limit counts.
func MeterOf(l *weir.Limit) string { return cmp.Or(l.Meter, config.MeterRequests) }

// costOf returns the units that a limit is charged, of which it leaves keep to others.
func (r *Request) costOf(l *weir.Limit, keep int64) (int64, error) {
	meter := MeterOf(l)
	n, given := r.Costs[meter]
	switch {
	case algo.TraitsOf(l.Algorithm).HoldsSlots, !given && meter == config.MeterRequests:
		return 1, nil
	case !given:
		return 0, invalid("costs", "without "+strconv.Quote(meter), "a number for each meter that the limits of the request count")
	case n < 0 || n > weir.MaxCost:
		return 0, invalid("costs", strconv.Quote(meter)+": "+strconv.FormatInt(n, 10), fmt.Sprintf("0 … %d", weir.MaxCost))
	case r.Least != nil:
		n = max(r.Least[meter], min(n, l.Capacity()-keep))
	}
	return n, nil
}
