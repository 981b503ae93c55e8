package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestRunsAreOneOperation demands that acts which ask the same of a key are one
// operation of the script, whatever stands between them on other keys, as far as
// nothing else is asked of the key.
func TestRunsAreOneOperation(t *testing.T) {
	t.Parallel()
	limit, log := weir.PerSecond(5).MustCompile(), weir.PerSecond(5)
	log.Algorithm, log.ChargeRefused = weir.SlidingLog, true
	charges := log.MustCompile()
	take := func(key string, cost int64) *weir.Act {
		return storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: cost})
	}
	other := take("a", 1)
	other.ID, other.Scope.Owner = "id", other.Charges[0].Key
	kept := take("a", 1)
	kept.Charges[0].Keep = 1
	refusals := storetest.NewAct(weir.Charge{Key: "a", Limit: charges, Cost: 1})
	for name, c := range map[string]struct {
		acts  []*weir.Act
		items int
		plain bool
	}{
		"one key":          {[]*weir.Act{take("a", 1), take("a", 1), take("a", 1)}, 1, true},
		"looks":            {[]*weir.Act{take("a", 0), take("a", 0)}, 1, true},
		"two keys":         {[]*weir.Act{take("a", 1), take("b", 1), take("a", 1), take("b", 1)}, 2, true},
		"two costs":        {[]*weir.Act{take("a", 1), take("a", 2), take("a", 1)}, 3, true},
		"two keeps":        {[]*weir.Act{take("a", 1), kept, kept, take("a", 1)}, 3, true},
		"an id among them": {[]*weir.Act{take("a", 1), take("a", 1), other, take("a", 1)}, 3, false},
		"charged refusals": {[]*weir.Act{refusals, refusals}, 2, false},
	} {
		items, plain := redisengine.Shape(c.acts...)
		if items != c.items || plain != c.plain {
			t.Errorf("%s: %d operations, plain %v; want %d, %v", name, items, plain, c.items, c.plain)
		}
	}
}

// TestBatchesAreBounded: one script call has so many keys, operations and acts at most, and
// eight times the buckets of an act; those of a run count once.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	plain := weir.PerSecond(5).MustCompile()
	buckets := weir.Limit{Algorithm: weir.RollingWindow, Count: 10, Period: time.Hour, Buckets: 3600}.MustCompile()
	for name, c := range map[string]struct {
		limit      *weir.Limit
		keys, cost int // how many differ
		ids        bool
		want       int
	}{
		"keys":            {plain, 5000, 1, false, 128},
		"ids of one key":  {plain, 1, 1, true, 127},
		"costs":           {plain, 1, 5, false, 256},
		"a run":           {plain, 1, 1, false, 4096},
		"buckets of keys": {buckets, 5000, 1, false, 18},
		"buckets of ids":  {buckets, 1, 1, true, 18},
		"buckets of runs": {buckets, 2, 1, false, 4096},
	} {
		var acts []*weir.Act
		for i := range 5000 {
			a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", i%c.keys), Limit: c.limit, Cost: int64(1 + i%c.cost)})
			if c.ids {
				a.ID, a.Scope.Owner = fmt.Sprint("id ", i), a.Charges[0].Key
			}
			acts = append(acts, a)
		}
		if n := redisengine.Fill(acts...); n != c.want {
			t.Errorf("%s: one call has %d acts, want %d", name, n, c.want)
		}
	}
}
