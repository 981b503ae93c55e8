package keylimit_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// attackKeys is how many keys an attacker makes up; a tenth of them is the budget.
var attackKeys = flag.Int("attack-keys", 20_000, "random keys that are sent at a tenth as many kept apart")

// TestAttack sends random keys to a real Redis: it never holds more than the budget,
// and who was there before is not hurt.
func TestAttack(t *testing.T) {
	t.Parallel()
	store, client := onRedis(t)
	maxKeys := *attackKeys / 10
	taker := keylimit.Wrap(store, keylimit.Options{Budget: of(maxKeys)})
	limit := weir.Limit{Name: "path", Count: 5, Period: 24 * time.Hour}.MustCompile()
	before := charge(t, taker, "honest", limit, 1)
	const batch = 500
	acts := make([]*weir.Act, batch)
	granted := 0
	for range *attackKeys / batch {
		for i := range acts {
			acts[i] = storetest.NewAct(weir.Charge{Key: fmt.Sprintf("path=/%016x", rand.Uint64()), Limit: limit, Cost: 1})
		}
		taker.Take(context.Background(), acts)
		for _, a := range acts {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			if a.Allowed() {
				granted++
			}
		}
	}
	held, err := client.DBSize(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	// Every key kept apart has a state of its own, and all others one.
	if held != int64(maxKeys)+1 || granted != maxKeys-1+5 {
		t.Errorf("Redis holds %d keys of %d, %d granted: want %d, and one unit for each besides 5 in all", held, *attackKeys, granted, maxKeys+1)
	}
	if after := charge(t, taker, "honest", limit, 1); !after.Allowed() || after.Remaining != before.Remaining-1 {
		t.Errorf("who was there before: %+v, then %+v", before, after)
	}
	memory, err := client.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d random keys, %d kept apart: Redis holds %d keys; %.40q", *attackKeys, maxKeys, held, memory)
}
