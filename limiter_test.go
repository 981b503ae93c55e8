package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

func TestNewLimiterRefuses(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	many := make([]weir.Limit, weir.MaxCharges+1)
	for field, build := range map[string]func() (*weir.Limiter, error){
		"store":  func() (*weir.Limiter, error) { return weir.NewLimiter(nil, "test", weir.PerSecond(1)) },
		"limits": func() (*weir.Limiter, error) { return weir.NewLimiter(store, "test") },
		"count":  func() (*weir.Limiter, error) { return weir.NewLimiter(store, "test", weir.PerSecond(-1)) },
		"period": func() (*weir.Limiter, error) { return weir.NewLimiter(store, "test", weir.Per(1, 0)) },
		"name": func() (*weir.Limiter, error) {
			return weir.NewLimiter(store, "test", weir.Limit{Name: "1", Count: 1, Period: time.Second}, weir.PerSecond(1))
		},
	} {
		_, err := build()
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := weir.NewLimiter(store, "test", many...); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	for _, name := range []string{"", "a:b", "a#b"} {
		var invalid *weir.InvalidError
		if _, err := weir.NewLimiter(store, name, weir.PerSecond(1)); !errors.As(err, &invalid) || invalid.Field != "name" {
			t.Errorf("the name %q: %v", name, err)
		}
		shares, err := weir.Shares{Limit: weir.PerMinute(100)}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shares.Limiter(store, name, "ads").Allow(t.Context(), "k"); !errors.As(err, &invalid) || invalid.Field != "name" {
			t.Errorf("shares with the name %q: %v", name, err)
		}
	}
	if _, err := weir.NewLimiter(store, "test", weir.Limit{Name: "a:b", Count: 1, Period: time.Second}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("the name of a limit: %v", err)
	}
}

// TestNamesOfLimiters: limiters of one store charge one budget only if they have the same
// name, whatever their keys and the names of their limits.
func TestNamesOfLimiters(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	day := func(name string) weir.Limit { return weir.Limit{Name: name, Count: 1, Period: 24 * time.Hour} }
	var all []*weir.Limiter
	for _, of := range []struct {
		name   string
		limits []weir.Limit
	}{
		{"a", []weir.Limit{day("")}},
		{"b", []weir.Limit{day("")}},
		{"0", []weir.Limit{day("a"), day("b")}},
		{"b0", []weir.Limit{day(""), day("")}},
		{"c", []weir.Limit{day("b#a"), day("a")}},
	} {
		all = append(all, limiterOf(t, store, of.name, of.limits...))
	}
	for _, key := range []string{"k", "k#a", "a:k", "a", "a#0", "a#1", "#", "#0:k", "b:#a", ""} {
		for i, l := range all {
			for _, granted := range []bool{true, false} {
				if d, err := l.Allow(t.Context(), key); err != nil || d.Allowed() != granted {
					t.Errorf("limiter %d, key %q: %v, %v, want %v", i, key, d, err, granted)
				}
			}
		}
	}
	if left := remaining(t, limiterOf(t, store, "a", weir.PerDay(5)), "k"); left != 4 {
		t.Errorf("another limiter of the same name: %d remain, want what the first one has left", left)
	}
}

func TestLimiterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	if d, err := limiterOver(t, failing{down}, weir.PerSecond(1)).Allow(t.Context(), "k"); !errors.Is(err, down) || d.Allowed() {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := limiter(t, weir.PerSecond(1)).AllowN(t.Context(), "k", -1); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		a.Err = f.err
	}
}

// TestNamesSeparateBudgets: the name of a limit is part of its key, whether a Limiter has
// one limit or several.
func TestNamesSeparateBudgets(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	login, api, plain := weir.PerHour(3), weir.PerHour(100), weir.PerHour(5)
	login.Name, api.Name = "login", "api"
	allow := func(n int64, limits ...weir.Limit) int64 {
		t.Helper()
		d, err := limiterOver(t, store, limits...).AllowN(t.Context(), "alice", n)
		if err != nil || !d.Allowed() {
			t.Fatalf("%v: %v, %v", limits, d, err)
		}
		return d.Remaining
	}
	if got := allow(90, api); got != 10 {
		t.Errorf("api: %d remain, want 10", got)
	}
	if got := allow(1, login); got != 2 {
		t.Errorf("login after api: %d remain, want 2", got)
	}
	if got := allow(1, login, api); got != 9 {
		t.Errorf("both: %d remain, want 9 of api, the strictest", got)
	}
	if got := allow(2, plain); got != 3 {
		t.Errorf("without a name: %d remain, want 3", got)
	}
	if key := limiterOver(t, store, plain).Act(acts.KindTake, "alice", 1).Charges[0].Key; key != "test:alice" {
		t.Errorf("without a name the key is %q", key)
	}
}

// TestKeeping: a Limiter that leaves units to others does so in every way of taking, and gives
// back what it took as any other.
func TestKeeping(t *testing.T) {
	t.Parallel()
	all := limiter(t, weir.Limit{Count: 10, Period: 24 * time.Hour})
	batch := all.Keeping(2).Keeping(1)
	allow := func(l *weir.Limiter, n, want int64) weir.Decision {
		t.Helper()
		d, err := l.AllowN(t.Context(), "k", n)
		if err != nil || d.Granted != want {
			t.Errorf("%d units: %v, %v; want %d", n, d, err, want)
		}
		return d
	}
	h, err := batch.Hold(t.Context(), "k", 7, 0)
	if err != nil || !h.OK() {
		t.Fatalf("%v, %v", h, err)
	}
	allow(batch, 1, 0)
	if d, err := h.Settle(t.Context(), 4); err != nil || d.Remaining != 3 {
		t.Errorf("settled: %v, %v", d, err)
	}
	d := allow(batch, 3, 3)
	allow(batch, 1, 0)
	allow(all, 3, 3)
	if given, err := batch.Refund(t.Context(), "k", d, 3); err != nil || given != 3 {
		t.Errorf("refunded %d, %v", given, err)
	}
	if err := batch.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if d, err := batch.AllowUpTo(t.Context(), "k", 9); err != nil || d.Granted != 7 {
		t.Errorf("at most 9: %v, %v", d, err)
	}
	if d := allow(batch, 0, 0); d.Remaining != 0 || !d.Allowed() {
		t.Errorf("a peek: %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if wait := needed(t, batch.Wait(ctx, "k")); wait < 2*time.Hour || wait > 3*time.Hour {
		t.Errorf("a unit is free in %v", wait)
	}
	if _, err := batch.Reserve(t.Context(), "k", 1, time.Hour); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("booked ahead: %v", err)
	}
	if _, err := all.Keeping(-1).Allow(t.Context(), "k"); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("fewer than none: %v", err)
	}
}

// TestKeepingMuch: a budget of any count can leave all but one of its units to others, and no
// limiter more than the largest count.
func TestKeepingMuch(t *testing.T) {
	t.Parallel()
	const most = 999_999_999_999_999
	all := limiter(t, weir.Limit{Algorithm: weir.FixedWindow, Count: most, Period: 24 * time.Hour})
	for kept, granted := range map[int64]bool{most - 1: true, most: false} {
		if d, err := all.Keeping(kept).Allow(t.Context(), fmt.Sprint(kept)); err != nil || d.Allowed() != granted || d.Remaining != 0 || (d.RetryAfter == weir.Never) == granted {
			t.Errorf("keeping %d: %+v, %v", kept, d, err)
		}
	}
	var invalid *weir.InvalidError
	if _, err := all.Keeping(most+1).Allow(t.Context(), "k"); !errors.As(err, &invalid) || invalid.Field != "keep" || invalid.Value != "1000000000000000" || invalid.Want != "0 … 999999999999999" {
		t.Errorf("more than any limit has: %v", err)
	}
}

// TestRefundOfShares: units return to the alternative that was granted.
func TestRefundOfShares(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	store := memstore.New(memstore.Options{Now: clock.Now})
	shares, err := weir.Shares{Limit: weir.PerHour(100), Guarantees: map[string]int64{"a": 50}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	own, others := shares.Limiter(store, "budget", "a"), shares.Limiter(store, "budget", "b")
	for i, c := range []struct {
		limiter     *weir.Limiter
		n, refunded int64
		alternative uint8
		lent        int64 // to others, afterwards
	}{
		{own, 10, 4, 1, 84}, {own, 5, 5, 2, 84}, {own, 4, 0, 1, 80}, {others, 20, 8, 0, 68}, {own, 0, 0, 2, 68},
	} {
		d, err := c.limiter.AllowN(t.Context(), "k", c.n)
		if err != nil || !d.Allowed() || d.Alternative != c.alternative {
			t.Errorf("take %d: %v of alternative %d, %v", i, d, d.Alternative, err)
		}
		if given, err := c.limiter.Refund(t.Context(), "k", d, c.refunded); err != nil || given != c.refunded {
			t.Errorf("take %d: %d of %d refunded, %v", i, given, c.refunded, err)
		}
		if left := remaining(t, others, "k"); left != c.lent {
			t.Errorf("take %d: %d are lent, want %d", i, left, c.lent)
		}
	}
}

// TestOtherwise: the first alternative that has room is charged, and what becomes of it is
// its own.
func TestOtherwise(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	named := func(name string, count int64) *weir.Limiter {
		return limiterOver(t, store, weir.Limit{Name: name, Count: count, Period: 24 * time.Hour})
	}
	free, credits, last := named("free", 10), named("credits", 100), named("last", 4)
	or := func(l, other *weir.Limiter) *weir.Limiter {
		t.Helper()
		both, err := l.Otherwise(other)
		if err != nil {
			t.Fatal(err)
		}
		return both
	}
	all := or(or(free, credits.Keeping(50)), last)
	left := func(want ...int64) {
		t.Helper()
		for i, l := range []*weir.Limiter{free, credits, last} {
			if n := remaining(t, l, "k"); n != want[i] {
				t.Errorf("%d remain of alternative %d, want %d", n, i, want[i])
			}
		}
	}
	allow := func(n int64, granted bool) weir.Decision {
		t.Helper()
		d, err := all.AllowN(t.Context(), "k", n)
		if err != nil || d.Allowed() != granted {
			t.Errorf("%d units: %v, %v", n, d, err)
		}
		return d
	}
	if d := allow(8, true); d.Remaining != 50 || d.Alternative != 1 {
		t.Errorf("alternative %d: %v", d.Alternative, d)
	}
	h, err := all.Hold(t.Context(), "k", 40, 0)
	if err != nil || !h.OK() {
		t.Fatalf("%v, %v", h, err)
	}
	left(2, 60, 4)
	if _, err := h.Settle(t.Context(), 30); err != nil {
		t.Error(err)
	}
	left(2, 70, 4)
	d := allow(20, true)
	allow(3, true)
	left(2, 50, 1)
	if d := allow(3, false); d.RetryAfter <= 0 || d.RetryAfter > 3*time.Hour || d.Alternative != 2 {
		t.Errorf("%v of alternative %d, want the wait for credits", d, d.Alternative)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if wait := needed(t, all.WaitN(ctx, "k", 3)); wait > 3*time.Hour {
		t.Errorf("3 are free in %v", wait)
	}
	if given, err := all.Refund(t.Context(), "k", d, 5); err != nil || given != 5 || d.Alternative != 2 {
		t.Errorf("%d are refunded to alternative %d: %v", given, d.Alternative, err)
	}
	left(2, 55, 1)
	for _, other := range []uint8{0, 4} {
		d := d
		d.Alternative = other
		if _, err := all.Refund(t.Context(), "k", d, 1); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("a refund to alternative %d: %v", other, err)
		}
	}
	if err := all.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	left(10, 100, 4)
	for what, pair := range map[string][2]*weir.Limiter{
		"no names":      {limiterOver(t, store, weir.PerDay(1)), limiterOver(t, store, weir.PerDay(2))},
		"one name":      {named("free", 10), named("free", 11)},
		"several times": {all, named("credits", 99)},
	} {
		var invalid *weir.InvalidError
		if _, err := pair[0].Otherwise(pair[1]); !errors.As(err, &invalid) || invalid.Field != "name" {
			t.Errorf("%s: %v", what, err)
		}
	}
	var many []weir.Limit
	for i := range weir.MaxCharges {
		many = append(many, weir.Limit{Name: fmt.Sprint(i), Count: 1, Period: time.Hour})
	}
	var invalid *weir.InvalidError
	if _, err := limiterOver(t, store, many...).Otherwise(free); !errors.As(err, &invalid) || invalid.Field != "limits" {
		t.Errorf("too many: %v", err)
	}
	if _, err := limiter(t, weir.Limit{Name: "else", Count: 1, Period: time.Hour}).Otherwise(free); !errors.As(err, &invalid) || invalid.Field != "store" {
		t.Errorf("another store: %v", err)
	}
	or(free, free.Keeping(3)) // one limit, with and without
}

// TestLimiterActSharesTheBudget charges by an act, with the limiter as its Taker, and by the
// limiter's own verbs.
func TestLimiterActSharesTheBudget(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][]weir.Limit{
		"one":     {weir.PerHour(5)},
		"several": {weir.PerHour(5), {Name: "day", Count: 9, Period: 24 * time.Hour}},
	} {
		limiter := limiter(t, limits...)
		act := limiter.Act(acts.KindTake, "k", 3)
		weir.Taker(limiter).Take(t.Context(), []*weir.Act{act})
		if !act.Allowed() || act.Decisions[0].Remaining != 2 || len(act.Decisions) != len(limits) {
			t.Errorf("%s: %v, %+v", name, act.Err, act.Decisions)
		}
		if d, err := limiter.AllowN(t.Context(), "k", 3); err != nil || d.Allowed() || d.Remaining != 2 {
			t.Errorf("%s: after the act: %+v, %v", name, d, err)
		}
	}
}
