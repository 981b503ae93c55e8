package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// properties drives a Taker with random histories beside the exact model. It
// checks that it never grants more and never refuses less than the rule says,
// that waiting exactly RetryAfter suffices and one unit of time less does not,
// that what remains fits and no more, that a refusal changes nothing, and that
// a key left alone for ResetAfter is as good as new.
func properties(t *testing.T, open Open) {
	for id, step := range algo.Steps {
		t.Run(step.Name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			taker := open(t, clock)
			runs := 0
			rapid.Check(t, func(t *rapid.T) {
				runs++
				limit := drawLimit(t, weir.Algorithm(id))
				p := &property{t: t, taker: taker, clock: clock, limit: limit, model: newModel(limit)}
				p.key = fmt.Sprintf("%s %d", step.Name, runs)
				// A fresh key, at an odd instant.
				clock.Advance(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "start")) * time.Microsecond)
				t.Repeat(map[string]func(*rapid.T){
					"advance": p.advance, "take": p.take, "up to": p.upTo, "look": p.look, "retry": p.retry, "rest": p.rest,
				})
			})
		})
	}
}

func drawLimit(t *rapid.T, algorithm weir.Algorithm) *weir.Limit {
	l := weir.Limit{
		Algorithm: algorithm,
		Count:     rapid.Int64Range(1, 12).Draw(t, "count"),
		Period:    time.Duration(rapid.Int64Range(1, 5000).Draw(t, "period ms")) * time.Millisecond,
	}
	switch algorithm {
	case weir.GCRA, weir.TokenBucket:
		l.Burst = rapid.Int64Range(1, 20).Draw(t, "burst")
	case weir.RollingWindow:
		l.Buckets = rapid.IntRange(2, 12).Draw(t, "buckets")
	case weir.FixedWindow:
		l.Anchor = rapid.SampledFrom([]weir.Anchor{weir.AnchorEpoch, weir.AnchorFirst}).Draw(t, "anchor")
		l.ChargeRefused = rapid.Bool().Draw(t, "charge refused")
	}
	return l.MustCompile()
}

type property struct {
	t     *rapid.T
	taker weir.Taker
	clock *Clock
	limit *weir.Limit
	model model
	key   string
}

func (p *property) advance(t *rapid.T) {
	d := rapid.Int64Range(0, p.limit.Period.Microseconds()).Draw(t, "µs")
	p.clock.Advance(time.Duration(d) * time.Microsecond)
}

// ask takes one charge and checks everything that its answer claims.
func (p *property) ask(t *rapid.T, cost, upTo int64) weir.Decision {
	t.Helper()
	now := p.clock.Micros()
	room := p.model.room(now)
	a := NewAct(weir.Charge{Key: p.key, Limit: p.limit, Cost: cost, UpTo: upTo})
	p.taker.Take(context.Background(), []*weir.Act{a})
	if a.Err != nil {
		t.Fatalf("cost %d: %v", cost, a.Err)
	}
	d := a.Decisions[0]
	want := weir.Decision{Outcome: weir.Refused, Remaining: room}
	switch {
	case cost <= room:
		want = weir.Decision{Outcome: weir.Granted, Granted: min(max(cost, upTo), room)}
		want.Remaining = room - want.Granted
		p.model.charge(now, want.Granted)
	case p.limit.ChargeRefused:
		p.model.charge(now, cost)
		want.Remaining = p.model.room(now)
	}
	if d.Outcome != want.Outcome || d.Granted != want.Granted || d.Remaining != want.Remaining || d.At != now {
		t.Fatalf("limit %v, cost %d, up to %d: got %+v; the rule says %+v", p.limit, cost, upTo, d, want)
	}
	if (d.RetryAfter > 0) != (d.Outcome == weir.Refused) || (d.RetryAfter == weir.Never) != (cost > p.limit.Capacity()) {
		t.Fatalf("limit %v, cost %d: retry after %v with %v", p.limit, cost, d.RetryAfter, d.Outcome)
	}
	return d
}

func (p *property) cost(t *rapid.T) int64 {
	return rapid.Int64Range(1, p.limit.Capacity()+1).Draw(t, "cost")
}

func (p *property) take(t *rapid.T) { p.ask(t, p.cost(t), 0) }

func (p *property) upTo(t *rapid.T) {
	cost := rapid.Int64Range(1, p.limit.Capacity()).Draw(t, "at least")
	p.ask(t, cost, cost+rapid.Int64Range(0, 9).Draw(t, "more"))
}

func (p *property) look(t *rapid.T) { p.ask(t, 0, 0) }

// retry waits as long as a refusal says, and one unit of time less at first.
func (p *property) retry(t *rapid.T) {
	cost := p.cost(t)
	d := p.ask(t, cost, 0)
	if d.Outcome != weir.Refused || d.RetryAfter == weir.Never || p.limit.ChargeRefused {
		return
	}
	p.clock.Advance(d.RetryAfter - time.Microsecond)
	if early := p.ask(t, cost, 0); early.Outcome == weir.Granted {
		t.Fatalf("limit %v: granted 1µs before retry after %v", p.limit, d.RetryAfter)
	}
	p.clock.Advance(time.Microsecond)
	if late := p.ask(t, cost, 0); late.Outcome != weir.Granted {
		t.Fatalf("limit %v: refused after retry after %v", p.limit, d.RetryAfter)
	}
}

// rest leaves the key alone for as long as it says.
func (p *property) rest(t *rapid.T) {
	p.clock.Advance(p.ask(t, 0, 0).ResetAfter)
	if d := p.ask(t, p.limit.Capacity(), 0); d.Outcome != weir.Granted {
		t.Fatalf("limit %v: not as new after reset after: %+v", p.limit, d)
	}
}
