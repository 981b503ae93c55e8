package weir

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirlimit/weir/internal/algo"
)

// A Limiter applies one or several limits to keys. It is safe for concurrent use.
// Create it with NewLimiter.
type Limiter struct {
	taker Taker
	// one is the taker if it can decide a single charge without an act; else nil.
	one    oneTaker
	limits []*Limit
	// prefixes begin the keys of each limit: the names of the limiter and of the limit.
	prefixes []string
	// class is the class of shares that the limiter is for; empty for none.
	class string
	// prefixBytes is how many bytes those have together.
	prefixBytes int
	// options are those of the limits' charges; nil if none has any.
	options []chargeOptions
	// maxCost is the largest cost that needs no validation: of all limits; -1 if one is
	// a concurrency limit or has options.
	maxCost int64
	// slots reports whether one of the limits is a concurrency limit.
	slots bool
	// parts are what each charge is a part of; only for a [Joint].
	parts []element
	calls sync.Pool
}

// chargeOptions are the Keep, the Alt and the Guaranteed of charges.
type chargeOptions struct {
	keep       int64
	alt        uint8
	guaranteed bool
}

// NewLimiter returns a Limiter of that name that uses the store. With several limits, a
// charge is made under all of them or under none.
//
// The name begins every key in the store, so two limiters share a budget only if they have
// the same name, in this process or in another one. It is not empty and has no ":" or "#".
// The keys of a limit also have its Name or, if it has none, its position among several
// limits: NAME:KEY, or NAME#LIMIT:KEY. The error is an [*InvalidError].
func NewLimiter(store Taker, name string, limits ...Limit) (*Limiter, error) {
	if store == nil {
		return nil, invalid("store", "nil", "a store in memory or in Redis")
	}
	if err := checkName(name, ":#"); err != nil {
		return nil, err
	}
	if len(limits) == 0 || len(limits) > MaxCharges {
		return nil, invalid("limits", len(limits), "1 … "+strconv.Itoa(MaxCharges)+" limits")
	}
	l := &Limiter{taker: store, maxCost: MaxCost}
	names := make(map[string]bool)
	for i, limit := range limits {
		compiled, err := limit.Compile()
		if err != nil {
			return nil, err
		}
		own := cmp.Or(limit.Name, strconv.Itoa(i))
		if err := checkName(own, ":"); err != nil {
			return nil, err
		}
		if names[own] {
			return nil, invalid("name", quoted(own), "a name for each limit that no other has")
		}
		names[own] = true
		l.limits = append(l.limits, compiled)
		if algo.TraitsOf(limit.Algorithm).HoldsSlots {
			l.maxCost, l.slots = -1, true
		}
		prefix := name + "#" + own + ":"
		if len(limits) == 1 && limit.Name == "" {
			prefix = name + ":"
		}
		l.prefixes = append(l.prefixes, prefix)
		l.prefixBytes += len(prefix)
	}
	if len(limits) == 1 && limits[0].Count > 0 {
		l.one, _ = store.(oneTaker)
	}
	l.calls.New = func() any { return newCall(len(limits)) }
	return l, nil
}

// checkName refuses the name of a limiter or limit that could be confused with the rest
// of a key.
func checkName(name, without string) error {
	if name == "" || strings.ContainsAny(name, without) {
		return invalid("name", quoted(name), `a name without any of "`+without+`"`)
	}
	return nil
}

// Keeping returns a Limiter of the same limits and keys that leaves that many more units of
// each limit to other callers, see [Charge.Keep]: its takes are granted only if these units
// are still free afterwards. A limit whose burst is not larger than units refuses each of them,
// with [Never] as its RetryAfter. Its takes cannot be booked ahead, so WaitN tries again after a
// refusal.
func (l *Limiter) Keeping(units int64) *Limiter {
	k := l.with(l.limits, l.prefixes, l.chargeOptions())
	for i := range k.options {
		k.options[i].keep += units
		k.options[i].guaranteed = false
	}
	return k
}

// Otherwise returns a Limiter with two alternatives: it charges all limits of l or, if
// these have no room, all limits of other, see [Charge.Alt]. Its decisions say which of
// the two decided, see [Decision.Alternative]. The error is an [*InvalidError] if the two
// use different stores, or if different limits would have the same keys.
func (l *Limiter) Otherwise(other *Limiter) (*Limiter, error) {
	if reflect.ValueOf(l.taker).Comparable() && l.taker != other.taker {
		return nil, invalid("store", fmt.Sprintf("another %T", other.taker), "the same store for both limiters")
	}
	if n := len(l.limits) + len(other.limits); n > MaxCharges {
		return nil, invalid("limits", n, "1 … "+strconv.Itoa(MaxCharges)+" limits")
	}
	options := append(l.chargeOptions(), other.chargeOptions()...)
	for i, limit := range other.limits {
		options[len(l.limits)+i].alt += options[len(l.limits)-1].alt + 1
		for j, own := range l.limits {
			if l.prefixes[j] == other.prefixes[i] && !own.Alike(limit) {
				return nil, invalid("name", quoted(strings.TrimSuffix(l.prefixes[j], ":")), "another name for the limiter or the limit")
			}
		}
	}
	return l.with(append(slices.Clip(l.limits), other.limits...), append(slices.Clip(l.prefixes), other.prefixes...), options), nil
}

// with returns a Limiter of limits with options that uses the same taker.
func (l *Limiter) with(limits []*Limit, prefixes []string, options []chargeOptions) *Limiter {
	n := &Limiter{taker: l.taker, limits: limits, prefixes: prefixes, class: l.class, options: options, maxCost: -1}
	for i, p := range prefixes {
		n.prefixBytes += len(p)
		n.slots = n.slots || algo.TraitsOf(limits[i].Algorithm).HoldsSlots
	}
	n.calls.New = func() any { return newCall(len(limits)) }
	return n
}

func (l *Limiter) chargeOptions() []chargeOptions {
	if l.options == nil {
		return make([]chargeOptions, len(l.limits))
	}
	return slices.Clone(l.options)
}

// A call is the reusable memory of one act, with room for one charge inline.
type call struct {
	act      Act
	acts     [1]*Act // the act, as Take wants it
	key      string  // the key that the charges are named after; a hot key is named once
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
	l.charge(kind, c.act.Charges, key, cost)
	if c.key != key || c.act.Charges[0].Key == "" {
		l.nameKeys(c.act.Charges, key)
		c.key = key
	}
	return c
}

func (l *Limiter) end(c *call) {
	c.act = Act{Charges: c.act.Charges, Decisions: c.act.Decisions}
	for i := range c.act.Charges {
		c.act.Charges[i] = Charge{Key: c.act.Charges[i].Key}
	}
	l.calls.Put(c)
}

// charge fills in a charge for each limit, except for its Key.
func (l *Limiter) charge(kind Kind, charges []Charge, key string, cost int64) {
	for i, limit := range l.limits {
		c := &charges[i]
		c.HashTag, c.Limit, c.Cost = key, limit, cost
	}
	for i, o := range l.options {
		c := &charges[i]
		c.Keep, c.Alt, c.Guaranteed = o.keep, o.alt, o.guaranteed
		switch kind {
		case kindReset:
			c.Keep, c.Alt = 0, 0 // all of them
		case kindRecord:
			c.Keep = 0
		}
	}
	for i, p := range l.parts {
		c := &charges[i]
		c.HashTag, c.Cost, c.Group = p.key, cost*p.units, p.number
	}
}

// checkUnits refuses to charge n units under a concurrency limit, whose slots have to be
// released.
func (l *Limiter) checkUnits(n int64) error {
	if !l.slots || n <= 0 {
		return nil
	}
	for i, limit := range l.limits {
		if algo.TraitsOf(limit.Algorithm).HoldsSlots && (l.parts == nil || l.parts[i].units > 0) {
			return invalid("algorithm", limit.Algorithm, "one that counts units; use Hold for slots, which takes and releases them")
		}
	}
	return nil
}

// nameKeys gives each limit a key of its own: pieces of one string.
func (l *Limiter) nameKeys(charges []Charge, key string) {
	var text strings.Builder
	text.Grow(l.prefixBytes + len(key)*len(charges))
	for _, prefix := range l.prefixes {
		text.WriteString(prefix)
		text.WriteString(key)
	}
	keys := text.String()
	for i, prefix := range l.prefixes {
		end := len(prefix) + len(key)
		charges[i].Key, keys = keys[:end], keys[end:]
	}
}

// ask decides the act and copies its verdict to d, with what remains of all alternatives.
func (l *Limiter) ask(ctx context.Context, c *call, d *Decision) error {
	l.taker.Take(ctx, c.acts[:])
	if c.act.Err != nil {
		return c.act.Err
	}
	if c.act.verdict(d); l.options != nil && len(c.act.Decisions) > 1 {
		d.Remaining = c.act.Remaining()
	}
	return nil
}

// askRefund decides an act that refunds units, and returns the number that was refunded
// under every limit.
func (l *Limiter) askRefund(ctx context.Context, c *call) (int64, error) {
	var d Decision
	if err := l.ask(ctx, c, &d); kept(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	for i := range c.act.Decisions {
		d.Granted = min(d.Granted, c.act.Decisions[i].Granted)
	}
	return d.Granted, nil
}

// Allow charges one unit and returns the decision of the strictest limit, which is its
// Limit. Its Delay is the longest of all limits. A refusal is a decision; an error means
// that no decision was reached. Slots of a concurrency limit are held, see [Limiter.Hold].
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN charges n units, all or none; 0 is a peek.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (d Decision, err error) {
	if l.one != nil && n >= 0 && n <= l.maxCost && len(key) <= MaxKeyBytes-l.prefixBytes {
		var decided bool
		if d, decided = l.one.TakeOne(l.prefixes[0], key, l.limits[0], n); decided {
			return d, nil
		}
	}
	return l.takeUpTo(ctx, key, n, 0)
}

// AllowUpTo charges as many units as fit, at most n; Granted is their number. It
// is refused if not even one unit fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, n int64) (Decision, error) {
	return l.takeUpTo(ctx, key, 1, n)
}

// AllowOnce is like AllowN, but happens once for each id of the key, even if the limits of
// the limiter change in between. It is for callers that may have to repeat the call, for
// example after an [ErrAmbiguous]. A repeat gets the first answer, granted or refused, and
// charges nothing. The id, 1 … [MaxIDBytes] bytes, is
// remembered for ten minutes. A repeat with another n is an [ErrIDReused].
func (l *Limiter) AllowOnce(ctx context.Context, key string, n int64, id string) (d Decision, err error) {
	if id == "" {
		return Decision{}, invalid("id", "missing", "an id that a repeat has too")
	}
	c := l.begin(kindTake, key, n)
	defer l.end(c)
	c.act.ID, c.act.Scope = id, algo.Scope{Owner: l.owner(key), Asks: strconv.FormatInt(n, 10)}
	err = l.ask(ctx, c, &d)
	return d, err
}

// owner returns the limiter's name and class with a key, to which IDs belong.
func (l *Limiter) owner(key string) string {
	name, _, _ := strings.Cut(l.prefixes[0], ":")
	name, _, _ = strings.Cut(name, "#")
	if l.class != "" {
		name += "#" + l.class + "#"
	}
	return name + ":" + key
}

// Peek returns a decision that says how many units remain. It charges nothing.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 0)
}

// Would returns the decision that AllowN would return for n units now, without charging them:
// if they do not fit, its RetryAfter says when they will. Its Granted is 0. Slots of a
// concurrency limit can be asked for, one at a time.
func (l *Limiter) Would(ctx context.Context, key string, n int64) (d Decision, err error) {
	c := l.begin(kindTake, key, n)
	defer l.end(c)
	c.act.Dry = true
	err = l.ask(ctx, c, &d)
	return d, err
}

func (l *Limiter) takeUpTo(ctx context.Context, key string, cost, upTo int64) (d Decision, err error) {
	if err = l.checkUnits(cost); err != nil {
		return Decision{}, err
	}
	c := l.begin(kindTake, key, cost)
	if upTo != 0 {
		for i := range c.act.Charges {
			c.act.Charges[i].UpTo = upTo
		}
	} else {
		c.act.checked = cost >= 0 && cost <= l.maxCost && len(key) <= MaxKeyBytes-l.prefixBytes
	}
	if err = l.ask(ctx, c, &d); err != nil || upTo != 0 {
		l.end(c)
	} else {
		l.calls.Put(c) // without end: no option was set
	}
	return d, err
}

// Refund returns n of the units that an Allow, AllowN or AllowUpTo granted with this
// decision. Its result is the smallest number of units for which a limit has room again:
// units that have drained or left their window since are not refunded twice. Refund
// does not know of earlier refunds of the same decision. Reservations and
// holds have their own methods for this. Slots of a concurrency limit are
// held, and cannot be refunded.
func (l *Limiter) Refund(ctx context.Context, key string, d Decision, n int64) (given int64, err error) {
	if n < 0 || n > d.Granted {
		return 0, invalid("n", n, "0 … "+strconv.FormatInt(d.Granted, 10)+", what the decision granted")
	}
	if d.Granted > 0 && d.At.IsZero() {
		return 0, nil // no store has charged it
	}
	c := l.begin(kindRefund, key, n)
	if l.alternatives() {
		if c.choose(d.Alternative); len(c.act.Charges) == 0 {
			return 0, invalid("alternative", d.Alternative, "that of a decision of this limiter")
		}
	} else {
		defer l.end(c)
	}
	for i := range c.act.Charges {
		charge := &c.act.Charges[i]
		charge.At = d.At.UnixMicro()
		// Of several limits only leaky_bucket delays what is not booked.
		if len(c.act.Charges) == 1 || algo.TraitsOf(charge.Limit.Algorithm).Delays {
			charge.Delay = d.Delay
		}
	}
	return l.askRefund(ctx, c)
}

// alternatives reports whether the limiter has several.
func (l *Limiter) alternatives() bool {
	return slices.ContainsFunc(l.options, func(o chargeOptions) bool { return o.alt > 0 })
}

// choose leaves the charges of one alternative in the act, which cannot be reused then.
func (c *call) choose(alternative uint8) {
	c.keep(func(c *Charge) bool { return c.Alt+1 == alternative })
	for i := range c.act.Charges {
		c.act.Charges[i].Alt = 0
	}
}

// keep leaves some charges in the act, which cannot be reused if any is missing then.
func (c *call) keep(keep func(*Charge) bool) {
	a := &c.act
	a.Charges = slices.DeleteFunc(a.Charges, func(c Charge) bool { return !keep(&c) })
	a.Decisions = a.Decisions[:len(a.Charges)]
}

// Reset makes the key fresh, as if it had never been used, under every limit.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	c := l.begin(kindReset, key, 0)
	defer l.end(c)
	var d Decision
	return l.ask(ctx, c, &d)
}

// Act returns an act that charges cost units to the key under each of the
// limiter's limits, in their order. It is for callers that need the decision of each
// limit. The caller may change the act, and then calls [Limiter.Take].
func (l *Limiter) Act(kind Kind, key string, cost int64) *Act {
	a := &Act{Kind: kind, Charges: make([]Charge, len(l.limits)), Decisions: make([]Decision, len(l.limits))}
	l.charge(kind, a.Charges, key, cost)
	l.nameKeys(a.Charges, key)
	return a
}

// Take passes the acts to the limiter's Taker, so a Limiter is a [Taker], too.
func (l *Limiter) Take(ctx context.Context, acts []*Act) { l.taker.Take(ctx, acts) }
