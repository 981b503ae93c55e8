package fallback

import (
	"cmp"
	"context"
	"slices"

	"github.com/weirlimit/weir"
)

// A reachable store knows for which acts it is reachable.
type reachable interface {
	// Reachable reports whether the store would be asked for an act.
	Reachable(act *weir.Act) bool
}

// errands are the debts and amendments that go to the store before some acts: without
// them the store would grant units that were granted without it once more.
type errands struct {
	records []*weir.Act
	amends  []amendment
	taken   map[*taken]bool // whose amendments these are
}

// ahead returns what is to be settled under the keys of acts; nil if that is nothing. It
// waits for what is being settled already, as long as ctx lasts: that may fail, and is
// owed again then.
func (t *Taker) ahead(ctx context.Context, acts []*weir.Act) *errands {
	if t.debts.len() == 0 && !t.ids.owes() && t.deciding.some.Load() == 0 && t.following.some.Load() == 0 {
		return nil
	}
	var charges []*weir.Charge
	for _, a := range acts {
		if t.reachable != nil && !t.reachable.Reachable(a) {
			continue
		}
		for i := range a.Charges {
			c := &a.Charges[i]
			t.following.wait(ctx, c)
			t.deciding.wait(t.debts.shard(c.Key))
			charges = append(charges, c)
		}
	}
	// In one order everywhere, so that callers with keys in common do not put back what
	// the others wait for again and again.
	slices.SortFunc(charges, func(a, b *weir.Charge) int { return cmp.Compare(a.Key, b.Key) })
	for {
		e, busy := t.claim(charges)
		if busy == nil {
			return e
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil
		}
	}
}

// claim takes out what is to be settled under some keys, or nothing if a part of it is
// being settled by somebody else: busy is closed once that is over.
func (t *Taker) claim(charges []*weir.Charge) (e *errands, busy <-chan struct{}) {
	e = &errands{taken: map[*taken]bool{}}
	for _, c := range charges {
		if busy = t.claimOne(e, c); busy != nil {
			t.release(e)
			return nil, busy
		}
	}
	if len(e.records) == 0 && len(e.amends) == 0 {
		return nil, nil
	}
	return e, nil
}

// claimOne takes out what is to be settled under one key, as far as nobody else does it.
func (t *Taker) claimOne(e *errands, c *weir.Charge) (busy <-chan struct{}) {
	own := func(a *weir.Act) bool { return debtorOf(&a.Charges[0]) == debtorOf(c) }
	if !slices.ContainsFunc(e.records, own) {
		record, others := t.debts.claim(c, t.now())
		if record != nil {
			e.records = append(e.records, record)
		}
		busy = others
	}
	amends, others := t.ids.under(c.Key, t.now(), t.following.any, e.taken)
	e.amends = append(e.amends, amends...)
	if busy == nil {
		busy = others
	}
	return busy
}

// release puts back what was taken out and not asked for.
func (t *Taker) release(e *errands) {
	t.debts.drop(e.records, t.now())
	for i := range e.amends {
		t.ids.over(e.amends[i].of)
	}
}

// before returns the errands and the acts, in the order in which they are decided.
func (e *errands) before(acts []*weir.Act) []*weir.Act {
	all := make([]*weir.Act, 0, len(e.records)+len(e.amends)+len(acts))
	all = append(all, e.records...)
	for i := range e.amends {
		all = append(all, e.amends[i].Act)
	}
	return append(all, acts...)
}
