package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
)

// RandomBudget returns valid shares that suit; if suits is nil, all do. Often all of the budget
// is guaranteed, and now and then the limits have different resolutions.
func RandomBudget(rng *rand.Rand, suits func(*weir.Shares) bool) *weir.Shares {
	periods := []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second, time.Minute}
	for {
		some := weir.Shares{Limit: weir.Per(1+rng.Int64N(300), periods[rng.IntN(len(periods))]), Guarantees: map[string]int64{}}
		some.Limit.Burst = 1 + rng.Int64N(2*some.Limit.Count+20)
		if rng.IntN(8) == 0 {
			some.Limit = weir.Limit{Count: 999_983, Period: 24 * time.Hour, Burst: 1000 + rng.Int64N(200_000)}
		}
		left := some.Limit.Count
		for class := range 1 + rng.IntN(6) {
			units := 1 + rng.Int64N(max(1, left))
			if rng.IntN(3) == 0 {
				units = left
			}
			if units < 1 || units > left {
				break
			}
			some.Guarantees[fmt.Sprint("class ", class)] = units
			left -= units
		}
		some.Headroom = rng.Int64N(some.Limit.Burst + 1)
		if compiled, err := some.Compile(); err == nil && (suits == nil || suits(compiled)) {
			return compiled
		}
	}
}
