package memengine_test

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
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestHolders drives a store with random histories of holders of a concurrency limit
// beside a plain list of leases.
func TestHolders(t *testing.T) {
	t.Parallel()
	history(t, drawSlots, func(t *rapid.T, p *property) {
		h := &room{property: *p}
		t.Repeat(map[string]func(*rapid.T){
			"advance": h.advance, "enter": func(t *rapid.T) { h.try(t) }, "retry": h.retry, "leave": h.leave, "renew": h.renew, "look": h.peek, "rest": h.rest, "reset": h.reset,
		})
	})
}

func drawSlots(t *rapid.T) *weir.Limit {
	return weir.Limit{
		Algorithm: weir.Concurrency,
		Count:     rapid.Int64Range(1, 5).Draw(t, "count"),
		Period:    time.Duration(rapid.Int64Range(1, 5000).Draw(t, "lease ms")) * time.Millisecond,
	}.MustCompile()
}

// A room has the names of all holders that entered and have not left, and the ends of their
// leases.
type room struct {
	property
	names []string
	ends  []int64
	seen  int
}

func (h *room) live() []int64 {
	now := h.clock.Micros()
	ends := slices.DeleteFunc(slices.Clone(h.ends), func(end int64) bool { return end <= now })
	slices.Sort(ends)
	return ends
}

func (h *room) act(kind weir.Kind, id string, cost int64) *weir.Act {
	a := storetest.NewAct(weir.Charge{Key: h.key, Limit: h.limit, Cost: cost})
	a.Kind, a.ID, a.Scope.Owner = kind, id, a.Charges[0].Key
	return a
}

// ask runs an act and compares the remaining slots, and the time until no holder is left,
// with the list.
func (h *room) ask(t *rapid.T, a *weir.Act) weir.Decision {
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

func (h *room) peek(t *rapid.T) { h.ask(t, h.act(acts.KindTake, "", 0)) }

// last is the ID of the newest take.
func (h *room) last() string { return fmt.Sprint(h.key, " holder ", h.seen) }

// try takes a slot under a new ID.
func (h *room) try(t *rapid.T) weir.Decision {
	h.seen++
	return h.enter(t, h.last())
}

// enter takes a slot, or is refused.
func (h *room) enter(t *rapid.T, id string) weir.Decision {
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
func (h *room) retry(t *rapid.T) {
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

func (h *room) rest(t *rapid.T) {
	h.clock.Advance(h.ask(t, h.act(acts.KindTake, "", 0)).ResetAfter)
	for range h.limit.Count {
		if !h.try(t).Allowed() {
			t.Fatal("not as new after reset after")
		}
	}
}

func (h *room) reset(t *rapid.T) {
	h.names, h.ends = nil, nil
	h.ask(t, h.act(acts.KindReset, "", 0))
}

// pick takes one off the list.
func (h *room) pick(t *rapid.T) (id string, end int64) {
	i := rapid.IntRange(0, len(h.names)-1).Draw(t, "holder")
	id, end = h.names[i], h.ends[i]
	h.names, h.ends = slices.Delete(h.names, i, i+1), slices.Delete(h.ends, i, i+1)
	return id, end
}

func (h *room) leave(t *rapid.T) {
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

func (h *room) renew(t *rapid.T) {
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
