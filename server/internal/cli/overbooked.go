package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/rules"
)

// printOverbooked prints a line for each limit of a label of the request that is less than what
// the limits of the level below it come to: those of all people of a team, or of all teams of a
// company. A label that more values of the file belong to is the level below.
func printOverbooked(w io.Writer, set *rules.Set, people *callers.Set, req *rules.Request) error {
	var levels []callers.Label
	all := map[string]int{}
	for _, d := range req.Descriptors {
		if len(d) == 1 && people.HasLabel(d[0].Key) && all[d[0].Key] == 0 {
			levels = append(levels, callers.Label{Key: d[0].Key, Value: d[0].Value})
			all[d[0].Key] = len(people.Values(d[0].Key, callers.Label{}))
		}
	}
	slices.SortStableFunc(levels, func(a, b callers.Label) int { return all[b.Key] - all[a.Key] })
	for i := 1; i < len(levels); i++ {
		below, above := levels[i-1].Key, levels[i]
		if all[below] == all[above.Key] {
			continue // Neither is above the other.
		}
		limits, err := limitsOf(set, req.Domain, above)
		if err != nil {
			return err
		}
		values := people.Values(below, above)
		sums := make([]int64, len(limits))
		for _, value := range values {
			own, err := limitsOf(set, req.Domain, callers.Label{Key: below, Value: value})
			if err != nil {
				return err
			}
			for j, l := range limits {
				sums[j] = min(sums[j]+leastOf(own, l), algo.MaxWindow)
			}
		}
		for j, l := range limits {
			if sums[j] > l.Count {
				sum := *l
				sum.Count, sum.Burst = sums[j], 0
				fmt.Fprintf(w, "overbooked: the limits of %s of %s come to %s, %s has %s\n", report.Counted(len(values), below),
					entryText(rules.Entry(above)), config.LimitText(&sum), plainly(l.Name), config.LimitText(l))
			}
		}
	}
	return nil
}

// leastOf returns the least of the limits that count the same as another one in the same period; 0
// if there is none.
func leastOf(own []*weir.Limit, as *weir.Limit) (least int64) {
	for _, l := range own {
		if l.Meter == as.Meter && l.Period == as.Period && l.TimeZone == as.TimeZone && (least == 0 || l.Count < least) {
			least = l.Count
		}
	}
	return least
}

// limitsOf returns the limits of units of a label that may refuse.
func limitsOf(set *rules.Set, domain string, of callers.Label) ([]*weir.Limit, error) {
	plan, err := set.Plan(&rules.Request{Domain: domain, Descriptors: [][]rules.Entry{{rules.Entry(of)}}})
	if err != nil {
		return nil, err
	}
	var all []*weir.Limit
	for i := range plan.Applied {
		if a := &plan.Applied[i]; a.Enforced() && !algo.TraitsOf(a.Limit.Algorithm).HoldsSlots {
			all = append(all, a.Limit)
		}
	}
	plan.Free()
	return all, nil
}
