package fallback

import (
	"context"
	"slices"

	"github.com/weirlimit/weir"
)

// adopted moves the places of a holder who came in here, and stays, over to the store,
// and reports whether it has taken them: it is back, and has room for them. Until
// then they stay here, for nobody is thrown out. Units that the same act was granted
// would be charged twice: such an act stays.
func (t *Taker) adopted(ctx context.Context, a *weir.Act, known *taken) bool {
	if t.breaker.away.Load() != nil || !places(a) || !t.ids.holds(known) {
		return false
	}
	within, cancel, _ := t.bound(ctx)
	defer cancel()
	if !t.room(within, a) {
		return false
	}
	take := copyOf(a, weir.Take)
	for i := range take.Charges {
		take.Charges[i].Cost, take.Charges[i].UpTo = 1, 0
	}
	if t.next.Take(within, []*weir.Act{take}); !take.Allowed() {
		return false
	}
	t.here(copyOf(a, weir.Release))
	t.ids.drop(a)
	t.counts.adopted.Add(1)
	return true
}

// room looks whether the store has room for a holder: a take that it refused would
// have its id refused from then on.
func (t *Taker) room(ctx context.Context, a *weir.Act) bool {
	look := copyOf(a, weir.Take)
	look.ID = ""
	for i := range look.Charges {
		look.Charges[i].Cost, look.Charges[i].UpTo = 0, 0
	}
	t.next.Take(ctx, []*weir.Act{look})
	return look.Allowed() && !slices.ContainsFunc(look.Decisions, func(d weir.Decision) bool { return d.Remaining == 0 })
}

// copyOf is an act about the same id and keys.
func copyOf(a *weir.Act, kind weir.Kind) *weir.Act {
	return &weir.Act{Kind: kind, ID: a.ID, Charges: slices.Clone(a.Charges), Decisions: make([]weir.Decision, len(a.Charges))}
}

// places reports whether an act is about places alone.
func places(a *weir.Act) bool {
	return !slices.ContainsFunc(a.Charges, func(c weir.Charge) bool { return c.Limit.Algorithm != weir.Concurrency })
}

// holds reports whether a take was granted all it asked for, and has it still.
func (s *ids) holds(t *taken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.granted != nil && !slices.Contains(t.granted, 0)
}

// drop forgets an id, which is the store's from now on.
func (s *ids) drop(a *weir.Act) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, idOf(a))
}
