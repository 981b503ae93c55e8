package memstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/storetest"
)

// TestFullStoreAgainstModel drives a store of 100 KiB through all kinds of acts, under all
// algorithms, over several keys, and compares every answer with a model that has as much
// room as it likes. The model learns from the store only which keys share their limit's
// budget.
func TestFullStoreAgainstModel(t *testing.T) {
	t.Parallel()
	steps := storetest.Length(2000)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for n := range steps {
				w.tick()
				w.do(n)
			}
			if stats := w.store.Stats(); stats.Overflowed < int64(steps/20) || w.merged < steps/200 || stats.Bytes > 128<<10 {
				t.Errorf("%d acts over keys that share a budget; %+v", w.merged, stats)
			}
		})
	}
}

// A world is a small store and the model beside it.
type world struct {
	*testing.T
	rng    *rand.Rand
	clock  *storetest.Clock
	store  *Store
	limits []*weir.Limit
	states map[budgetName]*algo.State
	open   []*modelTake
	merged int // acts of which several keys shared one budget
}

// A budgetName is a key under an algorithm, or the budget of a limit that keys share.
type budgetName struct {
	key   string
	id    algo.ID
	limit *weir.Limit
}

// A modelTake is a take with an ID that was granted and is not closed.
type modelTake struct {
	act    *weir.Act
	holder algo.Holding
	grants []algo.Grant
	none   []bool // charges of alternatives that were not granted
	until  int64  // µs: the store may forget it later
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, rng: rand.New(rand.NewPCG(seed, 7)), clock: storetest.NewClock(), states: map[budgetName]*algo.State{}}
	w.store = New(Options{MaxBytes: 100 << 10, MaxIDBytes: 64 << 20, Now: w.clock.Now})
	for id := range algo.Steps {
		for n, period := range []time.Duration{10 * time.Second, time.Hour} {
			l := weir.Limit{Algorithm: weir.Algorithm(id), Count: 4 + 20*int64(n), Period: period, Name: fmt.Sprint(n)}
			l.ChargeRefused = n == 1 && id%2 == 0
			w.limits = append(w.limits, l.MustCompile())
		}
	}
	return w
}

func (w *world) tick() {
	switch w.rng.IntN(40) {
	case 0:
		w.clock.Advance(time.Duration(w.rng.IntN(20)) * time.Minute)
	case 1, 2, 3, 4, 5:
		w.clock.Advance(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	case 6, 7, 8, 9, 10:
		w.clock.Advance(time.Duration(w.rng.IntN(100)) * time.Microsecond)
	}
}

// do makes one act, decides it in the store and in the model, and compares.
func (w *world) do(n int) {
	for len(w.open) > 0 && w.open[0].until <= w.clock.Micros() {
		w.open = w.open[1:]
	}
	var take *modelTake
	a := &weir.Act{}
	switch r := w.rng.IntN(20); {
	case r < 7 && len(w.open) > 0:
		take = w.open[w.rng.IntN(len(w.open))]
		*a = *take.act
		a.Kind = []weir.Kind{acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew, acts.KindAmend}[w.rng.IntN(5)]
		a.Charges = append([]weir.Charge(nil), take.act.Charges...)
		w.close(a)
	case r == 7:
		a.Kind, a.Charges = acts.KindReset, w.charges(false, 0)
	case r == 8:
		a.Kind, a.Charges = acts.KindRecord, w.charges(false, 0)
	case r == 9:
		// The amendment comes before its take.
		a.Kind, a.ID, a.Charges = acts.KindAmend, fmt.Sprint("id ", n), w.charges(true, 0)
	default:
		a.Charges = w.charges(true, w.rng.IntN(3))
		if w.rng.IntN(2) == 0 || holds(a) {
			a.ID = fmt.Sprint("id ", n)
		}
	}
	a.Decisions = make([]weir.Decision, len(a.Charges))
	told := w.rng.IntN(2) == 0
	if a.Kind == acts.KindAmend {
		for i := range a.Decisions {
			if take != nil && take.none[i] {
				continue
			}
			if a.Decisions[i].Outcome = weir.Refused; told {
				a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: a.Charges[i].Cost}
			}
		}
	}
	m := w.ask(a, take)
	switch a.Kind {
	case acts.KindTake:
		m.take(a)
	case acts.KindAmend:
		m.amend(a, told)
	default:
		m.change(a)
	}
	if m.save(a); a.ID == "" {
		return
	}
	granted := a.Kind == acts.KindTake && a.Allowed() || a.Kind == acts.KindAmend && told
	if take != nil && a.Kind != acts.KindRenew {
		w.forget(take)
	}
	if granted {
		w.open = append(w.open, &modelTake{act: a, holder: m.holder, grants: m.grants, none: m.none, until: m.now + acts.IDLife.Microseconds()})
	}
	if len(w.open) > 200 {
		w.open = w.open[100:]
	}
}

func (w *world) forget(take *modelTake) {
	for i := range w.open {
		if w.open[i] == take {
			w.open = append(w.open[:i], w.open[i+1:]...)
			return
		}
	}
}

// close gives the charges of an act that closes a take costs of its own.
func (w *world) close(a *weir.Act) {
	a.Hold, a.Err = 0, nil
	for i := range a.Charges {
		c := &a.Charges[i]
		if a.Kind == acts.KindAmend {
			continue
		}
		if c.Keep = 0; algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
			c.Cost = 0
		} else if a.Kind == acts.KindSettle {
			c.Cost = w.rng.Int64N(8)
		} else if a.Kind == acts.KindRefund {
			c.Cost = w.rng.Int64N(c.Cost + 1)
		}
	}
}

// charges are those of an act, in so many groups with alternatives.
func (w *world) charges(take bool, groups int) []weir.Charge {
	var charges []weir.Charge
	limit := w.limits[w.rng.IntN(len(w.limits))]
	for range 1 + w.rng.IntN(3) {
		if w.rng.IntN(3) == 0 {
			limit = w.limits[w.rng.IntN(len(w.limits))]
		}
		if c, ok := w.charge(limit, take, charges); ok {
			charges = append(charges, c)
		}
	}
	for i := range charges {
		if charges[i].Limit.ChargeRefused || w.rng.IntN(2) == 0 {
			groups = 0
		}
	}
	for group := 1; group <= groups; group++ {
		for alt := range 2 {
			for range 1 + w.rng.IntN(2) {
				limit := w.limits[w.rng.IntN(len(w.limits))]
				if c, ok := w.charge(limit, take, charges); ok && !limit.ChargeRefused {
					c.HashTag, c.Group, c.Alt = "alternatives", uint8(group), uint8(alt)
					charges = append(charges, c)
				}
			}
		}
	}
	if len(charges) == 0 {
		return w.charges(take, groups)
	}
	return charges
}

// charge is a charge of a key that no other charge of the act has.
func (w *world) charge(limit *weir.Limit, take bool, others []weir.Charge) (weir.Charge, bool) {
	// Few keys come often. The keys of two limits of one algorithm differ.
	key := fmt.Sprint(limit.Name, " ", w.rng.IntN(20))
	if w.rng.IntN(3) == 0 {
		key = fmt.Sprint(limit.Name, " ", w.rng.IntN(5000))
	}
	for _, o := range others {
		if o.Key == key && (o.Limit == limit || algo.TraitsOf(limit.Algorithm).HoldsSlots) {
			return weir.Charge{}, false
		}
	}
	c := weir.Charge{Key: key, Limit: limit, Cost: 1 + w.rng.Int64N(3)}
	if algo.TraitsOf(limit.Algorithm).HoldsSlots {
		if c.Cost = 1; !take {
			return c, false
		}
	} else if take && !limit.ChargeRefused && w.rng.IntN(4) == 0 {
		c.Keep = w.rng.Int64N(4)
	}
	return c, true
}

func holds(a *weir.Act) bool {
	for i := range a.Charges {
		if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots {
			return true
		}
	}
	return false
}

// A modelAct is an act in the model, with scratch copies of its budgets.
type modelAct struct {
	*world
	now     int64
	holder  algo.Holding
	grants  []algo.Grant
	none    []bool
	budgets []*modelBudget // of each charge
	before  []weir.Decision
	want    []int64 // units in the answer; -1: the charge was refused or not charged
	err     bool
}

type modelBudget struct {
	name    budgetName
	rule    *algo.Rule
	state   algo.State
	aged    int64
	changed bool
	tight   bool
	pending int64
}

// ask has the store decide an act, and notes which budgets it used.
func (w *world) ask(a *weir.Act, take *modelTake) *modelAct {
	m := &modelAct{world: w, now: w.clock.Micros(), grants: make([]algo.Grant, len(a.Charges)), none: make([]bool, len(a.Charges))}
	m.want = make([]int64, len(a.Charges))
	m.before = append(m.before, a.Decisions...)
	if acts.Check(a); a.Err != nil || acts.Prepare(a) {
		w.Fatalf("%+v: %v", a, a.Err)
	}
	c := new(call)
	c.gather(w.store, a)
	func() {
		c.lock(w.store)
		defer c.unlock(w.store)
		w.store.decide(c, a, c.now(w.store, w.store.read()))
	}()
	if m.holder = c.record; take != nil {
		m.holder = take.holder
		copy(m.grants, take.grants)
		copy(m.none, take.none)
	}
	found, keys := map[budgetName]*modelBudget{}, map[budgetName]string{}
	for i := range a.Charges {
		t, limit := &c.slots[c.slotOf[i]], a.Charges[i].Limit
		shared := budgetName{limit: limit}
		name := budgetName{key: a.Charges[i].Key, id: limit.Rule().ID}
		if t.shared != nil {
			name = shared
		}
		if b := found[name]; b != nil {
			if m.budgets = append(m.budgets, b); keys[name] != a.Charges[i].Key {
				w.merged++
			}
			continue
		}
		b := &modelBudget{name: name, rule: limit.Rule(), tight: t.state.Tight}
		from := name
		if t.shared == nil && !t.known {
			from = shared
		}
		if s := w.states[from]; s != nil {
			b.state = *s
			b.state.Ext = s.Ext.Clone()
		}
		b.changed = b.rule.Age(&b.state, m.now)
		b.aged = b.state.Used
		found[name], keys[name], m.budgets = b, a.Charges[i].Key, append(m.budgets, b)
	}
	return m
}

// save keeps what the act has changed, and compares the answers.
func (m *modelAct) save(a *weir.Act) {
	m.Helper()
	if m.err != (a.Err != nil) || m.err && !errors.Is(a.Err, weir.ErrUnknownID) {
		m.Fatalf("%v of %+v: error %v, expected: %v", a.Kind, a.Charges, a.Err, m.err)
	}
	if m.err {
		return
	}
	fresh := map[*modelBudget]int64{}
	for _, b := range m.budgets {
		if _, done := fresh[b]; done {
			continue
		}
		if b.changed || b.state.Used != b.aged {
			b.state.Tight = b.tight
			b.rule.Save(&b.state, m.now, b.state.Used-b.aged)
			saved := b.state
			saved.Used, saved.Base, saved.Tight = saved.Used-saved.Base, 0, false
			m.states[b.name] = &saved
		}
		fresh[b] = b.rule.Fresh(&b.state, m.now)
	}
	for i, b := range m.budgets {
		d := a.Decisions[i]
		if m.none[i] {
			if d.Outcome != weir.NotEvaluated {
				m.Fatalf("%v of %+v: charge %d was evaluated: %+v", a.Kind, a.Charges, i, d)
			}
			continue
		}
		granted := m.want[i] >= 0
		remaining := max(0, b.rule.Burst-b.state.Used-a.Charges[i].Keep)
		if d.Allowed() != granted || d.Granted != max(0, m.want[i]) || d.Remaining != remaining || d.ResetAfter != algo.Duration(fresh[b]) {
			m.Fatalf("%v of %+v, charge %d: %+v, want %d granted, %d remaining, reset after %v", a.Kind, a.Charges, i, d, m.want[i], remaining, algo.Duration(fresh[b]))
		}
	}
}

// take charges all, or one alternative of each group, or nothing.
func (m *modelAct) take(a *weir.Act) {
	chosen, refused := make([]bool, len(a.Charges)), make([]bool, len(a.Charges))
	all := true
	for from := 0; from < len(a.Charges); {
		end, done := acts.GroupEnd(a, from), false
		for i := from; i < end && !done; {
			next := acts.AltEnd(a, i)
			fits := true
			for j := i; j < next; j++ {
				b := m.budgets[j]
				b.pending += a.Charges[j].Cost
				refused[j] = b.state.Used+b.pending+a.Charges[j].Keep > b.rule.Burst
				fits = fits && !refused[j]
			}
			if done = fits; !fits && next < end || !fits && i > from {
				for j := i; j < next; j++ {
					m.budgets[j].pending -= a.Charges[j].Cost
				}
			}
			for j := i; j < next; j++ {
				chosen[j] = fits
			}
			i = next
		}
		all, from = all && done, end
	}
	for i := range a.Charges {
		b, cost, d := m.budgets[i], a.Charges[i].Cost, a.Decisions[i]
		m.want[i] = -1
		switch {
		case all && !chosen[i]:
			m.none[i] = true
		case all && b.rule.HoldsSlots():
			b.state.Hold(m.holder, m.now, m.now+b.rule.Period)
			b.changed, m.want[i] = true, cost
			m.grants[i] = algo.Grant{Units: cost, Whole: cost, At: m.now}
		case all:
			b.state.Used += cost
			m.want[i] = cost
			m.grants[i] = algo.Grant{Units: cost, Whole: cost, At: m.now, Delay: d.Delay.Microseconds()}
		case d.Outcome == weir.NotEvaluated:
			m.none[i] = true // an alternative was found, but not for another group
		case refused[i] && b.rule.ChargeRefused:
			b.force(cost)
		}
	}
}

// force charges units that may not fit.
func (b *modelBudget) force(units int64) int64 {
	if b.rule.HoldsSlots() {
		return 0
	}
	before := b.state.Used
	b.state.Used = max(before, min(before+units, b.rule.Debt))
	return b.state.Used - before
}

// back returns units of a grant.
func (m *modelAct) back(i int, units int64) int64 {
	b, back := m.budgets[i], int64(0)
	g := m.grants[i]
	g.Units = units
	switch {
	case units == 0:
	case !b.rule.HoldsSlots():
		back = b.rule.Refund(&b.state, m.now, g)
	case b.state.Holds(m.holder, m.now):
		b.state.Hold(m.holder, m.now, 0)
		back = 1
	}
	b.aged -= back
	b.changed = true
	return back
}

// change does an act that is no take, the last charge first.
func (m *modelAct) change(a *weir.Act) {
	for i, b := range m.budgets {
		m.err = m.err || a.Kind == acts.KindRenew && b.rule.HoldsSlots() && m.grants[i].Units > 0 && !b.state.Holds(m.holder, m.now)
	}
	for i := len(a.Charges) - 1; i >= 0 && !m.err; i-- {
		b, cost, was := m.budgets[i], a.Charges[i].Cost, m.grants[i].Units
		if m.none[i] {
			continue
		}
		b.changed = true
		switch a.Kind {
		case acts.KindRelease:
			m.want[i] = m.back(i, was)
		case acts.KindRefund:
			m.want[i] = m.back(i, min(cost, was))
		case acts.KindSettle:
			if m.want[i] = cost; cost < was {
				m.back(i, was-cost)
			} else {
				m.want[i] = was + b.force(cost-was)
			}
		case acts.KindRenew:
			if b.rule.HoldsSlots() && was > 0 {
				b.state.Hold(m.holder, m.now, m.now+b.rule.Period)
				m.want[i] = 1
			}
		case acts.KindRecord:
			m.want[i] = b.force(cost)
		default:
			b.state, b.aged = algo.State{At: m.now}, 0
		}
	}
}

// amend makes what is charged what the caller was told.
func (m *modelAct) amend(a *weir.Act, told bool) {
	for _, undo := range []bool{true, false} {
		for i := len(a.Charges) - 1; i >= 0; i-- {
			if m.none[i] {
				continue
			}
			b, due, g := m.budgets[i], int64(0), &m.grants[i]
			if told || b.rule.ChargeRefused {
				due = a.Charges[i].Cost
			}
			switch {
			case undo && due < g.Units:
				m.back(i, g.Units-due)
				g.Units, g.Whole = due, due
			case !undo && due > g.Units:
				if g.Units == 0 {
					*g = algo.Grant{At: m.now}
				}
				units := due - g.Units
				if b.rule.HoldsSlots() {
					b.state.Hold(m.holder, m.now, m.now+b.rule.Period)
					b.changed = true
				} else {
					units = b.force(units)
				}
				g.Units, g.Whole = g.Units+units, g.Units+units
			}
			if m.want[i] = -1; told {
				m.want[i] = g.Units
			}
		}
	}
}
