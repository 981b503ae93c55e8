package weir

import (
	"context"
	"strconv"
	"sync"
)

// A Limiter applies one or several limits to keys: what a program holds. It is
// safe for concurrent use. Create it with NewLimiter.
type Limiter struct {
	taker  Taker
	limits []*Limit
	suffix []string // what tells the limits' keys apart
	calls  sync.Pool
}

// NewLimiter returns a Limiter that asks the taker. With several limits a charge
// is made under all of them or under none. Limits that share a key's budget over
// several Limiters and processes have equal names, or none and equal places in
// the list. The error is an [*InvalidError].
func NewLimiter(taker Taker, limits ...Limit) (*Limiter, error) {
	if taker == nil {
		return nil, invalid("taker", "nil", "a store")
	}
	if len(limits) == 0 || len(limits) > MaxCharges {
		return nil, invalid("limits", len(limits), "1 … "+strconv.Itoa(MaxCharges)+" limits")
	}
	l := &Limiter{taker: taker}
	names := make(map[string]bool)
	for i, limit := range limits {
		compiled, err := limit.Compile()
		if err != nil {
			return nil, err
		}
		name := limit.Name
		if name == "" {
			name = strconv.Itoa(i)
		}
		if names[name] {
			return nil, invalid("name", quoted(name), "a name for each limit that no other has")
		}
		names[name] = true
		l.limits = append(l.limits, compiled)
		l.suffix = append(l.suffix, "#"+name)
	}
	l.calls.New = func() any { return l.newCall() }
	return l, nil
}

// call is the memory of one question.
type call struct {
	act  Act
	acts [1]*Act
}

func (l *Limiter) newCall() *call {
	c := &call{act: Act{Charges: make([]Charge, len(l.limits)), Decisions: make([]Decision, len(l.limits))}}
	c.acts[0] = &c.act
	for i, limit := range l.limits {
		c.act.Charges[i].Limit = limit
	}
	return c
}

// Allow charges one unit and returns the decision of the strictest limit. A
// refusal is a decision; the error says that none was reached.
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.take(ctx, key, 1, 0)
}

// AllowN charges n units, all or none; 0 looks.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Decision, error) {
	return l.take(ctx, key, n, 0)
}

// AllowUpTo charges as many units as fit, at most n; Granted says how many. It
// is refused if not even one fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, n int64) (Decision, error) {
	return l.take(ctx, key, 1, n)
}

// Look charges nothing and says what remains.
func (l *Limiter) Look(ctx context.Context, key string) (Decision, error) {
	return l.take(ctx, key, 0, 0)
}

func (l *Limiter) take(ctx context.Context, key string, cost, upTo int64) (Decision, error) {
	c := l.calls.Get().(*call)
	defer l.calls.Put(c)
	for i := range c.act.Charges {
		charge := &c.act.Charges[i]
		charge.Key, charge.Slot, charge.Cost, charge.UpTo = key, key, cost, upTo
		if len(l.limits) > 1 {
			charge.Key = key + l.suffix[i]
		}
	}
	l.taker.Take(ctx, c.acts[:])
	if c.act.Err != nil {
		return Decision{}, c.act.Err
	}
	return c.act.Decisions[Strictest(c.act.Charges, c.act.Decisions)], nil
}
