package memengine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestClockSteps steps the clock forward and back under every algorithm: a step forward grants
// at most a burst, a step back nothing, and no limit is locked out by either.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	limits := []weir.Limit{
		{Algorithm: weir.FixedWindow, Count: 10, Period: time.Minute, Anchor: weir.AnchorFirst},
		{Algorithm: weir.FixedWindow, Count: 10, Period: 24 * time.Hour, TimeZone: "Europe/Paris"},
		{Algorithm: weir.GCRA, Count: 7, Period: time.Minute, Burst: 25},
		{Algorithm: weir.TokenBucket, Count: 7, Period: time.Minute, Burst: 25},
	}
	for id := range algo.Steps {
		limits = append(limits, weir.Limit{Algorithm: weir.Algorithm(id), Count: 10, Period: time.Minute})
	}
	for _, l := range limits {
		t.Run(fmt.Sprintf("%v %s%v", l.MustCompile(), l.TimeZone, l.Anchor), func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			s := &stepped{T: t, store: memengine.New(memengine.Options{Now: clock.Now}), clock: clock, limit: l.MustCompile()}
			s.drain = time.Duration(s.limit.Rule().Drain) * time.Microsecond
			for _, d := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
				for _, steps := range [][]time.Duration{{d}, {-d}, {d, -d}, {-d, d}, {d, -d, d, -d}, {-d, d, -d, d}} {
					// At the start, in the middle and at the end of a window.
					for _, phase := range []time.Duration{0, 30 * time.Second, time.Minute - time.Microsecond} {
						for _, option := range []bool{false, true} {
							s.begin(phase, steps)
							s.through(option, steps)
							s.begin(phase, steps)
							s.returns(option, steps)
						}
					}
				}
				if algo.TraitsOf(l.Algorithm).Books && !algo.TraitsOf(l.Algorithm).Delays {
					s.begin(0, []time.Duration{-24 * d})
					s.books(24 * d)
				}
			}
		})
	}
}

// A stepped limit is one under a clock that steps.
type stepped struct {
	*testing.T
	store *memengine.Store
	clock *storetest.Clock
	limit *weir.Limit
	drain time.Duration // the longest that a full key without debt takes to be as new
	runs  int           // each has a key of its own
	ids   int
	what  string // of the run, for messages
}

// begin begins a run that far into a minute.
func (s *stepped) begin(phase time.Duration, steps []time.Duration) {
	s.runs++
	s.what = fmt.Sprintf("%v into a minute, %v", phase, steps)
	s.clock.Set(s.clock.Now().Truncate(time.Minute).Add(time.Minute + phase))
}

// take puts an act to the store, which decides it.
func (s *stepped) take(a *weir.Act) {
	s.Helper()
	if s.store.Take(s.Context(), []*weir.Act{a}); a.Err != nil {
		s.Fatal(a.Err)
	}
}

// ask returns an act of a cost, with an ID of its own where there are holders.
func (s *stepped) ask(cost int64) *weir.Act {
	a := storetest.NewAct(weir.Charge{Key: fmt.Sprint(s.runs), Limit: s.limit, Cost: cost})
	if s.ids++; algo.TraitsOf(s.limit.Algorithm).HoldsSlots {
		a.ID, a.Scope.Owner = fmt.Sprint("holder ", s.ids), a.Charges[0].Key
	}
	return a
}

// drink takes all units that there are, which must be in a range.
func (s *stepped) drink(when string, least, most int64) int64 {
	s.Helper()
	granted := int64(0)
	for range s.limit.Capacity() + 2 {
		a := s.ask(1)
		s.take(a)
		granted += a.Decisions[0].Granted
	}
	if granted < least || granted > most {
		s.Fatalf("%s, %s: %d granted, want %d to %d", s.what, when, granted, least, most)
	}
	return granted
}

// through uses the limit up, with a debt where there is such a thing, and steps the clock.
func (s *stepped) through(indebted bool, steps []time.Duration) {
	full, longest := s.limit.Capacity(), s.drain
	s.drink("fresh", full, full)
	if indebted && !algo.TraitsOf(s.limit.Algorithm).HoldsSlots {
		longest *= 2
		debt := s.ask(10 * full)
		debt.Kind = acts.KindRecord
		s.take(debt)
	}
	for _, d := range steps {
		s.clock.Advance(d)
		if d > 0 {
			s.drink("after a step forward", 0, full)
			continue
		}
		if algo.TraitsOf(s.limit.Algorithm).Windows {
			// The time that the clock repeats is in an earlier window, and counts in addition.
			longest += min(-d, s.limit.Period)
		}
		s.drink("after a step back", 0, 0)
	}
	s.opens(longest)
	s.clock.Advance(2 * s.drain)
	s.drink("after a rest", full, full)
}

// opens waits for a unit, as long as it may take.
func (s *stepped) opens(longest time.Duration) {
	s.Helper()
	const polls = 12
	for range polls {
		s.clock.Advance(longest/polls + time.Microsecond)
		a := s.ask(1)
		if s.take(a); a.Allowed() {
			return
		}
	}
	s.Fatalf("%s: locked out for more than %v", s.what, longest)
}

// returns takes all units by IDs, steps the clock and releases them: what can be taken then is
// what came back, or a burst if time has passed. A refusal may be the first to see the stepped
// clock, or a release.
func (s *stepped) returns(refusal bool, steps []time.Duration) {
	full, free := s.limit.Capacity(), int64(0)
	list := make([]*weir.Act, full)
	for i := range list {
		list[i] = s.ask(1)
		list[i].ID, list[i].Scope.Owner = fmt.Sprint("id ", s.ids), "owner"
		if s.take(list[i]); !list[i].Allowed() {
			s.Fatalf("%s, fresh: %+v", s.what, list[i].Decisions)
		}
	}
	for _, d := range steps {
		if s.clock.Advance(d); d > 0 {
			free = full
		}
		if refusal {
			free -= s.drink("before the releases", 0, free)
		}
	}
	for _, a := range list {
		a.Kind = acts.KindRelease
		if s.store.Take(s.Context(), []*weir.Act{a}); a.Err == nil {
			free = min(full, free+a.Decisions[0].Granted)
		} else if !errors.Is(a.Err, weir.ErrUnknownID) {
			s.Fatal(a.Err)
		}
	}
	if algo.TraitsOf(s.limit.Algorithm).Drains {
		free++ // only whole units are said to come back, and parts of two make one
	}
	s.drink("after the releases", 0, free)
	s.clock.Advance(2 * s.drain)
	s.drink("after a rest", full, full)
}

// books books an hour ahead and sets the clock back: the bookings stand, and last no longer than
// they did.
func (s *stepped) books(back time.Duration) {
	var last weir.Decision
	for {
		a := s.ask(s.limit.Capacity())
		a.MaxWait = time.Hour
		if s.take(a); !a.Allowed() {
			break
		}
		last = a.Decisions[0]
	}
	if last.Delay < 50*time.Minute {
		s.Fatalf("booked no further ahead than %v", last.Delay)
	}
	s.clock.Advance(-back)
	s.drink("booked out", 0, 0)
	s.clock.Advance(last.Delay - time.Minute)
	s.drink("before the bookings are due", 0, 0)
	s.clock.Advance(time.Minute)
	// A refill that was under way has begun anew.
	s.opens(last.ResetAfter - last.Delay + time.Second)
}
