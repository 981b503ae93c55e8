package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/coalesce"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/stack"
	"github.com/weirlimit/weir/storetest"
)

// laned is a store in memory with a lane.
type laned struct{ weir.Taker }

func (laned) Lane(*weir.Act) int { return 0 }

func TestStack(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(_ testing.TB, clock *storetest.Clock) weir.Taker {
		store := memstore.New(memstore.Options{Now: clock.Now})
		return stack.New(laned{store}, stack.Options{
			Override: override.Options{Now: clock.Now}, AskAlways: true, // what it answers instead, package denycache judges
		})
	})
}

// TestBoundedKeys: an override is of the key that it names, also beyond the budget, and
// all below see what the keys share.
func TestBoundedKeys(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(1).MustCompile()
	s := stack.New(laned{memstore.New(memstore.Options{})}, stack.Options{Distinct: keylimit.Options{Budget: func(l *weir.Limit) keylimit.Budget {
		if l != limit {
			return keylimit.Budget{}
		}
		return keylimit.Budget{MaxKeys: 1, Overflow: "all others"}
	}}})
	more := weir.PerDay(5)
	if err := s.Override().Set(override.Override{Key: "named", Limit: &more, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		want weir.Outcome
		from weir.Source
	}{
		{"known", weir.Granted, weir.SourceStore},
		{"first", weir.Granted, weir.SourceStore},
		{"second", weir.Refused, weir.SourceStore},
		{"third", weir.Refused, weir.SourceDenyCache},
		{"named", weir.Granted, weir.SourceStore},
		{"named", weir.Granted, weir.SourceStore},
	} {
		a := storetest.NewAct(weir.Charge{Key: c.key, Limit: limit, Cost: 1})
		if s.Take(context.Background(), []*weir.Act{a}); a.Err != nil || a.Decisions[0].Outcome != c.want || a.Decisions[0].Source != c.from {
			t.Errorf("%s: %+v, %v, want %v from %v", c.key, a.Decisions, a.Err, c.want, c.from)
		}
	}
	if got := s.Distinct().Stats(); len(got) != 1 || got[0].Keys != 1 || got[0].Overflowed != 3 {
		t.Errorf("%+v", got)
	}
}

func TestOnlyStoresWithLanesAreCoalesced(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	remote, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		store weir.Taker
		o     stack.Options
		want  bool
	}{
		"memory": {memstore.New(memstore.Options{}), stack.Options{}, false},
		"redis":  {remote, stack.Options{}, true},
	} {
		if got := stack.New(tc.store, tc.o).Coalesce() != nil; got != tc.want {
			t.Errorf("%s: coalesced %v, want %v", name, got, tc.want)
		}
	}
}

// counting counts the calls that it observes.
type counting struct{ calls, acts int }

func (c *counting) Observe(call *observe.Call) {
	c.calls++
	c.acts += len(call.Acts)
}

// TestObservedStoresKeepTheirLanes: who observes a store does not stand between it
// and what asks for its lanes.
func TestObservedStoresKeepTheirLanes(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]weir.Taker{"laned": laned{memstore.New(memstore.Options{})}, "plain": memstore.New(memstore.Options{})} {
		var seen counting
		s := stack.New(store, stack.Options{Store: observe.Options{Observer: &seen}})
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerMinute(1).MustCompile(), Cost: 1})
		s.Take(context.Background(), []*weir.Act{a})
		if !a.Allowed() || seen != (counting{1, 1}) {
			t.Errorf("%s: %+v, %v, observed %+v", name, a.Decisions, a.Err, seen)
		}
		if coalesced := s.Coalesce() != nil; coalesced != (name == "laned") {
			t.Errorf("%s: coalesced %v", name, coalesced)
		}
	}
}

// TestOrder looks from below at what an overridden act has become.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := stack.New(laned{memstore.New(memstore.Options{})}, stack.Options{Coalesce: coalesce.Options{MaxBatch: 1}})
	limit := weir.PerMinute(10)
	raised := weir.PerMinute(20)
	if err := s.Override().Set(override.Override{Key: "k", Limit: &raised, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	charge := weir.Charge{Key: "k", Limit: limit.MustCompile(), Cost: 15}
	take := func() *weir.Act {
		a := storetest.NewAct(charge)
		s.Take(context.Background(), []*weir.Act{a})
		return a
	}
	a := take()
	if !a.Allowed() || a.Decisions[0].Remaining != 5 {
		t.Errorf("under the override: %+v, %v", a.Decisions, a.Err)
	}
	if got := s.Coalesce().Stats(); got.Acts != 1 {
		t.Errorf("coalesced: %+v", got)
	}
	take()
	a = take() // what the one before has learned
	if got := s.Coalesce().Stats(); got.Acts != 2 || a.Decisions[0].Source != weir.SourceDenyCache {
		t.Errorf("refused twice: %+v, coalesced %+v", a.Decisions, got)
	}
	// Another override, another limit: nothing is known of that.
	raised.Count = 40
	if err := s.Override().Set(override.Override{Key: "k", Limit: &raised, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if a = take(); !a.Allowed() {
		t.Errorf("under a larger override: %+v", a.Decisions)
	}
}

// TestLeases: what is leased is paid from memory, and goes back at the end.
func TestLeases(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	s := stack.New(laned{store}, stack.Options{Lease: lease.Options{Leased: func(*weir.Limit) bool { return true }}})
	s.Start()
	limit := (&weir.Limit{Count: 10_000, Period: 24 * time.Hour}).MustCompile()
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
	for range 500 {
		if s.Take(context.Background(), []*weir.Act{a}); !a.Allowed() {
			t.Fatalf("%+v, %v", a.Decisions, a.Err)
		}
	}
	if s.Lease().Stats().Spent == 0 {
		t.Error("nothing was paid from shares")
	}
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	look := storetest.NewAct(weir.Charge{Key: "k", Limit: limit})
	store.Take(context.Background(), []*weir.Act{look})
	if got := look.Decisions[0].Remaining; got < 9_500 || got > 9_501 { // one may have drained
		t.Errorf("%d remain, want 9500", got)
	}
}
