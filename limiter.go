package weir

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Limiter applies one or several limits to keys: what a program holds. It is
// safe for concurrent use. Create it with NewLimiter.
type Limiter struct {
	taker  Taker
	limits []*Limit
	suffix []string // what tells the limits' keys apart
	// suffixes is how many bytes those have together.
	suffixes int
	calls    sync.Pool
	one      oneTaker // nil if only acts will do
}

// A oneTaker decides a take of one key without an act around it, as internal/quick
// says. It answers NotEvaluated where only Take can. A Decision is more than fits into
// registers with ease: its parts are quicker.
type oneTaker interface {
	TakeOne(limit *Limit, key string, cost int64) (
		outcome Outcome, source Source, remaining int64, wait, reset time.Duration, at int64)
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
		l.suffixes += len(name) + 1
	}
	if len(limits) == 1 {
		l.one, _ = taker.(oneTaker)
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
	return c
}

// begin prepares a question about a key. Its memory goes back to l.calls.
func (l *Limiter) begin(kind Kind, key string, cost int64) *call {
	c := l.calls.Get().(*call)
	c.act = Act{Kind: kind, Charges: c.act.Charges, Decisions: c.act.Decisions}
	l.charge(c.act.Charges, key, cost)
	return c
}

// charge fills in a charge for each limit.
func (l *Limiter) charge(charges []Charge, key string, cost int64) {
	for i, limit := range l.limits {
		charges[i] = Charge{Key: key, HashTag: key, Limit: limit, Cost: cost}
	}
	if len(l.limits) > 1 {
		l.tellApart(charges, key)
	}
}

// tellApart gives each limit a key of its own: pieces of one string.
func (l *Limiter) tellApart(charges []Charge, key string) {
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

// ask puts the question. The strictest limit answers, with the longest delay of
// all.
func (l *Limiter) ask(ctx context.Context, c *call) (Decision, error) {
	l.taker.Take(ctx, c.acts[:])
	if c.act.Err != nil {
		return Decision{}, c.act.Err
	}
	d := c.act.Decisions[Strictest(c.act.Charges, c.act.Decisions)]
	for i := range c.act.Decisions {
		d.Delay = max(d.Delay, c.act.Decisions[i].Delay)
	}
	return d, nil
}

// give asks a question that gives back, and returns how much was given back
// under every limit.
func (l *Limiter) give(ctx context.Context, c *call) (int64, error) {
	if _, err := l.ask(ctx, c); err != nil {
		return 0, err
	}
	given := c.act.Decisions[0].Granted
	for i := range c.act.Decisions {
		given = min(given, c.act.Decisions[i].Granted)
	}
	return given, nil
}

// Allow charges one unit and returns the decision of the strictest limit; its
// Delay is the longest of all limits'. A refusal is a decision; the error says
// that none was reached.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	if !l.takeOne(key, 1, &d) {
		d, err = l.takeUpTo(ctx, key, 1, 0)
	}
	return d, err
}

// AllowN charges n units, all or none; 0 looks.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (d Decision, err error) {
	if !l.takeOne(key, n, &d) {
		d, err = l.takeUpTo(ctx, key, n, 0)
	}
	return d, err
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
func (l *Limiter) AllowOnce(ctx context.Context, key string, n int64, id string) (Decision, error) {
	if id == "" {
		return Decision{}, invalid("id", "missing", "an id that a repeat has too")
	}
	c := l.begin(KindTake, key, n)
	defer l.calls.Put(c)
	c.act.ID = id
	return l.ask(ctx, c)
}

// Peek charges nothing and says what remains.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 0)
}

// takeOne asks the store without an act, if it can be asked so.
func (l *Limiter) takeOne(key string, cost int64, d *Decision) bool {
	if l.one == nil {
		return false
	}
	outcome, source, remaining, wait, reset, at := l.one.TakeOne(l.limits[0], key, cost)
	if outcome == NotEvaluated {
		return false
	}
	d.Outcome, d.Source, d.Remaining, d.ResetAfter, d.At = outcome, source, remaining, reset, at
	if outcome == Granted {
		d.Granted, d.Delay = cost, wait
	} else {
		d.RetryAfter = wait
	}
	return true
}

func (l *Limiter) takeUpTo(ctx context.Context, key string, cost, upTo int64) (Decision, error) {
	c := l.begin(KindTake, key, cost)
	defer l.calls.Put(c)
	for i := range c.act.Charges {
		c.act.Charges[i].UpTo = upTo
	}
	return l.ask(ctx, c)
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
	defer l.calls.Put(c)
	for i := range c.act.Charges {
		charge := &c.act.Charges[i]
		charge.At = d.At
		// Of several limits only leaky_bucket delays what is not booked.
		if len(l.limits) == 1 || charge.Limit.Algorithm == LeakyBucket {
			charge.Delay = d.Delay
		}
	}
	return l.give(ctx, c)
}

// Reset makes the key as fresh as one never used, under every limit.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	c := l.begin(KindReset, key, 0)
	defer l.calls.Put(c)
	_, err := l.ask(ctx, c)
	return err
}
