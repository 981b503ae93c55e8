package observe_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// seen keeps what an observer may not: copies.
type seen struct {
	mu       sync.Mutex
	limits   []*weir.Limit
	outcomes []weir.Outcome
	took     []time.Duration
}

func (s *seen) Observe(c *observe.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = append(s.limits, c.Limits...)
	for _, a := range c.Acts {
		for _, d := range a.Decisions {
			s.outcomes = append(s.outcomes, d.Outcome)
		}
	}
	s.took = append(s.took, c.Took)
}

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		return observe.Wrap(memory(t, clock), observe.Options{Observer: &seen{}})
	})
}

func TestNobodyObserves(t *testing.T) {
	t.Parallel()
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerMinute(1).MustCompile(), Cost: 1})
	observe.Wrap(memengine.New(memengine.Options{}), observe.Options{}).Take(context.Background(), []*weir.Act{a})
	if !a.Allowed() {
		t.Errorf("got %+v, %v", a.Decisions, a.Err)
	}
}

// swap decides under another limit, as an override does, and takes a while.
type swap struct {
	next  weir.Taker
	limit *weir.Limit
	delay time.Duration
}

func (s swap) Take(ctx context.Context, acts []*weir.Act) {
	time.Sleep(s.delay)
	for _, a := range acts {
		for i := range a.Charges {
			a.Charges[i].Limit = s.limit
		}
	}
	s.next.Take(ctx, acts)
}

func TestCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two, instead := weir.PerMinute(5).MustCompile(), weir.PerMinute(6).MustCompile(), weir.PerMinute(1).MustCompile()
		var got seen
		taker := observe.Wrap(swap{memengine.New(memengine.Options{}), instead, 3 * time.Millisecond}, observe.Options{Observer: &got})
		acts := []*weir.Act{
			storetest.NewAct(weir.Charge{Key: "a", Limit: one, Cost: 1}, weir.Charge{Key: "b", Limit: two, Cost: 1}),
			storetest.NewAct(weir.Charge{Key: "a", Limit: one, Cost: 1}),
		}
		taker.Take(context.Background(), acts)
		if want := []*weir.Limit{one, two, one}; !slices.Equal(got.limits, want) {
			t.Errorf("limits that were asked for: %v", got.limits)
		}
		if want := []weir.Outcome{weir.Granted, weir.Granted, weir.Refused}; !slices.Equal(got.outcomes, want) {
			t.Errorf("outcomes: %v, want %v", got.outcomes, want)
		}
		if want := []time.Duration{3 * time.Millisecond}; !slices.Equal(got.took, want) {
			t.Errorf("took %v, want %v", got.took, want)
		}
	})
}

type nothing struct{}

func (nothing) Observe(*observe.Call) {}

func TestAllocatesNothing(t *testing.T) {
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerMinute(1).MustCompile(), Cost: 1})
	acts := []*weir.Act{a}
	taker := observe.Wrap(answering{}, observe.Options{Observer: nothing{}})
	if n := testing.AllocsPerRun(1000, func() { taker.Take(context.Background(), acts) }); n >= 1 {
		t.Errorf("%v allocations a call", n)
	}
}

// answering answers without deciding.
type answering struct{}

func (answering) Take(context.Context, []*weir.Act) {}

// BenchmarkTake compares a call with an observed one; the difference is two
// readings of the clock and what the decorator does.
func BenchmarkTake(b *testing.B) {
	a := storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerMinute(1).MustCompile(), Cost: 1})
	acts := []*weir.Act{a}
	for name, taker := range map[string]weir.Taker{
		"bare":     answering{},
		"unheard":  observe.Wrap(answering{}, observe.Options{}),
		"observed": observe.Wrap(answering{}, observe.Options{Observer: nothing{}}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				taker.Take(context.Background(), acts)
			}
		})
	}
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			_ = time.Since(time.Now())
		}
	})
}
