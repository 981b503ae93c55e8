package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

func TestStack(t *testing.T) {
	t.Parallel()
	storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		return stack.New(storetest.Alone{Taker: memory(t, clock)}, stack.Options{
			Now: clock.Now, DenyCacheEntries: -1, // its decisions are tested in package denycache
			// A goroutine of a busy machine may not run for a quarter of a second.
			Remote: remote.Options{Patience: time.Minute, Calls: calls.Options{Silence: time.Minute}},
		})
	})
}

// TestBoundedKeys: an override is of the key that it names, also beyond the budget, and
// all below see what the keys share.
func TestBoundedKeys(t *testing.T) {
	t.Parallel()
	limit := weir.PerDay(1).MustCompile()
	s := stack.New(storetest.Alone{Taker: memengine.New(memengine.Options{})}, stack.Options{KeyLimit: func(c *weir.Charge) weir.KeyLimit {
		if c.Limit != limit {
			return weir.KeyLimit{}
		}
		return weir.KeyLimit{MaxKeys: 1, Overflow: "all others"}
	}})
	more := weir.PerDay(5)
	if _, err := s.Override.ChangeOverride("named", &weir.Override{Limit: &more, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		want weir.Outcome
		from weir.Source
	}{
		{"known", weir.Granted, acts.SourceStore},
		{"first", weir.Granted, acts.SourceStore},
		{"second", weir.Refused, acts.SourceStore},
		{"third", weir.Refused, acts.SourceDenyCache},
		{"named", weir.Granted, acts.SourceStore},
		{"named", weir.Granted, acts.SourceStore},
	} {
		a := storetest.NewAct(weir.Charge{Key: c.key, Limit: limit, Cost: 1})
		if s.Take(context.Background(), []*weir.Act{a}); a.Err != nil || a.Decisions[0].Outcome != c.want || a.Decisions[0].Source != c.from {
			t.Errorf("%s: %+v, %v, want %v from %v", c.key, a.Decisions, a.Err, c.want, c.from)
		}
	}
	if got := s.Override.All(); len(got) != 1 || got[0].Name != "named" || got[0].Limit.Count != 5 {
		t.Errorf("overrides: %+v", got)
	}
	if got := s.KeyLimit.Stats(); len(got) != 1 || got[0].Keys != 1 || got[0].Overflowed != 3 {
		t.Errorf("%+v", got)
	}
}

// TestAnswersFromMemory: each layer that may decide without the store says so, and no other act.
func TestAnswersFromMemory(t *testing.T) {
	t.Parallel()
	per := func(n int64) *weir.Limit { return weir.PerDay(n).MustCompile() }
	usual, leased, few := per(1), per(100), per(5)
	options := stack.Options{
		Leased: func(l *weir.Limit) bool { return l == leased },
		KeyLimit: func(c *weir.Charge) weir.KeyLimit {
			if c.Limit != few {
				return weir.KeyLimit{}
			}
			return weir.KeyLimit{MaxKeys: 1, Overflow: "all others"}
		},
	}
	s := stack.New(storetest.Alone{Taker: memengine.New(memengine.Options{})}, options)
	act := func(key string, l *weir.Limit) *weir.Act {
		return storetest.NewAct(weir.Charge{Key: key, Limit: l, Cost: 1})
	}
	if _, err := s.Override.ChangeOverride("overridden", &weir.Override{Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	take := func(key string, l *weir.Limit) { s.Take(t.Context(), []*weir.Act{act(key, l)}) }
	take("refused", usual)
	take("refused", usual)
	take("one of few", few)
	if s.AnswersFromMemory(act("another", few)) {
		t.Error("a limit whose keys have room is decided elsewhere")
	}
	take("one too many", few)
	for _, c := range []struct {
		key   string
		limit *weir.Limit
		want  bool
	}{
		{"fresh", usual, false},
		{"refused", usual, true},
		{"leased", leased, true},
		{"overridden", usual, true},
		{"another", few, true},
	} {
		if got := s.AnswersFromMemory(act(c.key, c.limit)); got != c.want {
			t.Errorf("%s: %t, want %t", c.key, got, c.want)
		}
	}
	inMemory := stack.New(memengine.New(memengine.Options{}), options)
	if !inMemory.AnswersFromMemory(act("fresh", usual)) {
		t.Error("a store in this process is asked elsewhere")
	}
}

func TestOnlyRemoteStoresAreCalled(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	redis, err := redisengine.New(client, redisengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		store weir.Taker
		calls int64
	}{"memory": {memengine.New(memengine.Options{}), 0}, "redis": {redis, 1}} {
		s := stack.New(tc.store, stack.Options{})
		s.Take(t.Context(), []*weir.Act{storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerMinute(1).MustCompile(), Cost: 1})})
		calls := int64(0)
		if s.Remote != nil {
			calls = s.Remote.Stats().Calls.Batches
		}
		if calls != tc.calls {
			t.Errorf("%s: %d batches, want %d", name, calls, tc.calls)
		}
		_ = s.Stop(t.Context())
	}
}

// TestOrder looks from below at what an overridden act has become.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := stack.New(storetest.Alone{Taker: memengine.New(memengine.Options{})}, stack.Options{})
	limit := weir.PerMinute(10)
	raised := weir.PerMinute(20)
	if _, err := s.Override.ChangeOverride("k", &weir.Override{Limit: &raised, Until: time.Now().Add(time.Hour)}); err != nil {
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
	if got := s.Remote.Stats().Calls; got.Acts != 1 {
		t.Errorf("coalesced: %+v", got)
	}
	take()
	a = take() // what the one before has learned
	if got := s.Remote.Stats().Calls; got.Acts != 2 || a.Decisions[0].Source != acts.SourceDenyCache {
		t.Errorf("refused twice: %+v, coalesced %+v", a.Decisions, got)
	}
	// Another override, another limit: nothing is known of that.
	raised.Count = 40
	if _, err := s.Override.ChangeOverride("k", &weir.Override{Limit: &raised, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if a = take(); !a.Allowed() {
		t.Errorf("under a larger override: %+v", a.Decisions)
	}
}

// TestLeases: what is leased is paid from memory, and goes back at the end.
func TestLeases(t *testing.T) {
	t.Parallel()
	store := memengine.New(memengine.Options{})
	s := stack.New(storetest.Alone{Taker: store}, stack.Options{Leased: func(*weir.Limit) bool { return true }})
	s.Start()
	limit := (&weir.Limit{Count: 10_000, Period: 24 * time.Hour}).MustCompile()
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: limit, Cost: 1})
	for range 500 {
		if s.Take(context.Background(), []*weir.Act{a}); !a.Allowed() {
			t.Fatalf("%+v, %v", a.Decisions, a.Err)
		}
	}
	if s.Lease.Stats().Spent == 0 {
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
