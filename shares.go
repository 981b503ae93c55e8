package weir

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shares divide one budget among classes, such as teams or kinds of work. A class has a
// guarantee: that many units per Period are never refused to it, whatever other classes do.
// Units that a class leaves unused are lent to all. They need not be returned: a class that
// comes back after a pause is granted from its first request on. Shares are a plain value
// until [Shares.Compile] makes them ready.
//
// A charge of a class has two alternatives: the class's own limit decides, and the budget is
// charged beside it, see [Charge.Guaranteed]; or else the budget decides alone, if
// [Shares.Keep] units of it stay free. In any Period, all classes together get and keep at
// most the Burst and the Count of the Limit, unless a settlement charges more than its hold
// or the shares change. A class that is alone gets the whole Count in the long run.
type Shares struct {
	// Limit is the budget: gcra, without ChargeRefused. Its Name is part of the keys.
	Limit Limit
	// Guarantees has the units per Period of the Limit for each class; together they are
	// at most its Count. Classes that are not listed have no guarantee. Names must not
	// contain "#".
	Guarantees map[string]int64
	// Headroom is the part of the Burst that is reserved for guarantees. At one instant, a
	// class may be charged its part of it, which is the Burst of its own limit. Zero: a
	// fifth of the Burst, rounded up.
	Headroom int64

	pool    *Limit
	classes map[string]*Limit
	keep    int64
}

// Compile validates the shares and returns them ready for use. The error is an
// [*InvalidError].
func (s Shares) Compile() (*Shares, error) {
	limit := s.Limit
	switch {
	case limit.Algorithm != GCRA:
		return nil, invalid("algorithm", limit.Algorithm, "gcra: guarantees need a budget that drains continuously")
	case limit.ChargeRefused:
		return nil, invalid("charge_refused", true, "false: a budget with shares keeps units free")
	case limit.Block != 0:
		return nil, invalid("block", limit.Block, "none: the classes of a budget with shares have keys in common")
	case limit.Count == 0:
		return nil, invalid("count", 0, "at least 1, to be shared")
	}
	limit.shares, limit.class = &s, ""
	pool, err := limit.Compile()
	if err != nil {
		return nil, err
	}
	s.pool, s.Guarantees = pool, maps.Clone(s.Guarantees)
	if s.Headroom == 0 {
		s.Headroom = (pool.Burst + 4) / 5
	}
	if s.Headroom < 0 || s.Headroom > pool.Burst {
		return nil, &InvalidError{
			Field: "headroom", Value: strconv.FormatInt(s.Headroom, 10), Beside: "burst",
			Want: fmt.Sprintf("1 … %d", pool.Burst), Default: "a fifth of the burst",
		}
	}
	if err := s.split(); err != nil {
		return nil, err
	}
	return &s, nil
}

// split makes the limits of the classes and sums up what has to stay free for them.
func (s *Shares) split() error {
	s.classes, s.keep = make(map[string]*Limit), 0
	sum, coarsest, equal := int64(0), s.pool.rule.Tick, true
	for _, name := range slices.Sorted(maps.Keys(s.Guarantees)) {
		units := s.Guarantees[name]
		if name == "" || strings.Contains(name, "#") {
			return invalid("guarantee", quoted(name), `a name of the class, without "#"`)
		}
		if units < 1 || units > s.pool.Count-sum {
			return invalid("guarantee", strconv.FormatInt(units, 10)+" of "+quoted(name),
				"1 … "+strconv.FormatInt(s.pool.Count-sum, 10)+": all guarantees together at most "+strconv.FormatInt(s.pool.Count, 10))
		}
		sum += units
		class := Limit{Name: name, Count: units, Period: s.pool.Period, Burst: part(s.Headroom, units, s.pool.Count), shares: s, class: name}
		compiled, err := class.Compile()
		if err != nil { // the numbers are in range, but not counted exactly
			return invalid("guarantee", strconv.FormatInt(units, 10)+" of "+quoted(name),
				"a rounder number, or a smaller headroom: this one cannot be counted exactly")
		}
		s.classes[name] = compiled
		s.keep += compiled.Burst
		equal, coarsest = equal && compiled.rule.Tick == s.pool.rule.Tick, max(coarsest, compiled.rule.Tick)
	}
	if !equal {
		// Limits of different resolutions are up to a tick apart.
		s.keep += 2 * part(s.pool.Count, coarsest, s.pool.rule.Period)
	}
	if s.keep >= s.pool.Burst {
		return invalidBeside("headroom", s.Headroom, "guarantee", "less, or a larger burst: the guarantees need "+strconv.FormatInt(s.keep, 10)+
			" units, which leaves nothing of the burst of "+strconv.FormatInt(s.pool.Burst, 10)+" to lend")
	}
	return nil
}

// part is a·b/c, rounded up.
func part(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	quotient, rest := bits.Div64(high, low, uint64(c))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// Divide returns the shares that each of n instances can apply alone. Added up over the
// instances, the budget and guarantees do not exceed these shares. The result has its own
// Keep, so guarantees hold on each instance. Even a small guarantee keeps its rate, because
// its units are counted over a longer Period. Divide returns nil if the instance's part of
// the Burst is too small to keep one unit free for each class, so that nothing can be
// guaranteed. For layers.
func (s *Shares) Divide(n int) *Shares {
	if n <= 1 {
		return s
	}
	periods := min(int64(n), int64(maxPeriod/s.pool.Period))
	scale := func(units int64) int64 { return units * periods / int64(n) }
	own := Shares{Limit: *s.pool, Guarantees: make(map[string]int64, len(s.Guarantees))}
	own.Limit.Count, own.Limit.Period = scale(s.pool.Count), s.pool.Period*time.Duration(periods)
	if own.Limit.Burst /= int64(n); own.Limit.Burst == 0 {
		return nil
	}
	for class, units := range s.Guarantees {
		own.Guarantees[class] = scale(units)
	}
	// Of a smaller headroom, less is lost by rounding up the part of each class.
	for own.Headroom = part(s.Headroom, 1, int64(n)); own.Headroom > 0; own.Headroom /= 2 {
		if compiled, err := own.Compile(); err == nil {
			return compiled
		}
	}
	return nil
}

// Pool returns the budget, ready for charges.
func (s *Shares) Pool() *Limit { return s.pool }

// Class returns the limit for the guarantee of a class, or nil if it has none.
func (s *Shares) Class(name string) *Limit { return s.classes[name] }

// Keep returns the number of units of the budget that charges without a guarantee must
// leave free.
func (s *Shares) Keep() int64 { return s.keep }

// Limiter returns the Limiter of that name for a class. Its alternatives are the class's
// guarantee and the rest of the budget. Its keys name budgets. All classes of a budget have
// the same name; the rules for it are those of [NewLimiter], and under another name every
// call returns an [*InvalidError]. A cost above the Burst of the class's limit has no
// guarantee. A Limiter is cheap to make, so you can make one for each request.
func (s *Shares) Limiter(store Taker, name, class string) *Limiter {
	l := &Limiter{taker: store}
	if err := checkName(name, ":#"); err != nil {
		l.taker = failing{err}
	}
	if s.Limit.Name != "" {
		name += "#" + s.Limit.Name
	}
	pool := name + "##pool:" // no class has an empty name
	if own := s.classes[class]; own != nil {
		l = l.with([]*Limit{own, s.pool, s.pool}, []string{name + "#" + class + "#share:", pool, pool}, []chargeOptions{{}, {guaranteed: true}, {keep: s.keep, alt: 1}})
	} else {
		l = l.with([]*Limit{s.pool}, []string{pool}, []chargeOptions{{keep: s.keep}})
	}
	l.class = class
	return l
}

// failing is the Taker of a limiter that cannot work.
type failing struct{ err error }

// Take reports the error of the limiter for each act.
func (f failing) Take(_ context.Context, acts []*Act) {
	for _, a := range acts {
		a.Err = f.err
	}
}
