package config

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
)

// Window is the limit of a rule that names no algorithm: count units in windows
// of so many of the unit, which also counts what it refuses. The error is a
// [*weir.InvalidError].
func Window(count int64, unit string, multiplier uint32) (weir.Limit, error) {
	length, ok := units[unit]
	if !ok {
		return weir.Limit{}, &weir.InvalidError{Field: "unit", Value: strconv.Quote(unit), Want: oneOf(unitNames)}
	}
	if most := uint32(units["year"] / length); multiplier < 1 || multiplier > most {
		return weir.Limit{}, &weir.InvalidError{
			Field: "unit_multiplier", Value: strconv.FormatUint(uint64(multiplier), 10),
			Want: fmt.Sprintf("1 … %d of a %s", most, unit),
		}
	}
	length *= time.Duration(multiplier)
	return weir.Limit{Algorithm: weir.FixedWindow, ChargeRefused: true, Count: count, Period: length}, nil
}
