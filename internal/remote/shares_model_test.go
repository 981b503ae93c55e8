package remote_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// sharedBudgets test a Taker with random budgets that classes share, and with arrivals
// that try to break the promise of [weir.Shares].
type sharedBudgets struct {
	Taker weir.Taker
	Clock *storetest.Clock
	// Seed makes a history repeatable.
	Seed uint64
	// Ask lets the taker decide the charges of a class, in acts of its choice. The first
	// act has the id. Nil: in one act.
	Ask func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act
	// Suits reports whether to use random shares. Nil: all are used.
	Suits func(*weir.Shares) bool
	// Most returns the most units that may be granted in a Period. Nil: what a gcra limit
	// grants, which is checked exactly.
	Most func(*weir.Shares) int64
}

// sharedSteps is how many takes one budget sees.
const sharedSteps = 500

// Check makes that many takes and returns the first one that breaks a promise. There are
// two promises: a charge that fits its class's own limit is granted, and what is granted and
// not given back is never more than the budget grants.
func (s sharedBudgets) Check(takes int) error {
	if s.Ask == nil {
		s.Ask = inOneAct
	}
	rng := rand.New(rand.NewPCG(s.Seed, 2))
	for budget := 0; takes > 0; budget++ {
		p := &sharing{sharedBudgets: s, rng: rng, shares: storetest.RandomBudget(rng, s.Suits), settles: rng.IntN(3) == 0, key: fmt.Sprintf("budget %d of %d", budget, s.Seed)}
		p.classes = append(slices.Sorted(maps.Keys(p.shares.Guarantees)), "none")
		for p.takes < min(takes, sharedSteps) && p.err == nil {
			p.step()
		}
		if s.Most == nil && p.err == nil {
			p.err = p.replay()
		}
		if p.err != nil {
			return fmt.Errorf("seed %d, %v headroom %d, guarantees %v, keep %d, take %d: %w",
				s.Seed, p.shares.Limit, p.shares.Headroom, p.shares.Guarantees, p.shares.Keep(), p.takes, p.err)
		}
		takes -= p.takes
	}
	return nil
}

// inOneAct lets a taker decide the charges of a class in one act, as [weir.Limiter] does.
func inOneAct(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
	a := storetest.NewAct(charges...)
	a.ID, a.Scope.Owner = id, a.Charges[0].Key
	taker.Take(context.Background(), []*weir.Act{a})
	return []*weir.Act{a}
}

// sharing is one budget and the grants from it.
type sharing struct {
	sharedBudgets
	rng     *rand.Rand
	shares  *weir.Shares
	key     string
	classes []string
	takes   int
	grants  []grant // of the last Period with Most, else all
	sum     int64   // of grants
	settles bool    // some of what was granted is given back later
	held    []held
	err     error
}

// A grant is what was granted at an instant and not given back.
type grant struct{ at, units int64 }

// held is a take that can be settled, and its place among the grants.
type held struct {
	take *weir.Act
	at   int
}

// replay charges the budget with what was kept of all grants.
func (p *sharing) replay() error {
	pool := p.shares.Pool()
	rate := big.NewRat(pool.Count, pool.Period.Microseconds())
	// Limits of different resolutions are up to a tick apart.
	most := new(big.Rat).Add(big.NewRat(pool.Burst, 1), new(big.Rat).Mul(rate, big.NewRat(2*pool.Rule().Tick, 1)))
	level, at := new(big.Rat), int64(0)
	for _, g := range p.grants {
		if level.Sub(level, new(big.Rat).Mul(rate, big.NewRat(g.at-at, 1))); level.Sign() < 0 {
			level.SetInt64(0)
		}
		if at = g.at; level.Add(level, big.NewRat(g.units, 1)).Cmp(most) > 0 {
			return fmt.Errorf("%v units are in a burst of %d after the %d of %d", level.FloatString(3), pool.Burst, g.units, g.at)
		}
	}
	return nil
}

// act returns an act that takes units for a class.
func (p *sharing) act(class string, cost int64) *weir.Act {
	return p.shares.Limiter(nil, "budget", class).Act(acts.KindTake, p.key, cost)
}

func (p *sharing) class() string { return p.classes[p.rng.IntN(len(p.classes))] }

// step lets some time pass, and then one class or all of them ask.
func (p *sharing) step() {
	period := p.shares.Limit.Period
	switch p.rng.IntN(8) {
	case 0:
		p.Clock.Advance(time.Microsecond)
	case 1:
		// A unit of the budget drains, or less.
		p.Clock.Advance(time.Duration(p.rng.Int64N(int64(period)/p.shares.Limit.Count+1000) / 1000 * 1000))
	case 2:
		if l := p.shares.Class(p.class()); l != nil {
			p.Clock.Advance((period / time.Duration(l.Count)).Truncate(time.Microsecond))
		}
	case 3:
		p.Clock.Advance(time.Duration(p.rng.Int64N(int64(period))).Truncate(time.Microsecond))
	case 4:
		if p.rng.IntN(8) == 0 {
			p.Clock.Advance(3 * period)
		}
	}
	if p.settles && len(p.held) > 0 && p.rng.IntN(2) == 0 {
		p.settle()
	}
	switch p.rng.IntN(4) {
	case 0:
		// Each class with a guarantee uses all of it.
		for _, class := range p.classes {
			p.take(class, p.credit(class))
		}
	case 1:
		// One class takes all units that are lent, at once or in several takes.
		class := p.class()
		for cost := max(1, p.shares.Limit.Capacity()-p.shares.Keep()); cost > 0 && p.err == nil; {
			if !p.take(class, cost) {
				cost /= 2
			}
		}
	case 2:
		p.take(p.class(), 1+p.rng.Int64N(p.shares.Limit.Capacity()))
	default:
		p.take(p.class(), 1)
	}
}

// settle refunds all units of a take, or a part of them.
func (p *sharing) settle() {
	i := p.rng.IntN(len(p.held))
	take, at := p.held[i].take, p.held[i].at
	p.held = slices.Delete(p.held, i, i+1)
	a := storetest.NewAct(slices.Clone(take.Charges)...)
	a.ID, a.Scope.Owner = take.ID, a.Charges[0].Key
	if a.Kind = acts.KindRelease; p.rng.IntN(2) == 0 {
		a.Kind = acts.KindSettle
		left := p.rng.Int64N(a.Charges[0].Cost + 1)
		for i := range a.Charges {
			a.Charges[i].Cost = left
		}
	}
	p.Taker.Take(context.Background(), []*weir.Act{a})
	if a.Err == nil && a.Kind == acts.KindRelease {
		p.grants[at].units = 0
	} else if a.Err == nil {
		p.grants[at].units = a.Charges[0].Cost
	}
	// Its life may be over, or an outage has begun since.
	if a.Err != nil && !errors.Is(a.Err, weir.ErrUnknownID) && !errors.Is(a.Err, weir.ErrNotApplied) && !acts.Kept(a.Err) {
		p.err = a.Err
	}
}

// credit returns how much the class's own limit has room for.
func (p *sharing) credit(class string) int64 {
	if p.shares.Class(class) == nil {
		return 1
	}
	a := p.act(class, 0)
	if p.Taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		p.err = a.Err
	}
	return a.Decisions[0].Remaining
}

// take takes units for a class and reports whether they were granted.
func (p *sharing) take(class string, cost int64) bool {
	if cost == 0 || p.err != nil {
		return false
	}
	p.takes++
	guaranteed := p.shares.Class(class) != nil && cost <= p.credit(class)
	id := ""
	if p.settles {
		id = fmt.Sprint("take ", p.takes)
	}
	acts := p.Ask(p.Taker, id, p.act(class, cost).Charges)
	for i, a := range acts {
		switch {
		case a.Err != nil:
			p.err = a.Err
		case guaranteed && i == 0 && a.Decisions[0].Outcome != weir.Granted:
			p.err = fmt.Errorf("%d units of %q were not granted although its own limit had room: %v", cost, class, a.Decisions)
		}
	}
	if last := acts[len(acts)-1]; p.err != nil || !last.Allowed() {
		return false
	}
	now, period := p.Clock.Micros(), p.shares.Limit.Period.Microseconds()
	if p.grants = append(p.grants, grant{now, cost}); p.settles {
		p.held = append(p.held, held{acts[0], len(p.grants) - 1})
	}
	if p.Most == nil || p.settles {
		return true
	}
	for p.sum += cost; p.grants[0].at <= now-period; p.grants = p.grants[1:] {
		p.sum -= p.grants[0].units
	}
	if most := p.Most(p.shares); p.sum > most {
		p.err = fmt.Errorf("%d units were granted in a period, want at most %d", p.sum, most)
	}
	return true
}
