package redisengine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestLowWaterTwins compares memory with Redis by ramps: levels that rise for so many charges
// that low-water marks have to be merged, while holds are settled in any order.
func TestLowWaterTwins(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket, weir.LeakyBucket} {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			if err := ramps(twins(t, address, "ramps:"+t.Name()+":", same), algorithm); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a mutant", func(t *testing.T) {
		t.Parallel()
		earlier := func(text string) string {
			return strings.ReplaceAll(text, "low[best - 1] = low[best + 1]\n", "")
		}
		if err := ramps(twins(t, address, "ramps:mutant:", earlier), weir.GCRA); err == nil {
			t.Error("nobody noticed that merged marks keep the earlier instant")
		}
	})
}

func ramps(w storetest.Twins, algorithm weir.Algorithm) error {
	rng := rand.New(rand.NewPCG(7, 7))
	limit := weir.Limit{Algorithm: algorithm, Count: 7, Period: time.Second, Burst: 3000}.MustCompile()
	var open []*weir.Act
	for step := range 3000 {
		a := storetest.NewAct(weir.Charge{Key: "ramp", Limit: limit, Cost: 1 + rng.Int64N(20)})
		a.ID, a.Hold, a.Scope.Owner = fmt.Sprint(step), time.Hour, a.Charges[0].Key
		if len(open) > 60 || len(open) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(open))
			take := open[i]
			a.Kind, a.ID, a.Hold, a.Charges[0].Cost, a.Scope.Owner = acts.KindSettle, take.ID, 0, rng.Int64N(take.Charges[0].Cost+1), a.Charges[0].Key
			open = slices.Delete(open, i, i+1)
		}
		if w.Clock.Advance(time.Duration(rng.Int64N(300)) * time.Millisecond); rng.IntN(300) == 0 {
			w.Clock.Advance(time.Duration(rng.Int64N(400)) * time.Second)
		}
		other := *a
		other.Decisions = make([]weir.Decision, 1)
		w.A.Take(context.Background(), []*weir.Act{a})
		w.B.Take(context.Background(), []*weir.Act{&other})
		if a.Decisions[0] != other.Decisions[0] || a.Err != nil || other.Err != nil {
			return fmt.Errorf("step %d, %v of %d: %v %+v\n%v %+v", step, a.Kind, a.Charges[0].Cost, a.Err, a.Decisions[0], other.Err, other.Decisions[0])
		}
		if a.Kind == acts.KindTake && a.Allowed() {
			open = append(open, a)
		}
	}
	return nil
}
