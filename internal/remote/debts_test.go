package remote_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// TestManyDebts measures how long 131 072 debts take, and what acts of such keys wait meanwhile.
func TestManyDebts(t *testing.T) {
	if os.Getenv("DEBTS") == "" {
		t.Skip("set DEBTS")
	}
	server := testserver.StartRedis(t)
	store := newFlaky(nil)
	store.Taker = overRedis(t, server.Addr())
	taker := wrap(t, store, remote.Options{})
	limit := weir.PerDay(100).MustCompile()
	store.fail(weir.ErrNotApplied)
	const n = 131000
	for i := range n {
		take(taker, weir.Charge{Key: fmt.Sprint("k", i), Limit: limit, Cost: 1})
	}
	back(t, store, taker)
	began := time.Now()
	var slowest time.Duration
	asked := 0
	for taker.Stats().Outstanding > 0 && time.Since(began) < time.Minute {
		at := time.Now()
		a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("k", (asked*7919)%n), Limit: limit, Cost: 1})
		taker.Take(context.Background(), []*weir.Act{a})
		if asked++; a.Err != nil {
			t.Fatal(a.Err)
		}
		slowest = max(slowest, time.Since(at))
	}
	took := time.Since(began)
	fmt.Printf("%d debts took %v; %d acts meanwhile, mean %v, slowest %v\n", n, took.Round(time.Millisecond), asked, (took / time.Duration(asked)).Round(time.Microsecond), slowest.Round(time.Microsecond))
}
