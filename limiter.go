package weir

import (
	"context"
	"strconv"
	"strings"
	"sync"
)

// A Limiter applies one or several limits to keys. It is safe for concurrent use.
// Create it with NewLimiter.
type Limiter struct {
	taker  Taker
	limits []*Limit
	// suffix follows the key of each limit; nil for a single limit without a name.
	suffix []string
	// suffixes is how many bytes those have together.
	suffixes int
	// maxCost is the largest cost that needs no validation: of all limits; -1 if one is
	// a concurrency limit.
	maxCost int64
	calls   sync.Pool
}

// NewLimiter returns a Limiter that asks the taker. With several limits a charge
// is made under all of them or under none. The Name of a limit is part of its keys, so
// that limits share a key's budget over several Limiters and processes if they have equal
// names. Limits without a name go by their place in the list, a single one by the key
// alone. The error is an [*InvalidError].
func NewLimiter(taker Taker, limits ...Limit) (*Limiter, error) {
	if taker == nil {
		return nil, invalid("taker", "nil", "a store")
	}
	if len(limits) == 0 || len(limits) > MaxCharges {
		return nil, invalid("limits", len(limits), "1 … "+strconv.Itoa(MaxCharges)+" limits")
	}
	l := &Limiter{taker: taker, maxCost: MaxCost}
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
		if limit.Algorithm.Traits().HoldsSlots {
			l.maxCost = -1
		}
		if len(limits) > 1 || limit.Name != "" {
			l.suffix = append(l.suffix, "#"+name)
			l.suffixes += len(name) + 1
		}
	}
	l.calls.New = func() any { return newCall(len(limits)) }
	return l, nil
}

// A call is the reusable memory of one act, with room for one charge inline.
type call struct {
	act      Act
	acts     [1]*Act // the act, as Take wants it
	charge   [1]Charge
	decision [1]Decision
}

func newCall(limits int) *call {
	c := new(call)
	c.acts[0] = &c.act
	c.act.Charges, c.act.Decisions = c.charge[:], c.decision[:]
	if limits > 1 {
		c.act.Charges, c.act.Decisions = make([]Charge, limits), make([]Decision, limits)
	}
	return c
}

// begin returns an act about a key. end takes it back.
func (l *Limiter) begin(kind Kind, key string, cost int64) *call {
	c := l.calls.Get().(*call)
	c.act.Kind, c.act.checked = kind, false
	l.charge(c.act.Charges, key, cost)
	return c
}

func (l *Limiter) end(c *call) {
	a := &c.act
	a.ID, a.NewID, a.Hold, a.MaxWait, a.Immediate, a.Err = "", false, 0, 0, false, nil
	for i := range a.Charges {
		a.Charges[i].UpTo, a.Charges[i].At, a.Charges[i].Delay = 0, 0, 0
	}
	l.calls.Put(c)
}

// charge fills in a charge for each limit.
func (l *Limiter) charge(charges []Charge, key string, cost int64) {
	for i, limit := range l.limits {
		c := &charges[i]
		c.Key, c.HashTag, c.Limit, c.Cost = key, key, limit, cost
	}
	if l.suffix != nil {
		l.nameKeys(charges, key)
	}
}

// nameKeys gives each limit a key of its own: pieces of one string.
func (l *Limiter) nameKeys(charges []Charge, key string) {
	var text strings.Builder
	text.Grow(l.suffixes + len(key)*len(charges))
	for _, suffix := range l.suffix {
		text.WriteString(key)
		text.WriteString(suffix)
	}
	keys := text.String()
	for i, suffix := range l.suffix {
		end := len(key) + len(suffix)
		charges[i].Key, keys = keys[:end], keys[end:]
	}
}

// ask has the act decided and copies the strictest limit's decision, with the longest
// delay of all, to d.
func (l *Limiter) ask(ctx context.Context, c *call, d *Decision) error {
	l.taker.Take(ctx, c.acts[:])
	if c.act.Err != nil {
		return c.act.Err
	}
	decisions := c.act.Decisions
	if len(decisions) == 1 {
		*d = decisions[0]
		return nil
	}
	*d = decisions[Strictest(c.act.Charges, decisions)]
	for i := range decisions {
		d.Delay = max(d.Delay, decisions[i].Delay)
	}
	return nil
}

// askRefund has an act decided that gives units back, and returns how many went back
// under every limit.
func (l *Limiter) askRefund(ctx context.Context, c *call) (int64, error) {
	var d Decision
	if err := l.ask(ctx, c, &d); err != nil {
		return 0, err
	}
	for i := range c.act.Decisions {
		d.Granted = min(d.Granted, c.act.Decisions[i].Granted)
	}
	return d.Granted, nil
}

// Allow charges one unit and returns the decision of the strictest limit; its
// Delay is the longest of all limits'. A refusal is a decision; the error says
// that none was reached.
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.takeUpTo(ctx, key, 1, 0)
}

// AllowN charges n units, all or none; 0 is a peek.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Decision, error) {
	return l.takeUpTo(ctx, key, n, 0)
}

// AllowUpTo charges as many units as fit, at most n; Granted says how many. It
// is refused if not even one fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, n int64) (Decision, error) {
	return l.takeUpTo(ctx, key, 1, n)
}

// AllowOnce is AllowN for callers that may have to ask again, such as after an
// [ErrAmbiguous]: it happens once for each id. A repeat gets the first answer,
// granted or refused, and charges nothing. The id, 1 … [MaxIDBytes] bytes, is
// remembered for [IDLife]; a repeat with another n is an [ErrIDReused].
func (l *Limiter) AllowOnce(ctx context.Context, key string, n int64, id string) (d Decision, err error) {
	if id == "" {
		return Decision{}, invalid("id", "missing", "an id that a repeat has too")
	}
	c := l.begin(KindTake, key, n)
	defer l.end(c)
	c.act.ID = id
	err = l.ask(ctx, c, &d)
	return d, err
}

// Peek charges nothing and says what remains.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 0)
}

func (l *Limiter) takeUpTo(ctx context.Context, key string, cost, upTo int64) (d Decision, err error) {
	c := l.begin(KindTake, key, cost)
	if upTo != 0 {
		for i := range c.act.Charges {
			c.act.Charges[i].UpTo = upTo
		}
	} else {
		c.act.checked = cost >= 0 && cost <= l.maxCost && len(key) <= MaxKeyBytes-l.suffixes
	}
	if err = l.ask(ctx, c, &d); err != nil || upTo != 0 {
		l.end(c)
	} else {
		l.calls.Put(c) // without end: no option was set
	}
	return d, err
}

// Refund gives back n of the units that an Allow, AllowN or AllowUpTo granted,
// whose decision this is, and returns how many each limit has room for again at
// least: what has drained or left its window since is not given back twice. It
// does not know of earlier refunds of the same decision. Reservations and
// holdings have methods of their own for this; places of a concurrency limit are
// held, and cannot be refunded.
func (l *Limiter) Refund(ctx context.Context, key string, d Decision, n int64) (given int64, err error) {
	if n < 0 || n > d.Granted {
		return 0, invalid("n", n, "0 … "+strconv.FormatInt(d.Granted, 10)+", what the decision granted")
	}
	c := l.begin(KindRefund, key, n)
	defer l.end(c)
	for i := range c.act.Charges {
		charge := &c.act.Charges[i]
		charge.At = d.At
		// Of several limits only leaky_bucket delays what is not booked.
		if len(l.limits) == 1 || charge.Limit.Algorithm.Traits().Delays {
			charge.Delay = d.Delay
		}
	}
	return l.askRefund(ctx, c)
}

// Reset makes the key as fresh as one never used, under every limit.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	c := l.begin(KindReset, key, 0)
	defer l.end(c)
	var d Decision
	return l.ask(ctx, c, &d)
}

// Act returns an act that charges cost units to the key under each of the
// limiter's limits, in their order: for callers that need the decision of each limit.
// The caller may change the act, and has it decided by [Limiter.Take].
func (l *Limiter) Act(kind Kind, key string, cost int64) *Act {
	a := &Act{Kind: kind, Charges: make([]Charge, len(l.limits)), Decisions: make([]Decision, len(l.limits))}
	l.charge(a.Charges, key, cost)
	return a
}

// Take has acts decided by the limiter's store, which makes the limiter a
// [Taker].
func (l *Limiter) Take(ctx context.Context, acts []*Act) { l.taker.Take(ctx, acts) }
