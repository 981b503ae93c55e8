package fallback

import (
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
}

// ahead returns what is to be settled under the keys of acts; nil if that is nothing. It
// waits for what is being settled already, as long as ctx lasts.
func (t *Taker) ahead(ctx context.Context, acts []*weir.Act) *errands {
	if t.debts.len() == 0 && !t.ids.owes() && t.deciding.some.Load() == 0 && t.following.some.Load() == 0 {
		return nil
	}
	var e errands
	for _, a := range acts {
		if t.reachable != nil && !t.reachable.Reachable(a) {
			continue
		}
		for i := range a.Charges {
			t.following.wait(ctx, &a.Charges[i])
			t.deciding.wait(t.debts.shard(a.Charges[i].Key))
			t.errand(ctx, &e, &a.Charges[i])
		}
	}
	if len(e.records) == 0 && len(e.amends) == 0 {
		return nil
	}
	return &e
}

// errand adds what is to be settled under one key.
func (t *Taker) errand(ctx context.Context, e *errands, c *weir.Charge) {
	own := func(a *weir.Act) bool { return debtorOf(&a.Charges[0]) == debtorOf(c) }
	if !slices.ContainsFunc(e.records, own) {
		record, busy := t.debts.claim(c, t.now())
		if record != nil {
			e.records = append(e.records, record)
		}
		e.wait(ctx, busy)
	}
	amends, busy := t.ids.under(c.Key, t.now(), t.following.any)
	e.amends = append(e.amends, amends...)
	e.wait(ctx, busy)
}

// wait waits for what somebody else settles. Whoever waits keeps nothing that others wait
// for.
func (e *errands) wait(ctx context.Context, busy <-chan struct{}) {
	if busy == nil || len(e.records)+len(e.amends) > 0 {
		return
	}
	select {
	case <-busy:
	case <-ctx.Done():
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
