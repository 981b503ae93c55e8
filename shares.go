package weir

import (
	"context"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Shares divide one budget among classes, such as teams or kinds of work. A class has a
// guarantee: so many units per Period are never refused to it, whatever the others do.
// Units that a class leaves unused are lent to all, and need not be taken back: a class that
// returns is granted from its first request on. Shares are a plain value until
// [Shares.Compile] makes them ready.
//
// A charge of a class has two alternatives: the budget and the class's own limit, or else
// the budget alone, if [Shares.Keep] units of it stay free. In any Period, all classes
// together get at most the Burst and the Count of the Limit. A class that is alone gets the
// whole Count in the long run.
type Shares struct {
	// Limit is the budget: gcra, without ChargeRefused. Its Name is part of the keys.
	Limit Limit
	// Guarantees are units per Period of the Limit, by class; together at most its Count.
	// Classes that are not listed have none. A name has no "#".
	Guarantees map[string]int64
	// Headroom is how much of the Burst is for the guarantees alone: a class may be charged
	// its part of it at one instant, the Burst of its own limit. Zero: a fifth, rounded up.
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
	case limit.Count == 0:
		return nil, invalid("count", 0, "at least 1, to be shared")
	}
	pool, err := limit.Compile()
	if err != nil {
		return nil, err
	}
	s.pool, s.Guarantees = pool, maps.Clone(s.Guarantees)
	if s.Headroom == 0 {
		s.Headroom = (pool.Burst + 4) / 5
	}
	if s.Headroom < 0 || s.Headroom > pool.Burst {
		return nil, invalid("headroom", s.Headroom, "1 … "+strconv.FormatInt(pool.Burst, 10)+", the burst, or 0 for a fifth of it")
	}
	if err := s.divide(); err != nil {
		return nil, err
	}
	return &s, nil
}

// divide makes the limits of the classes and sums up what has to stay free for them.
func (s *Shares) divide() error {
	s.classes, s.keep = make(map[string]*Limit), 0
	sum, coarsest, equal := int64(0), s.pool.rule.Tick, true
	for _, name := range slices.Sorted(maps.Keys(s.Guarantees)) {
		units := s.Guarantees[name]
		if name == "" || strings.Contains(name, "#") {
			return invalid("guarantee", quoted(name), `a name of the class, without "#"`)
		}
		if units < 1 || units > s.pool.Count-sum {
			return invalid("guarantee", strconv.FormatInt(units, 10)+" of "+quoted(name),
				"1 … "+strconv.FormatInt(s.pool.Count-sum, 10)+": all guarantees together at most the count")
		}
		sum += units
		class := Limit{Name: name, Count: units, Period: s.pool.Period, Burst: part(s.Headroom, units, s.pool.Count), guarantee: true}
		compiled, err := class.Compile()
		if err != nil {
			return err
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
		return invalid("headroom", s.Headroom, "less, or a larger burst: the guarantees need "+strconv.FormatInt(s.keep, 10)+
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

// Pool returns the budget, ready for charges.
func (s *Shares) Pool() *Limit { return s.pool }

// Class returns the limit of what is guaranteed to a class; nil if nothing is.
func (s *Shares) Class(name string) *Limit { return s.classes[name] }

// Keep returns how many units of the budget stay free of charges without a guarantee.
func (s *Shares) Keep() int64 { return s.keep }

// Charges returns the charges of a class for an act: two alternatives, or one if the class
// has no guarantee. The key names the budget. A cost above the Burst of the class's limit
// has no guarantee.
func (s *Shares) Charges(key, class string, cost int64) []Charge {
	suffix := "#"
	if s.Limit.Name != "" {
		suffix = "#" + s.Limit.Name + "#"
	}
	pool := Charge{Key: key + suffix + "pool", HashTag: key, Limit: s.pool, Cost: cost}
	kept := pool
	kept.Keep, kept.Alt = s.keep, 1
	own := s.classes[class]
	if own == nil {
		kept.Alt = 0
		return []Charge{kept}
	}
	return []Charge{{Key: key + suffix + class + "#share", HashTag: key, Limit: own, Cost: cost}, pool, kept}
}

// Act returns an act that takes cost units for a class. Its first alternative is the
// guarantee.
func (s *Shares) Act(key, class string, cost int64) *Act {
	charges := s.Charges(key, class, cost)
	return &Act{Charges: charges, Decisions: make([]Decision, len(charges))}
}

// AllowN charges n units for a class, all or none; 0 is a peek. It returns the decision of
// the alternative that was granted, or of the one that will be first; its Remaining is
// what the class could still take of that one.
func (s *Shares) AllowN(ctx context.Context, taker Taker, key, class string, n int64) (Decision, error) {
	a := s.Act(key, class, n)
	taker.Take(ctx, []*Act{a})
	if a.Err != nil {
		return Decision{}, a.Err
	}
	d := a.Decisions[Strictest(a.Charges, a.Decisions)]
	d.Remaining = a.Remaining()
	return d, nil
}
