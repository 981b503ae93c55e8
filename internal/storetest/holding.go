package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// holding drives a Taker with random histories of holders of a concurrency limit
// beside a plain list of leases.
func holding(t *testing.T, open Open) {
	clock := NewClock()
	taker := open(t, clock)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		clock.Advance(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "start")) * time.Microsecond)
		h := &holders{property: property{taker: taker, clock: clock, limit: drawSlots(t), key: fmt.Sprint("places ", runs)}}
		t.Repeat(map[string]func(*rapid.T){
			"advance": h.advance, "enter": func(t *rapid.T) { h.try(t) }, "retry": h.retry, "leave": h.leave, "renew": h.renew, "look": h.peek, "rest": h.rest, "reset": h.reset,
		})
	})
}

func drawSlots(t *rapid.T) *weir.Limit {
	return of(weir.Concurrency, weir.Limit{
		Count:  rapid.Int64Range(1, 5).Draw(t, "count"),
		Period: time.Duration(rapid.Int64Range(1, 5000).Draw(t, "lease ms")) * time.Millisecond,
	})
}

// holders is all that ever entered and has not left, with the ends of their
// leases.
type holders struct {
	property
	names []string
	ends  []int64
	seen  int
}

func (h *holders) live() []int64 {
	now := h.clock.Micros()
	ends := slices.DeleteFunc(slices.Clone(h.ends), func(end int64) bool { return end <= now })
	slices.Sort(ends)
	return ends
}

func (h *holders) act(kind weir.Kind, id string, cost int64) *weir.Act {
	a := NewAct(weir.Charge{Key: h.key, Limit: h.limit, Cost: cost})
	a.Kind, a.ID = kind, id
	return a
}

// ask runs an act and compares the remaining slots, and the time until no holder is left,
// with the list.
func (h *holders) ask(t *rapid.T, a *weir.Act) weir.Decision {
	t.Helper()
	h.taker.Take(context.Background(), []*weir.Act{a})
	if a.Err != nil {
		t.Fatalf("%v %q: %v", a.Kind, a.ID, a.Err)
	}
	d, live, reset := a.Decisions[0], h.live(), time.Duration(0)
	if a.Kind == acts.KindTake && d.Granted == 1 {
		live = append(live, h.clock.Micros()+h.limit.Period.Microseconds())
		slices.Sort(live)
	}
	if len(live) > 0 {
		reset = time.Duration(live[len(live)-1]-h.clock.Micros()) * time.Microsecond
	}
	if d.Remaining != h.limit.Count-int64(len(live)) || d.ResetAfter != reset {
		t.Fatalf("%v, %v %q with leases to %v at %d: %+v", h.limit, a.Kind, a.ID, live, h.clock.Micros(), d)
	}
	return d
}

func (h *holders) peek(t *rapid.T) { h.ask(t, h.act(acts.KindTake, "", 0)) }

// last is the ID of the newest take.
func (h *holders) last() string { return fmt.Sprint(h.key, " holder ", h.seen) }

// try takes a slot under a new ID.
func (h *holders) try(t *rapid.T) weir.Decision {
	h.seen++
	return h.enter(t, h.last())
}

// enter takes a slot, or is refused.
func (h *holders) enter(t *rapid.T, id string) weir.Decision {
	live := h.live()
	d := h.ask(t, h.act(acts.KindTake, id, 1))
	if fits := int64(len(live)) < h.limit.Count; fits != d.Allowed() {
		t.Fatalf("%v with leases to %v: %+v", h.limit, live, d)
	}
	if d.Allowed() {
		h.names, h.ends = append(h.names, id), append(h.ends, d.At.UnixMicro()+h.limit.Period.Microseconds())
	} else if want := min(time.Second, h.limit.Period); d.RetryAfter != want {
		t.Fatalf("%v with leases to %v: retry after %v, not %v", h.limit, live, d.RetryAfter, want)
	}
	return d
}

// retry repeats a refused take under its ID until the first lease ends.
func (h *holders) retry(t *rapid.T) {
	d := h.try(t)
	if d.Allowed() {
		return
	}
	wait := time.Duration(h.live()[0]-h.clock.Micros()) * time.Microsecond
	h.clock.Advance(wait - time.Microsecond)
	h.enter(t, h.last())
	h.clock.Advance(time.Microsecond)
	if !h.enter(t, h.last()).Allowed() {
		t.Fatal("no slot when the first lease has ended")
	}
}

func (h *holders) rest(t *rapid.T) {
	h.clock.Advance(h.ask(t, h.act(acts.KindTake, "", 0)).ResetAfter)
	for range h.limit.Count {
		if !h.try(t).Allowed() {
			t.Fatal("not as new after reset after")
		}
	}
}

func (h *holders) reset(t *rapid.T) {
	h.names, h.ends = nil, nil
	h.ask(t, h.act(acts.KindReset, "", 0))
}

// pick takes one off the list.
func (h *holders) pick(t *rapid.T) (id string, end int64) {
	i := rapid.IntRange(0, len(h.names)-1).Draw(t, "holder")
	id, end = h.names[i], h.ends[i]
	h.names, h.ends = slices.Delete(h.names, i, i+1), slices.Delete(h.ends, i, i+1)
	return id, end
}

func (h *holders) leave(t *rapid.T) {
	if len(h.names) == 0 {
		return
	}
	id, end := h.pick(t)
	back := int64(0)
	if end > h.clock.Micros() {
		back = 1
	}
	if d := h.ask(t, h.act(acts.KindRelease, id, 0)); d.Granted != back {
		t.Fatalf("%v: released %+v, want %d", h.limit, d, back)
	}
}

func (h *holders) renew(t *rapid.T) {
	if len(h.names) == 0 {
		return
	}
	id, end := h.pick(t)
	a := h.act(acts.KindRenew, id, 0)
	a.Hold = time.Duration(rapid.Int64Range(0, 9000).Draw(t, "hold ms")) * time.Millisecond
	if end <= h.clock.Micros() {
		if h.taker.Take(context.Background(), []*weir.Act{a}); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Fatalf("%v: renewed after its end: %v", h.limit, a.Err)
		}
		return
	}
	lease := a.Hold
	if lease == 0 {
		lease = h.limit.Period
	}
	h.names, h.ends = append(h.names, id), append(h.ends, h.clock.Micros()+lease.Microseconds())
	h.ask(t, a)
}
