// Package keylimit bounds how many keys of a limit are kept apart. Whoever can make
// up keys, such as paths, addresses or tokens that nobody checks, can fill a store
// with the states of keys that come once. Here a limit has a budget of keys: those
// that it knows stay themselves, and further ones share one. It wraps any
// [weir.Taker].
package keylimit

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/weirlimit/weir"
)

// MaxKeys is the largest budget. A key takes 20 to 40 bytes of this process.
const MaxKeys = 10_000_000

// A Budget is how many keys of one limit are kept apart.
type Budget struct {
	// MaxKeys is how many. Zero: any number; at most the constant [MaxKeys].
	MaxKeys int
	// Overflow is the key that all others are charged under. It names the budget:
	// limits with one Overflow have one set of keys. Nobody else may use it.
	Overflow string
}

// Options are the settings of a [Taker]. The zero value bounds nothing.
type Options struct {
	// Budget says what budget a limit has. It is called for every charge, from many
	// goroutines. Nil: none has any.
	Budget func(*weir.Limit) Budget
	// Now is the clock by which keys are forgotten. Nil: the machine's, whose steps
	// do not count.
	Now func() time.Time
	// Logger hears when a limit has as many keys as it may. Nil: nobody does.
	Logger *slog.Logger
}

// A Taker asks another one, for the key of its limit's Overflow where a key is
// beyond the limit's budget. It is safe for concurrent use and starts nothing.
// Create it with Wrap.
//
// A key is known once it was charged, and until it was not asked for in one to two
// times of what its limit takes to forget: as long as it may have a state in the
// store. So of one process the store never has more states of a limit than its
// MaxKeys and one, those aside that are in debt or booked ahead, which outlive that
// time. A look makes no key known, and a reset is of the key itself.
//
// What is beyond the budget is refused too much, for it shares what one key has, and
// never granted more. A key that has shared begins anew when it gets a place of its
// own, and may be granted one burst more then than if it had been by itself from the
// beginning.
//
// Ids are bounded as well: a refused take of a key beyond the budget leaves none,
// whoever made its id, so that a repeat of it is decided anew.
//
// What is asked about the id of a take is asked where its keys are now, and, where
// the id is not known there, with all of them under their Overflow and with none:
// places may have changed since, or be others at another instance. A repeat of a take
// does not look elsewhere: where the key's place has changed, it is another take.
type Taker struct {
	next   weir.Taker
	budget func(*weir.Limit) Budget
	now    func() int64 // µs
	limits limits
	logger *slog.Logger
}

// Wrap returns a Taker that asks next. The zero Options are allowed.
func Wrap(next weir.Taker, o Options) *Taker {
	return &Taker{next: next, budget: o.Budget, now: clock(o.Now), logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
}

// clock returns a clock in µs that no step of the machine's moves.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return now().UnixMicro() }
	}
	start := time.Now()
	return func() int64 { return time.Since(start).Microseconds() }
}

// Take asks the wrapped Taker, with other keys where there are too many.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	if t.budget == nil {
		t.next.Take(ctx, acts)
		return
	}
	var c call
	for _, a := range acts {
		t.place(&c, a)
	}
	t.next.Take(ctx, acts)
	c.restore()
	for _, a := range c.doubtful {
		t.elsewhere(ctx, a)
	}
}

// place puts the charges of an act that are beyond their budgets under their
// overflow keys.
func (t *Taker) place(c *call, a *weir.Act) {
	if a.Kind == weir.KindReset {
		return
	}
	from, doubt := len(c.moved), false
	for i := range a.Charges {
		charge := &a.Charges[i]
		budget := t.budgetOf(charge)
		if budget.MaxKeys <= 0 {
			continue
		}
		k := t.limits.of(budget.Overflow, charge.Limit, t.now())
		if !k.admit(charge.Key, budget.MaxKeys, charges(a, charge)) {
			t.overflowed(k, budget, charge)
			c.move(a, i, budget.Overflow)
		}
		doubt = doubt || k.overflowed.Load() > 0
	}
	c.rename(a, c.moved[from:])
	if doubt && about(a) {
		c.doubtful = append(c.doubtful, a)
	}
}

// budgetOf returns the budget for a charge, if that can have a state at all.
func (t *Taker) budgetOf(c *weir.Charge) Budget {
	if c.Limit == nil || c.Limit.Rule() == nil || c.Limit.Count == 0 || len(c.Key) > weir.MaxKeyBytes {
		return Budget{}
	}
	b := t.budget(c.Limit)
	b.MaxKeys = min(b.MaxKeys, MaxKeys)
	return b
}

// charges reports whether a charge can give its key a state.
func charges(a *weir.Act, c *weir.Charge) bool {
	return c.Cost > 0 && (a.Kind == weir.KindTake || a.Kind == weir.KindRecord || a.Kind == weir.KindAmend)
}

// about reports whether an act is about the id of a take.
func about(a *weir.Act) bool {
	switch a.Kind {
	case weir.KindRefund, weir.KindSettle, weir.KindRelease, weir.KindRenew:
		return a.ID != ""
	}
	return false
}

// overflowed counts a charge, and says it where that is new.
func (t *Taker) overflowed(k *keys, b Budget, c *weir.Charge) {
	k.overflowed.Add(1)
	if !k.told.Swap(true) {
		t.logger.Warn("a limit has as many keys as it may: new ones share one budget", "limit", c.Limit.Name, "max_keys", b.MaxKeys, "key", b.Overflow)
	}
}
