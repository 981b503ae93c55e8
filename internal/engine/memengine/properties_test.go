package memengine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestProperties drives a store with random histories beside the exact model. It checks that
// the store grants and refuses exactly as the rule says, that waiting exactly RetryAfter
// suffices and one unit of time less does not, that the remaining units fit and no more,
// that a refusal changes nothing, and that a key left alone for ResetAfter is as good as
// new.
func TestProperties(t *testing.T) {
	t.Parallel()
	histories(t, func(t *rapid.T, p *property) {
		p.model = storetest.NewModel(p.limit)
		t.Repeat(map[string]func(*rapid.T){
			"advance": p.advance, "take": p.take, "allow": p.allow, "up to": p.upTo, "look": p.peek, "retry": p.retry,
			"rest": p.rest, "record": p.record, "reset": p.reset, "reserve": p.reserve, "keep": p.keep, "immediate": p.immediate,
		})
	})
}

// histories calls run for random limits of each algorithm that counts units, each with a
// fresh key and at an odd instant.
func histories(t *testing.T, run func(*rapid.T, *property)) {
	for id := range algo.Steps {
		algorithm := weir.Algorithm(id)
		if algo.TraitsOf(algorithm).HoldsSlots {
			continue
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			history(t, func(t *rapid.T) *weir.Limit { return drawLimit(t, algorithm) }, run)
		})
	}
}

// history calls run for random limits under one store, each with a fresh key and at an odd
// instant.
func history(t *testing.T, draw func(*rapid.T) *weir.Limit, run func(*rapid.T, *property)) {
	clock := storetest.NewClock()
	store := memengine.New(memengine.Options{Now: clock.Now})
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		limit := draw(t)
		clock.Advance(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "start")) * time.Microsecond)
		run(t, &property{taker: store, clock: clock, limit: limit, key: fmt.Sprint("key ", runs)})
	})
}

func drawLimit(t *rapid.T, algorithm weir.Algorithm) *weir.Limit {
	l := weir.Limit{
		Algorithm:     algorithm,
		Count:         rapid.Int64Range(1, 12).Draw(t, "count"),
		Period:        time.Duration(rapid.Int64Range(1, 5000).Draw(t, "period ms")) * time.Millisecond,
		ChargeRefused: rapid.IntRange(0, 3).Draw(t, "charge refused") == 0,
	}
	switch traits := algo.TraitsOf(algorithm); {
	case traits.Bursts:
		l.Burst = rapid.Int64Range(1, 20).Draw(t, "burst")
	case traits.Buckets:
		l.Buckets = rapid.OneOf(rapid.IntRange(2, 12), rapid.IntRange(100, 400)).Draw(t, "buckets")
	case traits.Calendars:
		l.Anchor = rapid.SampledFrom([]weir.Anchor{weir.AnchorEpoch, weir.AnchorFirst}).Draw(t, "anchor")
	}
	return l.MustCompile()
}

// bookable reports whether a limit can be booked ahead.
func bookable(l *weir.Limit) bool {
	return algo.TraitsOf(l.Algorithm).Books
}

type property struct {
	taker weir.Taker
	clock *storetest.Clock
	limit *weir.Limit
	model storetest.Model
	key   string
}

func (p *property) advance(t *rapid.T) {
	d := rapid.Int64Range(0, p.limit.Period.Microseconds()).Draw(t, "µs")
	p.clock.Advance(time.Duration(d) * time.Microsecond)
}

// A wish is a charge and the options of its act.
type wish struct {
	cost, upTo int64
	keep       int64
	maxWait    time.Duration
	immediate  bool
}

// ask takes one charge and judges the answer.
func (p *property) ask(t *rapid.T, w wish) weir.Decision {
	t.Helper()
	a := storetest.NewAct(weir.Charge{Key: "test:" + p.key, HashTag: p.key, Limit: p.limit, Cost: w.cost, UpTo: w.upTo, Keep: w.keep})
	a.MaxWait, a.Immediate = w.maxWait, w.immediate
	p.taker.Take(context.Background(), []*weir.Act{a})
	if a.Err != nil {
		t.Fatalf("%+v: %v", w, a.Err)
	}
	return p.judge(t, w, a.Decisions[0])
}

// judge checks everything that the answer to a wish claims.
func (p *property) judge(t *rapid.T, w wish, d weir.Decision) weir.Decision {
	t.Helper()
	want := p.expect(w)
	if d.Outcome != want.Outcome || d.Granted != want.Granted || d.Remaining != want.Remaining || d.Delay != want.Delay || d.At.UnixMicro() != p.clock.Micros() {
		t.Fatalf("limit %v, %+v: got %+v; the rule says %+v", p.limit, w, d, want)
	}
	if (d.RetryAfter > 0) != (d.Outcome == weir.Refused) || (d.RetryAfter == weir.Never) != (w.cost > 0 && w.cost+w.keep > p.limit.Capacity()) {
		t.Fatalf("limit %v, %+v: retry after %v with %v", p.limit, w, d.RetryAfter, d.Outcome)
	}
	return d
}

// expect returns the rule's decision on a cost, and charges the model.
func (p *property) expect(w wish) weir.Decision {
	now := p.clock.Micros()
	used, most := p.model.Used(now), p.limit.Capacity()
	delay, fits := p.delay(w, now)
	want := weir.Decision{Outcome: weir.Refused}
	switch {
	case fits:
		want.Outcome, want.Granted, want.Delay = weir.Granted, w.cost, delay
		if w.upTo > 0 {
			want.Granted = min(w.upTo, most-used-w.keep)
		}
		p.model.Charge(now, want.Granted)
	case p.limit.ChargeRefused:
		p.model.Charge(now, p.overshoot(used, w.cost))
	}
	want.Remaining = max(0, most-p.model.Used(now)-w.keep)
	if w.immediate && algo.TraitsOf(p.limit.Algorithm).Delays && p.model.Used(now) > 0 {
		// Any further take would have to wait.
		want.Remaining = 0
	}
	return want
}

// delay is when a wish comes true, and whether it does.
func (p *property) delay(w wish, now int64) (time.Duration, bool) {
	most := p.limit.Capacity() - w.keep
	fits := w.cost == 0 || p.model.Used(now)+w.cost <= most
	line, waits := p.model.(storetest.Waiter)
	if !waits || w.cost == 0 || w.cost > most {
		return 0, fits
	}
	if algo.TraitsOf(p.limit.Algorithm).Delays {
		delay := time.Duration(line.Until(now, 0)) * time.Microsecond
		return delay, fits && (delay == 0 || !w.immediate && (w.maxWait == 0 || delay <= w.maxWait))
	}
	delay := time.Duration(line.Until(now, most-w.cost)) * time.Microsecond
	return delay, fits || w.maxWait > 0 && delay <= w.maxWait
}

// overshoot is how many units a charge adds that does not fit.
func (p *property) overshoot(used, cost int64) int64 {
	if algo.TraitsOf(p.limit.Algorithm).Windows {
		return cost
	}
	return max(0, min(cost, 2*p.limit.Capacity()-used))
}

func (p *property) cost(t *rapid.T) int64 {
	return rapid.Int64Range(1, p.limit.Capacity()+1).Draw(t, "cost")
}

func (p *property) take(t *rapid.T) { p.ask(t, wish{cost: p.cost(t)}) }

// allow is take by a Limiter, which calls TakeOne if the Taker has it.
func (p *property) allow(t *rapid.T) {
	limiter, err := weir.NewLimiter(p.taker, "test", *p.limit)
	if err != nil {
		t.Fatal(err)
	}
	w := wish{cost: p.cost(t)}
	d, err := limiter.AllowN(context.Background(), p.key, w.cost)
	if err != nil {
		t.Fatalf("%+v: %v", w, err)
	}
	if p.judge(t, w, d); d.Limit == nil || *d.Limit != *p.limit {
		t.Fatalf("decided by %v, want %v", d.Limit, p.limit)
	}
}

func (p *property) upTo(t *rapid.T) {
	cost := rapid.Int64Range(1, p.limit.Capacity()).Draw(t, "at least")
	p.ask(t, wish{cost: cost, upTo: cost + rapid.Int64Range(0, 9).Draw(t, "more"), keep: p.kept(t)})
}

func (p *property) peek(t *rapid.T) { p.ask(t, wish{keep: p.kept(t)}) }

// kept is how many units a charge keeps free.
func (p *property) kept(t *rapid.T) int64 {
	if p.limit.ChargeRefused {
		return 0
	}
	return max(0, rapid.Int64Range(-3, p.limit.Capacity()+1).Draw(t, "kept"))
}

// keep is retry for a charge that keeps units free.
func (p *property) keep(t *rapid.T) {
	p.tryTwice(t, wish{cost: p.cost(t), keep: p.kept(t), immediate: rapid.Bool().Draw(t, "immediate")})
}

// retry waits as long as a refusal says, and one unit of time less at first.
func (p *property) retry(t *rapid.T) { p.tryTwice(t, wish{cost: p.cost(t)}) }

// reserve is like retry, for limits that can be booked ahead.
func (p *property) reserve(t *rapid.T) {
	if bookable(p.limit) {
		wait := rapid.Int64Range(1, 3*p.limit.Period.Microseconds()).Draw(t, "max wait, µs")
		p.tryTwice(t, wish{cost: p.cost(t), maxWait: time.Duration(wait) * time.Microsecond})
	}
}

func (p *property) immediate(t *rapid.T) { p.tryTwice(t, wish{cost: p.cost(t), immediate: true}) }

func (p *property) tryTwice(t *rapid.T, w wish) {
	d := p.ask(t, w)
	if d.Outcome != weir.Refused || d.RetryAfter == weir.Never {
		return
	}
	if !p.limit.ChargeRefused {
		p.clock.Advance(d.RetryAfter - time.Microsecond)
		if early := p.ask(t, w); early.Outcome == weir.Granted {
			t.Fatalf("limit %v, %+v: granted 1µs before retry after %v", p.limit, w, d.RetryAfter)
		}
		d.RetryAfter = time.Microsecond
	}
	p.clock.Advance(d.RetryAfter)
	if late := p.ask(t, w); late.Outcome != weir.Granted {
		t.Fatalf("limit %v, %+v: refused after retry after %v", p.limit, w, d.RetryAfter)
	}
}

// rest leaves the key alone for as long as it says.
func (p *property) rest(t *rapid.T) {
	p.clock.Advance(p.ask(t, wish{}).ResetAfter)
	if d := p.ask(t, wish{cost: p.limit.Capacity()}); d.Outcome != weir.Granted || d.Delay != 0 {
		t.Fatalf("limit %v: not as new after reset after: %+v", p.limit, d)
	}
}

// record charges units that may not fit.
func (p *property) record(t *rapid.T) {
	cost, now := rapid.Int64Range(0, 3*p.limit.Capacity()).Draw(t, "recorded"), p.clock.Micros()
	owed := p.overshoot(p.model.Used(now), cost)
	if d := p.change(t, acts.KindRecord, cost); d.Granted != owed {
		t.Fatalf("limit %v: %d of %d recorded, the rule says %d", p.limit, d.Granted, cost, owed)
	}
	p.model.Charge(now, owed)
	p.peek(t)
}

func (p *property) reset(t *rapid.T) {
	p.change(t, acts.KindReset, 0)
	p.model = storetest.NewModel(p.limit)
	p.peek(t)
}

func (p *property) change(t *rapid.T, kind weir.Kind, cost int64) weir.Decision {
	a := storetest.NewAct(weir.Charge{Key: "test:" + p.key, HashTag: p.key, Limit: p.limit, Cost: cost})
	a.Kind = kind
	if p.taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		t.Fatalf("limit %v, %v: %v", p.limit, kind, a.Err)
	}
	return a.Decisions[0]
}
