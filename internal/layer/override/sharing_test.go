package override_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// sharingSteps is how many steps one budget sees.
const sharingSteps = 400

// TestSharing compares an override layer above a store with a model of docs/sharing.md. The
// histories have takes, peeks, holds, reservations, settlements below and above their holds,
// releases, refunds and cancellations, the shares change, and overrides of the budget begin and
// end.
func TestSharing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			for budget := range 25 {
				share(t, seed, budget)
			}
		})
	}
}

// share makes sharingSteps steps with one budget, and demands the model's answers.
func share(t *testing.T, seed uint64, budget int) {
	t.Helper()
	clock := storetest.NewClock()
	m := &sharingModel{
		t: t, clock: clock, store: memory(t, clock), rng: rand.New(rand.NewPCG(seed, uint64(budget))), key: fmt.Sprintf("sharing %d", budget),
	}
	m.layer = override.Wrap(m.store, override.Options{Now: clock.Now})
	m.change()
	for step := range sharingSteps {
		if err := m.step(); err != nil {
			t.Fatalf("seed %d, budget %d, step %d, %v burst %d headroom %d, guarantees %v, keep %d, override %v: %v", seed, budget, step,
				m.shares.Limit, m.shares.Limit.Capacity(), m.shares.Headroom, m.shares.Guarantees, m.shares.Keep(), m.override, err)
		}
	}
}

// A span has the units of the lowest and of the highest level of a tank.
type span [2]int64

func both(units int64) span { return span{units, units} }

// A tank is a level that sinks continuously. After a change of its limit, only its whole
// units are known, so it is between two levels.
type tank struct {
	rate   *big.Rat // units a µs
	burst  int64
	debt   int64       // the highest level without room
	levels [2]*big.Rat // the lowest and the highest
	at     int64
}

func (t *tank) sink(now int64) {
	gone := new(big.Rat).Mul(t.rate, big.NewRat(now-t.at, 1))
	for _, l := range t.levels {
		if l.Sub(l, gone); l.Sign() < 0 {
			l.SetInt64(0)
		}
	}
	t.at = now
}

func ceil(r *big.Rat) int64 {
	up := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return up.Div(up, r.Denom()).Int64()
}

// room is how many units fit, by one of the levels.
func (t *tank) room(i int) int64 { return t.burst - ceil(t.levels[i]) }

// charge adds units, at most one full drain beyond the larger of the key's own limit and the one
// that replaces it, and returns how many were charged by each of the levels. At that bound, a level
// keeps the part of its last unit that has drained.
func (t *tank) charge(units span) (charged span) {
	low, high := t.levels[0], t.levels[1]
	known, most := low.Cmp(high) == 0, t.debt-ceil(high)
	charged = span{max(0, min(units[0], t.debt-ceil(low))), max(0, min(units[1], most))}
	low.Add(low, big.NewRat(charged[0], 1))
	if high.Add(high, big.NewRat(charged[1], 1)); known || units[1] <= most {
		return charged
	}
	high.SetInt64(ceil(high))
	if least := big.NewRat(t.debt-1, 1); low.Cmp(least) > 0 {
		low.Set(least)
	}
	return charged
}

// refund takes back units of an instant: all of them at most, and at least what is left if they
// drained first.
func (t *tank) refund(units span, since int64) {
	left := new(big.Rat).Mul(t.rate, big.NewRat(since-t.at, 1))
	if left.Add(left, big.NewRat(units[1], 1)); left.Sign() < 0 {
		left.SetInt64(0)
	}
	for i, back := range []*big.Rat{big.NewRat(units[0], 1), left} {
		if l := t.levels[i]; l.Cmp(back) < 0 {
			l.SetInt64(0)
		} else {
			l.Sub(l, back)
		}
	}
}

// sharingModel is one budget, as the documentation has it.
type sharingModel struct {
	t        testing.TB
	clock    *storetest.Clock
	store    weir.Taker
	layer    *override.Layer
	rng      *rand.Rand
	key      string
	shares   *weir.Shares
	override *weir.Limit // of the budget
	pool     *tank
	classes  map[string]*tank // those that have a guarantee
	taken    []taken
	ids      int
}

// taken is what a class was granted and may give back.
type taken struct {
	class       string
	own         bool // the class had a guarantee
	alternative uint8
	units, at   int64
	id          string            // of a hold
	pooled      span              // what a hold charged to the budget
	reservation *weir.Reservation // nil: none
	decision    weir.Decision
}

// change gives the budget new shares.
func (m *sharingModel) change() {
	m.shares = storetest.RandomBudget(m.rng, func(s *weir.Shares) bool {
		fine := s.Pool().Rule().Tick == 1 && s.Limit.Count <= 300
		for name := range s.Guarantees {
			fine = fine && s.Class(name).Rule().Tick == 1
		}
		return fine
	})
	// A reservation is cancelled under the limits of its limiter.
	m.taken = slices.DeleteFunc(m.taken, func(t taken) bool { return t.reservation != nil })
	m.begin()
}

// begin takes over the levels that the store has, under the limits that hold now.
func (m *sharingModel) begin() {
	limit := m.shares.Pool()
	if m.override != nil {
		limit = m.override
	}
	key := func(class string, i int) string {
		return m.limiter(class).Act(acts.KindTake, m.key, 0).Charges[i].Key
	}
	m.pool, m.classes = m.tankOf(key("", 0), limit), map[string]*tank{}
	m.pool.debt = max(m.pool.debt, 2*m.shares.Pool().Capacity())
	for name := range m.shares.Guarantees {
		m.classes[name] = m.tankOf(key(name, 0), m.shares.Class(name))
	}
}

// tankOf asks the store how many units are charged.
func (m *sharingModel) tankOf(key string, l *weir.Limit) *tank {
	wide := *l
	wide.Burst = 1_000_000
	a := storetest.NewAct(weir.Charge{Key: key, HashTag: m.key, Limit: wide.MustCompile()})
	if m.store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
		m.t.Fatal(a.Err)
	}
	used := wide.Burst - a.Decisions[0].Remaining
	return &tank{
		rate: big.NewRat(l.Count, l.Period.Microseconds()), burst: l.Capacity(), debt: 2 * l.Capacity(), at: m.clock.Micros(),
		levels: [2]*big.Rat{big.NewRat(max(0, used-1), 1), big.NewRat(used, 1)},
	}
}

func (m *sharingModel) limiter(class string) *weir.Limiter {
	return m.shares.Limiter(m.layer, "budget", class)
}

// class returns one of seven, some of which have a guarantee.
func (m *sharingModel) class() string { return fmt.Sprint("class ", m.rng.IntN(7)) }

func (m *sharingModel) step() error {
	m.advance()
	m.pool.sink(m.clock.Micros())
	for _, t := range m.classes {
		t.sink(m.clock.Micros())
	}
	switch n := m.rng.IntN(20); {
	case n == 0 && m.rng.IntN(4) == 0:
		m.change()
	case n == 1 && m.rng.IntN(2) == 0:
		m.setOverride()
	case n < 8 && len(m.taken) > 0:
		return m.undo()
	default:
		return m.take()
	}
	return nil
}

func (m *sharingModel) advance() {
	period := m.shares.Limit.Period
	switch m.rng.IntN(8) {
	case 0:
		m.clock.Advance(time.Microsecond)
	case 1, 2:
		// A unit of the budget drains, or less.
		m.clock.Advance(time.Duration(1+m.rng.Int64N(period.Microseconds()/m.shares.Limit.Count+1)) * time.Microsecond)
	case 3:
		m.clock.Advance(time.Duration(m.rng.Int64N(period.Microseconds()/4)) * time.Microsecond)
	case 4:
		if m.rng.IntN(8) == 0 {
			m.clock.Advance(2 * period)
		}
	}
}

// setOverride overrides the budget, by more or by less than it guarantees, or ends that.
func (m *sharingModel) setOverride() {
	key := m.limiter("").Act(acts.KindTake, m.key, 0).Charges[0].Key
	if m.override != nil {
		m.override = nil
		m.layer.Delete(key)
		m.begin()
		return
	}
	l := *m.shares.Pool()
	l.Count, l.Burst = 1+m.rng.Int64N(2*l.Count), 1+m.rng.Int64N(2*l.Burst)
	compiled, err := l.Compile()
	if err != nil || compiled.Rule().Tick != 1 {
		return
	}
	m.override = compiled
	set(m.t, m.layer, key, l, m.clock.Now().Add(365*24*time.Hour))
	m.begin()
}

// holds reports whether the guarantees are in force.
func (m *sharingModel) holds() bool {
	sum := int64(0)
	for _, units := range m.shares.Guarantees {
		sum += units
	}
	o := m.override
	return o == nil || o.Count*int64(m.shares.Limit.Period/time.Millisecond) >= sum*int64(o.Period/time.Millisecond) && o.Burst >= m.shares.Keep()
}

// rooms are how much a class could take of each alternative: of its guarantee, and of what is
// lent. If levels are not known exactly, there are several answers.
func (m *sharingModel) rooms(class string) (all [][2]int64) {
	own := &tank{levels: [2]*big.Rat{new(big.Rat), new(big.Rat)}}
	if t := m.classes[class]; t != nil {
		own = t
	}
	for lent := m.pool.room(1); lent <= m.pool.room(0); lent++ {
		for mine := own.room(1); mine <= own.room(0); mine++ {
			room := [2]int64{mine, lent - m.shares.Keep()}
			if !m.holds() {
				room[0] = min(mine, lent)
			}
			all = append(all, room)
		}
	}
	return all
}

// take has a class take units in one of the ways that there are.
func (m *sharingModel) take() error {
	class, ctx := m.class(), context.Background()
	limiter, cost, upTo := m.limiter(class), int64(1), int64(0)
	switch m.rng.IntN(6) {
	case 0:
		cost = 1 + m.rng.Int64N(m.shares.Limit.Capacity())
	case 1:
		if rooms := m.rooms(class); rooms[0][0] > 0 {
			cost = rooms[0][0] + m.rng.Int64N(2)
		}
	case 2:
		cost = max(1, m.rooms(class)[0][1]+m.rng.Int64N(2))
	case 3:
		upTo = 1 + m.rng.Int64N(2*m.shares.Limit.Capacity())
	case 4:
		cost = 0
	}
	want := m.rooms(class)
	got := taken{class: class, own: m.classes[class] != nil, at: m.clock.Micros()}
	var d weir.Decision
	var err error
	switch way := m.rng.IntN(3); {
	case upTo > 0:
		d, err = limiter.AllowUpTo(ctx, m.key, upTo)
	case way == 0:
		d, err = limiter.AllowN(ctx, m.key, cost)
	case way == 1 && got.own: // a class without a guarantee cannot be reserved for: it keeps units free
		if got.reservation, err = limiter.Reserve(ctx, m.key, cost, 0); err == nil {
			d = got.reservation.Decision()
		}
	default:
		m.ids++
		a := limiter.Act(acts.KindTake, m.key, cost)
		a.ID, a.Hold, a.Scope.Owner = fmt.Sprint("id ", m.ids), time.Hour, a.Charges[0].Key
		m.layer.Take(ctx, []*weir.Act{a})
		if a.Err == nil {
			var i int
			i, d = a.Verdict()
			d.Remaining = a.Remaining()
			d.Alternative = a.Charges[i].Alt + 1
		}
		got.id, err = a.ID, a.Err
	}
	if err != nil {
		return err
	}
	got.alternative, got.units, got.decision = d.Alternative, d.Granted, d
	if !got.own {
		got.alternative = 2
	}
	if err := got.among(want, cost, upTo, d.Allowed()); err != nil {
		return err
	}
	if got.units > 0 {
		if got.pooled = m.pool.charge(both(got.units)); got.alternative == 1 {
			m.classes[class].charge(both(got.units))
		}
		m.taken = append(m.taken, got)
	}
	return m.remains(class, d)
}

// among demands that an answer is one of those that the model has.
func (t *taken) among(rooms [][2]int64, cost, upTo int64, allowed bool) error {
	var wants [][2]int64
	for _, room := range rooms {
		alternative, units := int64(0), int64(0)
		switch {
		case cost == 0:
		case upTo > 0 && room[1] > max(0, room[0]) && room[0] < upTo:
			alternative, units = 2, min(upTo, room[1])
		case upTo > 0:
			alternative, units = 1, min(upTo, room[0])
		case cost <= room[0]:
			alternative, units = 1, cost
		case cost <= room[1]:
			alternative, units = 2, cost
		}
		if units <= 0 {
			alternative, units = 0, 0
		}
		wants = append(wants, [2]int64{alternative, units})
	}
	got := [2]int64{int64(t.alternative), t.units}
	if t.units == 0 {
		got[0] = 0
	}
	if !slices.Contains(wants, got) || allowed != (cost == 0 || t.units > 0) {
		return fmt.Errorf("%d, or up to %d, units of %q: granted %v, %d of alternative %d; rooms %v, want %v", cost, upTo, t.class, allowed, got[1], got[0], rooms, wants)
	}
	return nil
}

// remains demands that an answer has the units that one request could take.
func (m *sharingModel) remains(class string, d weir.Decision) error {
	least, most := int64(1<<60), int64(0)
	for _, room := range m.rooms(class) {
		one := max(0, room[0], room[1])
		least, most = min(least, one), max(most, one)
	}
	if d.Remaining < least || d.Remaining > most {
		return fmt.Errorf("%d units remain to %q, want %d … %d: %v", d.Remaining, class, least, most, d)
	}
	return nil
}

// undo settles, releases, refunds or cancels a take.
func (m *sharingModel) undo() error {
	i, ctx := m.rng.IntN(len(m.taken)), context.Background()
	t := m.taken[i]
	m.taken = slices.Delete(m.taken, i, i+1)
	if t.own != (m.classes[t.class] != nil) || m.clock.Micros()-t.at > time.Hour.Microseconds() {
		return nil // its keys are others since the shares have changed
	}
	switch limiter := m.limiter(t.class); {
	case t.reservation != nil:
		if _, err := t.reservation.Cancel(ctx); err != nil {
			return err
		}
		m.refund(&t, both(t.units), t.units)
	case t.id == "":
		back := m.rng.Int64N(t.units + 1)
		if _, err := limiter.Refund(ctx, m.key, t.decision, back); err != nil {
			return err
		}
		m.refund(&t, both(back), back)
	default:
		kind := []weir.Kind{acts.KindSettle, acts.KindRelease, acts.KindRefund}[m.rng.IntN(3)]
		cost := m.rng.Int64N(t.units + 1)
		switch {
		case kind == acts.KindSettle && m.rng.IntN(3) == 0:
			cost = t.units + m.rng.Int64N(m.shares.Limit.Capacity())
		case kind == acts.KindRelease:
			cost = 0
		}
		a := limiter.Act(kind, m.key, cost)
		a.ID, a.Scope.Owner = t.id, a.Charges[0].Key
		if m.layer.Take(ctx, []*weir.Act{a}); a.Err != nil {
			return a.Err
		}
		if kind == acts.KindRefund {
			m.refund(&t, span{min(cost, t.pooled[0]), min(cost, t.pooled[1])}, cost)
		} else {
			m.settle(&t, cost)
		}
		return m.remains(t.class, weir.Decision{Outcome: weir.Granted, Remaining: a.Remaining()})
	}
	return nil
}

// settle leaves so many units charged to the alternative that was taken.
func (m *sharingModel) settle(t *taken, cost int64) {
	var back, more span
	for i, held := range t.pooled {
		back[i], more[i] = max(0, held-cost), max(0, cost-held)
	}
	m.refund(t, back, max(0, t.units-cost))
	if m.pool.charge(more); t.alternative == 1 {
		m.classes[t.class].charge(both(max(0, cost-t.units)))
	}
}

// refund takes units back from the budget, and from the guarantee if that was taken.
func (m *sharingModel) refund(t *taken, pooled span, units int64) {
	if m.pool.refund(pooled, t.at); t.alternative == 1 {
		m.classes[t.class].refund(both(units), t.at)
	}
}
