package algo

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A taking is a charge of a history, with the units that are left of it, or a refill of a
// token bucket.
type taking struct {
	at, units int64
	refill    bool
}

// replay returns the state that the takings lead to, with what is left of them.
func replay(r *Rule, all []taking, now int64) State {
	var s State
	if r.ID == TokenBucket {
		// The refill clock is the store's: it began with a charge, whatever became of that.
		for _, g := range all {
			if s.Used += g.units; g.refill {
				s.Used = max(0, s.Used-r.Count)
			}
		}
		return s
	}
	for _, g := range all {
		r.Age(&s, g.at)
		s.Used += g.units
	}
	r.Age(&s, now)
	return s
}

func levelAt(s *State, r *Rule, now int64) int64 {
	if r.ID == TokenBucket {
		return s.Used
	}
	return gcraLevel(s, r, now)
}

// walk makes a random history of charges and refunds, and calls f with the state and that of the
// net history after each.
func walk(r *Rule, seed uint64, steps int, f func(got, want State, now int64)) {
	rng := rand.New(rand.NewPCG(seed, 7))
	now := int64(1_700_000_000) * second
	var s State
	var all []taking
	pace := []int64{100, r.Period / 1000, r.Period / 50, r.Period / 10, r.Period}[rng.IntN(5)]
	most := []int64{1, 3, r.Burst/10 + 1, r.Burst}[rng.IntN(4)]
	often := 1 + rng.IntN(9) // of ten acts are refunds
	for range steps {
		now += rng.Int64N(pace + 1)
		added := int64(0)
		for i := int64(1); r.ID == TokenBucket && s.At+i*r.Period <= now && i <= ceilDiv(s.Used, r.Count); i++ {
			all = append(all, taking{at: s.At + i*r.Period, refill: true})
		}
		r.Age(&s, now)
		if rng.IntN(10) < often && len(all) > 0 {
			// Young ones mostly, as holds are.
			g := &all[len(all)-1-min(rng.IntN(len(all)), rng.IntN(len(all)), 30)]
			if g.units > 0 {
				back := 1 + rng.Int64N(g.units)
				if rng.IntN(2) == 0 {
					back = g.units
				}
				r.Refund(&s, now, Grant{Units: back, Whole: g.units, At: g.at})
				g.units -= back
			}
		} else if n := 1 + rng.Int64N(most); s.Used+n <= r.Burst {
			if maxLows > 0 {
				r.KeepLows(&s, now)
			}
			s.Used += n
			added = n
			all = append(all, taking{at: now, units: n})
		}
		r.Save(&s, now, added)
		f(s, replay(r, all, now), now)
	}
}

func lowsRules() []Rule {
	var all []Rule
	for _, id := range []ID{GCRA, TokenBucket, LeakyBucket} {
		for _, n := range [][3]int64{{60, 60 * second, 60}, {7, 3 * second, 20}, {1000, second, 5000}, {90_000, 60 * second, 90_000}, {1, 10 * second, 3}} {
			r := Rule{ID: id, Count: n[0], Period: n[1], Burst: n[2]}
			if !r.Compile() {
				panic("rule")
			}
			all = append(all, r)
		}
	}
	return all
}

// TestRefundsAgainstReplay compares refunds with replays of the history without the refunded
// units: with all points they agree exactly for levels; with some, nothing is given back twice.
func TestRefundsAgainstReplay(t *testing.T) {
	defer func(most int) { maxLows = most }(maxLows)
	for _, most := range []int{1 << 30, 24, 16, 12, 8, 4, 0} {
		maxLows = most
		for _, r := range lowsRules() {
			differ, below, steps, worst, sum := 0, 0, 0, 0.0, 0.0
			for seed := range uint64(60) {
				walk(&r, seed, 600, func(got, want State, now int64) {
					steps++
					a, b := levelAt(&got, &r, now), levelAt(&want, &r, now)
					den := r.Den
					if r.ID == TokenBucket {
						den = 1
					}
					if a != b {
						differ++
					}
					if a < b {
						below++
					}
					off := float64(a-b) / float64(den)
					worst, sum = max(worst, off), sum+max(0, off)
				})
			}
			name := fmt.Sprintf("points %d %s %d/%ds burst %d", most, Steps[r.ID].Name, r.Count, r.Period/second, r.Burst)
			t.Logf("%s: %.2f%% differ, %d below, worst %.2f units (%.1f%% of burst), mean %.4f", name, 100*float64(differ)/float64(steps), below, worst, 100*worst/float64(r.Burst), sum/float64(steps))
			if below > 0 {
				t.Errorf("%s: %d times too much was given back", name, below)
			}
			if most == 1<<30 && differ > 0 {
				t.Errorf("%s: %d of %d differ", name, differ, steps)
			}
		}
	}
}
