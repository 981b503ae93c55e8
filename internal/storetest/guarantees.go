package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// guaranteeCases have the contract's sentences about budgets with guarantees. The letters are
// those of the faults in decision 33.
var guaranteeCases = []testCase{
	{"A6: a refund of a guaranteed take costs no other class its guarantee", refundedGuarantee},
	{"A7: a hold that is settled for less or released costs its class nothing", releasedHolds},
	{"A9: a cancelled reservation goes back to the alternative that was charged", cancelledAlternative},
	{"A11: what remains is what one request could take", remainsToOne},
	{"A13: a change of the shares suspends no guarantee", changedGuarantees},
	{"a settlement above its hold costs no other class its guarantee", settledAbove},
	{"a guaranteed charge that cannot be is an error", badGuarantees},
}

// teams are classes that share 1000 an hour, of which 48 stay free.
var teams = weir.Shares{
	Limit: weir.Limit{Count: 1000, Period: time.Hour, Burst: 200}, Headroom: 60,
	Guarantees: map[string]int64{"web": 300, "ads": 500},
}

func compiled(t testing.TB, s weir.Shares) *weir.Shares {
	t.Helper()
	c, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// units has a class take units, and demands that so many are granted.
func (b *bench) units(l *weir.Limiter, n, want int64) weir.Decision {
	b.Helper()
	d, err := l.AllowN(context.Background(), "guarantees", n)
	if err != nil || d.Granted != want {
		b.Errorf("%d units: %v, %v; want %d", n, d, err, want)
	}
	return d
}

// fill takes single units until one is refused.
func (b *bench) fill(l *weir.Limiter) {
	b.Helper()
	for range 10_000 {
		if d, err := l.Allow(context.Background(), "guarantees"); err != nil || !d.Allowed() {
			return
		}
	}
	b.Error("never refused")
}

func refundedGuarantee(b *bench) {
	shares := compiled(b, weir.Shares{Limit: weir.PerHour(100), Headroom: 40, Guarantees: map[string]int64{"a": 50, "b": 50}})
	one, two, others := shares.Limiter(b.taker, "budget", "a"), shares.Limiter(b.taker, "budget", "b"), shares.Limiter(b.taker, "budget", "c")
	b.units(others, 60, 60)
	d := b.units(one, 20, 20)
	b.units(two, 20, 20)
	b.clock.Advance(6 * time.Minute)
	// 10 units of the 20 have drained from the budget, and 5 from the guarantee.
	if given, err := one.Refund(context.Background(), "guarantees", d, 20); err != nil || given != 10 {
		b.Errorf("refunded %d, %v", given, err)
	}
	b.units(one, 20, 20)
	b.units(two, 5, 5)
	b.units(two, 1, 0)
	b.units(others, 1, 0)
}

func releasedHolds(b *bench) {
	shares := compiled(b, teams)
	web, ads, others := shares.Limiter(b.taker, "budget", "web"), shares.Limiter(b.taker, "budget", "ads"), shares.Limiter(b.taker, "budget", "new")
	for i := range 36 {
		b.fill(others)
		take := web.Act(acts.KindTake, "guarantees", 1+int64(i%3))
		take.ID = fmt.Sprint("hold ", i)
		if b.take(take); take.Decisions[0].Outcome != weir.Granted {
			b.Fatalf("hold %d is not guaranteed: %v", i, take.Decisions)
		}
		b.clock.Advance(time.Duration(i%3) * time.Second)
		kind := []weir.Kind{acts.KindRelease, acts.KindSettle}[i%2]
		end := web.Act(kind, "guarantees", 0)
		end.ID = take.ID
		b.take(end)
	}
	b.fill(others)
	b.units(web, 18, 18)
	b.units(ads, 30, 30)
}

func cancelledAlternative(b *bench) {
	shares := compiled(b, teams)
	ads := shares.Limiter(b.taker, "budget", "ads")
	name := func(name string, count int64) *weir.Limiter {
		l, err := weir.NewLimiter(b.taker, "test", weir.Limit{Name: name, Count: count, Period: 24 * time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	free, credits := name("free", 10), name("credits", 500)
	either, err := free.Otherwise(credits)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	for what, l := range map[string]*weir.Limiter{"a class": ads, "free or credits": either} {
		for _, n := range []int64{8, 8, 100, 0} { // the first alternative, and then the second
			before, err := l.Peek(ctx, "guarantees")
			if err != nil {
				b.Fatal(err)
			}
			r, err := l.Reserve(ctx, "guarantees", n, 0)
			if err != nil || !r.OK() {
				b.Fatalf("%s: %d units: %v, %v", what, n, r, err)
			}
			if given, err := r.Cancel(ctx); err != nil || given != n {
				b.Errorf("%s: %d of %d units cancelled, %v", what, given, n, err)
			}
			if after, err := l.Peek(ctx, "guarantees"); err != nil || after != before {
				b.Errorf("%s: %v before, %v after, %v", what, before, after, err)
			}
			b.units(l, min(n, 8), min(n, 8))
		}
	}
}

func remainsToOne(b *bench) {
	shares := compiled(b, teams)
	ads, others := shares.Limiter(b.taker, "budget", "ads"), shares.Limiter(b.taker, "budget", "new")
	left := func(d weir.Decision, want int64) {
		b.Helper()
		if d.Remaining != want {
			b.Errorf("%v, want %d remaining", d, want)
		}
	}
	left(b.units(ads, 0, 0), 152)
	left(b.units(ads, 30, 30), 122)
	d, err := ads.AllowUpTo(context.Background(), "guarantees", 100)
	if err != nil || d.Granted != 100 {
		b.Errorf("up to 100 of 122: %v, %v", d, err)
	}
	left(d, 22)
	d = b.units(others, 20, 20)
	left(d, 2)
	b.clock.Advance(time.Minute)
	left(b.units(ads, 0, 0), 18) // 16⅔ units of the budget have drained, and 8⅓ of the guarantee
	d, err = ads.AllowUpTo(context.Background(), "guarantees", 100)
	if err != nil || d.Granted != 18 || d.Alternative != 2 {
		b.Errorf("up to 100 of 18: %v, %v", d, err)
	}
	left(d, 8)
	d, err = ads.AllowUpTo(context.Background(), "guarantees", 100)
	if err != nil || d.Granted != 8 || d.Alternative != 1 {
		b.Errorf("up to 100 of 8: %v, %v", d, err)
	}
	for kind, c := range map[weir.Kind]struct{ cost, want int64 }{acts.KindSettle: {4, 148}, acts.KindRefund: {16, 148}, acts.KindRelease: {0, 152}} {
		take := ads.Act(acts.KindTake, kind.String(), 20)
		take.ID = kind.String()
		if b.take(take); take.Remaining() != 132 {
			b.Errorf("%d remain after a take: %v", take.Remaining(), take.Decisions)
		}
		a := ads.Act(kind, kind.String(), c.cost)
		a.ID = take.ID
		if b.take(a); a.Remaining() != c.want {
			b.Errorf("%d remain after a %v, want %d: %v", a.Remaining(), kind, c.want, a.Decisions)
		}
	}
}

func changedGuarantees(b *bench) {
	before := compiled(b, teams)
	lowered := teams
	lowered.Guarantees = map[string]int64{"web": 300, "ads": 100, "new": 400}
	after := compiled(b, lowered)
	limiter := func(s *weir.Shares, class string) *weir.Limiter { return s.Limiter(b.taker, "budget", class) }
	b.fill(limiter(before, "others"))
	b.units(limiter(before, "ads"), 30, 30)
	// The budget has 18 units of 200 left. Guarantees of 18, 6 and 24 stay in force.
	b.units(limiter(after, "web"), 18, 18)
	b.units(limiter(after, "new"), 24, 24)
	b.units(limiter(after, "others"), 1, 0)
	// Its guarantee is charged 30 units, of which 24 have to drain: at 100 an hour.
	b.units(limiter(after, "ads"), 1, 0)
	b.clock.Advance(25 * time.Hour / 100)
	b.fill(limiter(after, "others"))
	b.units(limiter(after, "ads"), 1, 1)
	b.units(limiter(after, "ads"), 1, 0)
}

func settledAbove(b *bench) {
	shares := compiled(b, teams)
	web, ads, others := shares.Limiter(b.taker, "budget", "web"), shares.Limiter(b.taker, "budget", "ads"), shares.Limiter(b.taker, "budget", "new")
	b.fill(others)
	take := ads.Act(acts.KindTake, "guarantees", 10)
	take.ID = "above"
	b.take(take)
	settle := ads.Act(acts.KindSettle, "guarantees", 1000)
	settle.ID = take.ID
	b.take(settle)
	b.units(web, 18, 18)
	b.units(web, 1, 0)
	b.units(ads, 1, 0)
	// The budget is charged 400, the most, and the class 60: its guarantee begins when 31 of
	// them have drained.
	b.clock.Advance(31 * time.Hour / 500)
	b.units(others, 1, 0)
	b.units(ads, 1, 1)
}

func badGuarantees(b *bench) {
	l := weir.PerSecond(5).MustCompile()
	window := weir.Limit{Algorithm: weir.FixedWindow, Count: 5, Period: time.Second}.MustCompile()
	for name, change := range map[string]func(*weir.Act){
		"the first":           func(a *weir.Act) { a.Charges[0].Guaranteed = true },
		"the first of others": func(a *weir.Act) { a.Charges[2].Guaranteed = true },
		"keeps":               func(a *weir.Act) { a.Charges[1].Guaranteed, a.Charges[1].Keep = true, 1 },
		"another algorithm":   func(a *weir.Act) { a.Charges[1].Guaranteed, a.Charges[1].Limit = true, window },
	} {
		a := NewAct(alt("one", l, 1, 0, 0), alt("two", l, 1, 0, 0), alt("three", l, 1, 0, 1))
		change(a)
		b.taker.Take(context.Background(), []*weir.Act{a})
		var invalid *weir.InvalidError
		if !errors.As(a.Err, &invalid) || invalid.Field != "guaranteed" {
			b.Errorf("%s: %v", name, a.Err)
		}
	}
	if x, y := b.left("one", l), b.left("two", l); x != 5 || y != 5 {
		b.Errorf("bad acts charged: %d and %d left", x, y)
	}
}
