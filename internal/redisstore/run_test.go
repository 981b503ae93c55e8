package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
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
	other.ID = "id"
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
		items, plain := redisstore.Shape(c.acts...)
		if items != c.items || plain != c.plain {
			t.Errorf("%s: %d operations, plain %v; want %d, %v", name, items, plain, c.items, c.plain)
		}
	}
}

// TestBatchesReadFewBuckets: one script call reads no more buckets than one act may
// have, however many acts there are; those of a run are read once.
func TestBatchesReadFewBuckets(t *testing.T) {
	t.Parallel()
	limit := weir.Limit{Algorithm: weir.RollingWindow, Count: 10, Period: time.Hour, Buckets: 3600}.MustCompile()
	take := func(key, id string) *weir.Act {
		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
		a.ID = id
		return a
	}
	var keys, ids, same []*weir.Act
	for i := range 100 {
		keys = append(keys, take(fmt.Sprint("key ", i), ""))
		ids = append(ids, take("key", fmt.Sprint("id ", i)))
		same = append(same, take(fmt.Sprint("key ", i%2), ""))
	}
	for name, c := range map[string]struct {
		acts []*weir.Act
		want int
	}{"keys": {keys, 2}, "ids": {ids, 2}, "runs": {same, 100}} {
		if n := redisstore.Fill(c.acts...); n != c.want {
			t.Errorf("%s: one call has %d acts, want %d", name, n, c.want)
		}
	}
}
