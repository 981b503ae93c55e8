package algo

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

const second = 1_000_000

// rules are one rule for each algorithm, compiled by hand: 4 per 10 s, and at
// most 4 at once.
var rules = [Count]Rule{
	GCRA:           {ID: GCRA, Count: 4, Period: 10 * second, Burst: 4, Cap: 8, Num: 1, Den: 2_500_000, Tick: 1, Full: 20 * second},
	FixedWindow:    {ID: FixedWindow, Count: 4, Period: 10 * second, Burst: 4, Cap: 1 << 52},
	SlidingLog:     {ID: SlidingLog, Count: 4, Period: 10 * second, Burst: 4, Cap: 4},
	RollingWindow:  {ID: RollingWindow, Count: 4, Period: 10 * second, Burst: 4, Cap: 4, Buckets: 5, Width: 2 * second},
	TokenBucket:    {ID: TokenBucket, Count: 4, Period: 10 * second, Burst: 4, Cap: 8},
	SlidingCounter: {ID: SlidingCounter, Count: 4, Period: 10 * second, Burst: 4, Cap: 8, Tick: 1},
	LeakyBucket:    {ID: LeakyBucket, Count: 4, Period: 10 * second, Burst: 4, Cap: 8, Num: 1, Den: 2_500_000, Tick: 1, Full: 20 * second},
}

// charge runs one step as a store does and reports whether the cost fitted.
func charge(s *State, r *Rule, now, cost int64) bool {
	scratch := *s
	clamped := r.Age(&scratch, now)
	aged := scratch.Used
	fits := cost == 0 || scratch.Used+cost <= r.Burst
	if fits {
		scratch.Used += cost
	}
	if scratch.Used != aged || clamped {
		r.Save(&scratch, now, scratch.Used-aged)
		scratch.Used -= scratch.Base
		*s = scratch
	}
	return fits
}

type row struct {
	at, cost    int64 // seconds, units
	fits        bool
	room        int64 // afterwards
	wait, fresh int64 // afterwards: µs until the cost fits, until fresh
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for id, rows := range map[ID][]row{
		GCRA: {
			{100, 3, true, 1, 5 * second, 7_500_000},
			{100, 2, false, 1, 2_500_000, 7_500_000},
			{102, 1, true, 0, 500_000, 8 * second},
			{103, 1, true, 0, 2 * second, 9_500_000},
			{104, 5, false, 0, 0, 8_500_000},
			{113, 4, true, 0, 10 * second, 10 * second},
		},
		FixedWindow: {
			{100, 3, true, 1, 10 * second, 10 * second},
			{109, 2, false, 1, second, second},
			{110, 4, true, 0, 10 * second, 10 * second},
			// What was granted counts to the end of the next window.
			{95, 1, false, 0, 15 * second, 15 * second},
			{99, 1, false, 0, 11 * second, 11 * second},
			{100, 1, false, 0, 10 * second, 10 * second},
			{110, 1, true, 3, 0, 10 * second},
			{109, 3, true, 0, 11 * second, 11 * second},
			{119, 1, false, 0, second, second},
			{120, 1, true, 3, 0, 10 * second},
		},
		SlidingLog: {
			{100, 2, true, 2, 0, 10 * second},
			{101, 1, true, 1, 0, 10 * second},
			{109, 2, false, 1, second, 2 * second},
			{110, 2, true, 1, second, 10 * second},
			{110, 1, true, 0, second, 10 * second},
			{111, 1, true, 0, 9 * second, 10 * second},
		},
		RollingWindow: {
			{101, 2, true, 2, 0, 11 * second},
			{103, 2, true, 0, 9 * second, 11 * second},
			{111, 1, false, 0, second, 3 * second},
			{112, 1, true, 1, 0, 12 * second},
			{114, 2, true, 1, 10 * second, 12 * second},
			{105, 1, true, 0, 11 * second, 11 * second},
		},
		TokenBucket: {
			{100, 3, true, 1, 10 * second, 10 * second},
			{109, 1, true, 0, second, second},
			{110, 2, true, 2, 0, 10 * second},
			{111, 3, false, 2, 9 * second, 9 * second},
			{155, 4, true, 0, 10 * second, 10 * second},
			{150, 1, false, 0, 10 * second, 10 * second},
		},
		SlidingCounter: {
			{100, 3, true, 1, 16_666_667, 20 * second},
			{115, 2, true, 0, 5 * second, 15 * second},
			{119, 2, false, 1, second, 11 * second},
			{125, 3, true, 0, 11_666_667, 15 * second},
			{108, 1, false, 0, 6 * second, 12 * second},
		},
		LeakyBucket: {
			{100, 3, true, 1, 5 * second, 7_500_000},
			{102, 1, true, 0, 500_000, 8 * second},
			{104, 5, false, 1, 0, 6 * second},
		},
	} {
		var s State
		step, r := Steps[id], &rules[id]
		for i, row := range rows {
			now := row.at * second
			if fits := charge(&s, r, now, row.cost); fits != row.fits {
				t.Errorf("%s, row %d: fits %v", step.Name, i, fits)
			}
			aged := s
			r.Age(&aged, now)
			wait := int64(0)
			if row.cost <= r.Burst && aged.Used+row.cost > r.Burst {
				wait = r.Wait(&aged, now, row.cost)
			}
			if room, fresh := max(0, r.Burst-aged.Used), r.Fresh(&aged, now); room != row.room || wait != row.wait || fresh != row.fresh {
				t.Errorf("%s, row %d: room %d, wait %d, fresh %d; want %+v", step.Name, i, room, wait, fresh, row)
			}
		}
	}
}

// FuzzSteps drives all steps with any history, clocks that go back included:
// what they say of the future must come true.
func FuzzSteps(f *testing.F) {
	f.Add([]byte{1, 0, 4, 200, 0, 1, 3, 1, 2})
	f.Add([]byte{255, 255, 1, 0, 128, 4, 7, 7, 7, 9, 0, 0})
	f.Fuzz(func(t *testing.T, history []byte) {
		// Long histories find nothing that short ones do not.
		history = history[:min(len(history), 300)]
		for id := range Steps {
			r, step := &rules[id], Steps[id]
			if ID(id) == Concurrency {
				continue // has holders, not units
			}
			var s State
			now := int64(1_700_000_000 * second)
			for rest := history; len(rest) >= 3; rest = rest[3:] {
				// Signed, so that time also goes back.
				now += int64(int16(binary.BigEndian.Uint16(rest))) * 1009
				cost := int64(rest[2] % 6)
				fits := charge(&s, r, now, cost)
				foretell(t, step, r, s, now, cost, fits)
			}
		}
	})
}

func foretell(t *testing.T, step Step, r *Rule, s State, now, cost int64, fitted bool) {
	t.Helper()
	future := func(at int64) State {
		later := s
		later.Ext = s.Ext.Clone()
		r.Age(&later, at)
		return later
	}
	present := future(now)
	// Where a clock went back within a window, the share of the one before it
	// counts more than it did when this one was filled.
	if held := present.Used - present.Base; held < 0 || held > r.Cap || present.Base < 0 || present.Base > r.Cap {
		t.Fatalf("%s: %d units used, %d of them in the window before", step.Name, present.Used, present.Base)
	}
	if rested := future(now + r.Fresh(&present, now)); rested.Used != 0 {
		t.Fatalf("%s: not fresh after %d µs", step.Name, r.Fresh(&present, now))
	}
	if fitted || cost > r.Burst {
		return
	}
	wait := r.Wait(&present, now, cost)
	if early := future(now + wait - 1); r.Burst-early.Used >= cost {
		t.Fatalf("%s: %d fit before %d µs", step.Name, cost, wait)
	}
	if late := future(now + wait); r.Burst-late.Used < cost {
		t.Fatalf("%s: %d do not fit after %d µs", step.Name, cost, wait)
	}
}

func TestAssembleKnowsEveryAlgorithm(t *testing.T) {
	t.Parallel()
	text := Assemble("-- @age\n-- @wait\n-- @fresh\n-- @delay\n-- @back\n-- @save\n")
	if strings.Contains(text, "-- @") || strings.Count(text, "elseif id == ") != 6*(int(Count)-1) {
		t.Errorf("assembled:\n%s", text)
	}
	for id, step := range Steps {
		if step.Name == "" || step.Letter == 0 {
			t.Errorf("algorithm %d is incomplete: %q", id, step.Name)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown section did not panic")
		}
	}()
	Assemble("-- @nothing\n")
}

// randomRule returns one of the rules, or one of its kind with windows opened by the first
// charge.
func randomRule(id ID, random *rand.Rand) *Rule {
	r := rules[id]
	if id == Concurrency {
		r = Rule{ID: id, Count: 4, Period: 10 * second, Burst: 4, Cap: 4}
	}
	r.AnchorFirst = id == FixedWindow && random.IntN(2) == 0
	return &r
}

// TestMethodsRunRows holds that the methods of a Rule, which name the functions of most
// algorithms in switches, do what the functions of the algorithm's row do.
func TestMethodsRunRows(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for id := range Count {
		step := &Steps[id]
		for range 200 {
			r, now, last := randomRule(id, random), int64(1000*second), Grant{}
			var keptA, keptB State // by the methods, and by the row
			for range 20 {
				a, b := keptA, keptB // dropped if nothing changes, as a store does
				now += random.Int64N(6*second) - second
				same := func(verb string, x, y any) {
					t.Helper()
					if !reflect.DeepEqual(x, y) || !reflect.DeepEqual(a, b) {
						t.Fatalf("%s: %s: the method returns %v and leaves %+v, the row %v and %+v", step.Name, verb, x, a, y, b)
					}
				}
				changed := r.Age(&a, now)
				same("Age", changed, step.Age(&b, r, now))
				aged := a.Used
				cost := random.Int64N(5)
				fits := a.Used+cost <= r.Burst
				switch {
				case !fits:
					same("Wait", r.Wait(&a, now, cost), step.Wait(&b, r, now, cost))
				case cost > 0 && last.Units > 0 && step.Refund != nil && random.IntN(3) == 0:
					same("Refund", r.Refund(&a, now, last), step.Refund(&b, r, now, last))
					last, changed = Grant{}, true
					aged = a.Used
				case r.HoldsSlots():
					if cost > 0 {
						changed = true
						holder := Holding{random.Uint64(), 1}
						a.Used, b.Used = a.Used+1, b.Used+1
						a.Hold(holder, now, now+r.Period)
						b.Hold(holder, now, now+r.Period)
					}
				default:
					a.Used, b.Used = a.Used+cost, b.Used+cost
					last = Grant{Units: cost, Whole: cost, At: now}
				}
				if changed || a.Used != aged {
					r.Save(&a, now, a.Used-aged)
					if step.Save != nil {
						step.Save(&b, r, now, b.Used-aged)
					}
					same("Save", nil, nil)
				}
				same("Fresh", r.Fresh(&a, now), step.Fresh(&b, r, now))
				if changed || a.Used != aged {
					keptA, keptB = a, b
					keptA.Used, keptB.Used = a.Used-a.Base, b.Used-b.Base
					keptA.Base, keptB.Base = 0, 0
				}
			}
		}
		grant := Grant{Units: 1, Whole: 1, At: second}
		if step.Refund == nil && randomRule(id, random).Refund(&State{At: second, Used: 4}, second, grant) != 0 {
			t.Errorf("%s: Refund returns units, but the row has no such function", step.Name)
		}
	}
}

// TestRing compares the sums of a ring, which skip blocks, with those of its counters, and requires
// that the blocks are right after every change.
func TestRing(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		buckets := 2 + random.Int64N(300)
		g := newRing(&Rule{Buckets: buckets, Period: 1000 * buckets, Width: 1000})
		base := random.Int64N(5000)
		for range 200 {
			first := base + random.Int64N(buckets+1)
			last := first + random.Int64N(base+buckets+1-first)
			switch random.IntN(5) {
			case 0:
				g.clear(first, last)
				if sum, _ := g.tally(first, last, exact); sum != 0 {
					t.Fatalf("seed %d: %d units in buckets %d to %d that were cleared", seed, sum, first, last)
				}
			case 1:
				g.add(last, 1+random.Int64N(3))
			}
			enough := []int64{1, 1 + random.Int64N(10), exact}[random.IntN(3)]
			sum, end := int64(0), first
			for ; end <= last; end++ {
				if sum += g.count(end); sum >= enough {
					break
				}
			}
			if s, e := g.tally(first, last, enough); s != sum || e != min(end, last) {
				t.Fatalf("seed %d: buckets %d to %d have %d units of %d at %d: want %d at %d", seed, first, last, s, enough, e, sum, min(end, last))
			}
			latest := last
			for latest > first && g.count(latest) == 0 {
				latest--
			}
			if i := g.latest(last, first); i != latest {
				t.Fatalf("seed %d: the last bucket with units from %d down to %d is %d: want %d", seed, last, first, i, latest)
			}
			for b, units := range g.blocks {
				sum := int64(0)
				for _, n := range g.counts[b*ringBlock:][:ringBlock] {
					sum += int64(n)
				}
				if units != sum {
					t.Fatalf("seed %d: block %d has %d units: want %d", seed, b, units, sum)
				}
			}
		}
	}
}
