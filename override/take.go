package override

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// blocks are limits that refuse every charge, one an algorithm, so that an act
// stays as valid as it was.
var blocks = func() (all [algo.Count]*weir.Limit) {
	for id := range all {
		l := weir.Limit{Algorithm: weir.Algorithm(id), Period: time.Second}
		// Whatever the cost.
		l.ChargeRefused = l.Algorithm == weir.FixedWindow
		all[id] = l.MustCompile()
	}
	return all
}()

// Take asks the wrapped Taker. Acts with overridden charges go there as copies,
// so that their callers' charges never change; their decisions are those of the
// overrides' limits.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	all := t.snapshot()
	if all == nil {
		t.next.Take(ctx, acts)
		return
	}
	asked := acts
	for i, a := range acts {
		changed := t.apply(all, a)
		if changed == nil {
			continue
		}
		if &asked[0] == &acts[0] {
			asked = slices.Clone(acts)
		}
		asked[i] = changed
	}
	t.next.Take(ctx, asked)
	for i, a := range acts {
		a.Err = asked[i].Err
	}
}

// apply returns a copy of the act under its overrides, or nil if it has none. The
// copy shares the act's decisions.
func (t *Taker) apply(all overrides, a *weir.Act) *weir.Act {
	var changed *weir.Act
	for i := range a.Charges {
		limit := t.instead(all, a, i)
		if limit == nil {
			continue
		}
		if changed == nil {
			b := *a
			b.Charges = slices.Clone(a.Charges)
			changed = &b
		}
		changed.Charges[i].Limit = limit
	}
	return changed
}

// instead returns the limit under which a charge comes instead of its own, nil
// for its own.
func (t *Taker) instead(all overrides, a *weir.Act, i int) *weir.Limit {
	c := &a.Charges[i]
	if c.Limit == nil || c.Limit.Rule() == nil {
		return nil
	}
	o, found := all[name{c.Key, c.Limit.Name}]
	if !found {
		return nil
	}
	if now := t.now(); !now.Before(o.Until) {
		t.sweep(now)
		return nil
	}
	blocked := o.Limit.Count == 0
	switch {
	case blocked && a.Kind != weir.Take:
		return nil
	case blocked && c.Cost > 0:
		return blocks[c.Limit.Algorithm]
	case o.Limit.Algorithm == c.Limit.Algorithm:
		return o.Limit
	}
	return nil
}

// sweep lets go of what has ended, so that Takes are as fast as before.
func (t *Taker) sweep(now time.Time) {
	// The change has no error.
	_ = t.change(now, func(overrides) error { return nil })
}

// Unlimited returns a limit that hardly anything can reach, to be set in the place
// of l: of its name and algorithm, with the largest Count that its Period takes.
// What is used meanwhile counts all the same, so that a key may be above l when
// the override ends.
func Unlimited(l weir.Limit) weir.Limit {
	most := l
	most.Burst = 0
	for most.Count = weir.MaxCost; most.Count > l.Count; most.Count /= 10 {
		if _, err := most.Compile(); err == nil {
			return most
		}
	}
	return l
}
