package redisengine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// unhurried is a deadline that a busy machine keeps to.
const unhurried = time.Minute

// underFallback is a store whose absence would be noticed.
func underFallback(t testing.TB, store weir.Taker, clock *storetest.Clock) weir.Taker {
	t.Helper()
	taker := remote.New(store.(calls.Store), remote.Options{Now: clock.Now, Patience: unhurried, Calls: calls.Options{Silence: unhurried}})
	t.Cleanup(func() { stopped(t, taker.Stop) })
	return taker
}

// underAll is a store below all that the server puts above it.
func underAll(t testing.TB, store weir.Taker, clock *storetest.Clock) weir.Taker {
	t.Helper()
	s := stack.New(store, stack.Options{
		Now: clock.Now,
		KeyLimit: func(*weir.Charge) weir.KeyLimit {
			return weir.KeyLimit{MaxKeys: 10_000_000, Overflow: "overflow"}
		},
		Leased: func(*weir.Limit) bool { return false },
		Remote: remote.Options{Patience: unhurried, Calls: calls.Options{Silence: unhurried}},
	})
	s.Start()
	t.Cleanup(func() { stopped(t, s.Stop) })
	return &doubted{t, s, store}
}

func stopped(t testing.TB, stop func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), unhurried)
	defer cancel()
	if err := stop(ctx); err != nil {
		t.Error(err)
	}
}

// doubted asks the store itself where a refusal was remembered: it has to refuse too,
// and knows better what remains.
type doubted struct {
	testing.TB
	weir.Taker
	store weir.Taker
}

func (d *doubted) Take(ctx context.Context, all []*weir.Act) {
	if d.Taker.Take(ctx, all); len(all) != 1 {
		return
	}
	a := all[0]
	remembered := slices.ContainsFunc(a.Decisions, func(d weir.Decision) bool { return d.Source == acts.SourceDenyCache })
	if a.Err != nil || !remembered {
		return
	}
	if d.store.Take(ctx, all); a.Err != nil || a.Allowed() {
		d.Errorf("refused from memory, and the store says %+v, %v", a.Decisions, a.Err)
	}
}

// TestDecorated runs the suite over a real Redis below all layers, and over a real cluster
// below a fallback.
func TestDecorated(t *testing.T) {
	t.Parallel()
	one := dialPatient(t, testserver.StartRedis(t).Addr())
	cluster := dialCluster(t, testserver.StartCluster(t, 2))
	t.Run("one below all", func(t *testing.T) {
		t.Parallel()
		open := onOne(one)
		storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker { return underAll(t, open(t, clock), clock) })
	})
	t.Run("cluster below a fallback", func(t *testing.T) {
		t.Parallel()
		open := onOne(cluster)
		storetest.Run(t, func(t testing.TB, clock *storetest.Clock) weir.Taker { return underFallback(t, open(t, clock), clock) })
	})
}
