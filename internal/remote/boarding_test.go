package remote_test

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// A picky store is a store in memory that refuses some calls.
type picky struct {
	next    weir.Taker
	refuses func([]*weir.Act) bool
}

func newPicky() *picky {
	return &picky{next: memengine.New(memengine.Options{}), refuses: func([]*weir.Act) bool { return false }}
}

// Locate has all acts in one lane.
func (p *picky) Locate(*weir.Act) (node string, lane int, alone bool) {
	return "", 0, true
}

func (p *picky) Nodes(*weir.Act) []string { return []string{""} }

func (p *picky) Probe(ctx context.Context, node string) error {
	return storetest.Alone{Taker: p}.Probe(ctx, node)
}

func (p *picky) Keeps() bool { return false }

func (p *picky) Take(ctx context.Context, acts []*weir.Act) {
	if !p.refuses(acts) {
		p.next.Take(ctx, acts)
		return
	}
	for _, a := range acts {
		a.Err = fmt.Errorf("weir: %v: %w", a.Kind, weir.ErrNotApplied)
	}
}

// responsive says that this process can receive replies, as one in virtual time always can.
func responsive() bool { return true }

// inVirtualTime makes a parallel test of one whose waits take no time.
func inVirtualTime(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	}
}

// overPicky is a Layer over calls of a picky store, which is unreachable after some silence.
func overPicky(t *testing.T, store *picky, silence time.Duration, o remote.Options) *remote.Remote {
	t.Helper()
	o.Calls = calls.Options{Silence: silence, Late: time.Hour, Responsive: responsive}
	return wrap(t, store, o)
}

// TestCallsAmongLocalDecisions: of calls that come together, the store decides some and has
// not seen the others. No more is granted beyond the limit than what is in flight.
func TestCallsAmongLocalDecisions(t *testing.T) {
	t.Parallel()
	amongLocalDecisions(t, remote.Options{}, time.Hour, true, func() bool {
		if rand.IntN(8) == 0 {
			runtime.Gosched()
		}
		return rand.IntN(2) == 0
	})
}

// TestCallsAmongLateReplies: of calls that come together, some get their replies in time. No
// more is granted beyond the limit than what is in flight.
func TestCallsAmongLateReplies(t *testing.T) {
	t.Parallel()
	amongLocalDecisions(t, remote.Options{Patience: time.Millisecond}, time.Hour, true, func() bool {
		time.Sleep(rand.N(1500 * time.Microsecond))
		return rand.IntN(8) == 0
	})
}

// TestCallsAmongOutages: of calls that an outage cuts off, some get the replies that end it.
// No more is granted than the limit.
func TestCallsAmongOutages(t *testing.T) {
	t.Parallel()
	amongLocalDecisions(t, remote.Options{}, 10*time.Millisecond, false, func() bool {
		if rand.IntN(3) == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		return false
	})
}

func amongLocalDecisions(t *testing.T, o remote.Options, silence time.Duration, predicts bool, refuses func() bool) {
	t.Helper()
	const callers, calls, rooms = 8, 6, 40
	for algorithm := range weir.Algorithm(8) {
		limit, most := weir.Limit{Algorithm: algorithm, Count: 12, Period: 24 * time.Hour}, int64(3)
		switch algorithm {
		case weir.FixedWindow:
			limit.Anchor = weir.AnchorFirst
		case weir.Concurrency:
			most = 1
		}
		t.Run(algorithm.String(), inVirtualTime(func(t *testing.T) {
			store := newPicky()
			store.refuses = func([]*weir.Act) bool { return refuses() }
			taker := overPicky(t, store, silence, o)
			limit := limit.MustCompile()
			for room := range rooms {
				ids := room%2 == 1 || algorithm == weir.Concurrency
				var crowd sync.WaitGroup
				var granted atomic.Int64
				for range callers {
					crowd.Go(func() {
						for range calls {
							cost := 1 + rand.Int64N(most)
							a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("room ", room), Limit: limit, Cost: cost})
							if ids {
								a.ID, a.NewID, a.Scope.Owner = crand.Text(), true, a.Charges[0].Key
							}
							if taker.Take(t.Context(), []*weir.Act{a}); a.Err != nil && !ids {
								t.Error(a.Err)
							} else if a.Allowed() {
								granted.Add(cost)
							}
						}
					})
				}
				crowd.Wait()
				bound := int64(12)
				if predicts && !ids {
					bound += (callers - 1) * most
				}
				if n := granted.Load(); n > bound {
					t.Fatalf("room %d: %d of %d granted", room, n, bound)
				}
			}
		}))
	}
}
