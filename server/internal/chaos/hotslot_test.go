package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testserver"
)

// hotCallers charge one key.
const hotCallers = 8

// TestHotSlotMoves moves the slot of the one key that everybody charges from master
// to master: nobody gets an error, and nothing is lost or charged twice.
func TestHotSlotMoves(t *testing.T) {
	t.Parallel()
	var c *testserver.Cluster
	w := newWorld(t, makeup{start: onCluster(&c), ask: only("book")})
	w.history.note(w.history.ask(t.Context(), w.direct, op{subject: w.ask[0], key: "book", cost: 1}))
	slot := w.onlySlot(c)
	moves, lasts := 10, time.Second
	if *full {
		moves, lasts = 100, 30*time.Second
	}
	control := startControl()
	taker := stopped(t, stack.New(store(t, place{addrs: c.Addrs(), cluster: true}.options(time.Minute), nil), stack.Options{
		Remote: patientRemote(),
	}))
	ctx, enough := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for number := range hotCallers {
		callers.Go(func() {
			var ops []op
			for ctx.Err() == nil {
				ops = append(ops, w.history.ask(context.Background(), taker, op{caller: number, subject: w.ask[0], key: "book", cost: 1}))
				pause(ctx, think)
			}
			w.history.note(ops...)
		})
	}
	from, pace := c.Owner(slot), time.NewTicker(lasts/time.Duration(moves))
	defer pace.Stop()
	for i := range moves {
		to := c.Masters[(slices.Index(c.Masters, from)+1+i%2)%len(c.Masters)]
		if err := c.Move(slot, from, to); err != nil {
			t.Fatal(err)
		}
		w.agreed(c)
		from = to
		<-pace.C
	}
	enough()
	callers.Wait()
	w.reportHotSlot(moves, control.end())
}

// onlySlot is the slot of the only key that there is.
func (w *world) onlySlot(c *testserver.Cluster) int {
	w.t.Helper()
	for _, master := range c.Masters {
		if slots := w.slots(master); len(slots) > 0 {
			return slots[0]
		}
	}
	w.t.Fatal("there is no key")
	return 0
}

func (w *world) reportHotSlot(moves int, late time.Duration) {
	w.t.Helper()
	var took []time.Duration
	for i := range w.history.ops {
		took = append(took, w.history.ops[i].took)
	}
	slices.Sort(took)
	known, perhaps := w.history.charged("book")
	used, err := w.used(w.t.Context(), w.ask[0])
	p99 := took[len(took)*99/100]
	r := row{
		fault:   "the slot of a hot key moves " + strconv.Itoa(moves) + " times",
		promise: "no error, nothing lost, nothing charged twice",
		measured: fmt.Sprintf("%d asked, %d granted, %d charged; p99 %v, worst %v; this machine was up to %v late",
			len(took), known, used, p99.Round(10*time.Microsecond), took[len(took)-1].Round(10*time.Microsecond), late.Round(10*time.Microsecond)),
	}
	if err != nil || used != known || perhaps > 0 || w.history.count(granted) != len(took) {
		r.fail(w.t, "%s, %d unknown: %v", r.measured, perhaps, err)
	}
	report(r)
	timely := timed{row: row{fault: r.fault, promise: fmt.Sprintf("p99 within %v", answeredWithin), measured: p99.Round(10 * time.Microsecond).String()}, kept: p99-late <= answeredWithin, late: late > answeredWithin}
	timely.report(w.t)
}
