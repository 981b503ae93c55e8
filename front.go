package weir

import "context"

// Act returns an act that charges cost units to the key under each of the
// limiter's limits, in their order: for front-ends, which have to tell what each
// limit said. The caller may change the act, and has it decided by
// [Limiter.Take].
func (l *Limiter) Act(kind Kind, key string, cost int64) *Act {
	a := &Act{Kind: kind, Charges: make([]Charge, len(l.limits)), Decisions: make([]Decision, len(l.limits))}
	l.charge(a.Charges, key, cost)
	return a
}

// Take has acts decided by the limiter's store, which makes the limiter a
// [Taker].
func (l *Limiter) Take(ctx context.Context, acts []*Act) { l.taker.Take(ctx, acts) }
