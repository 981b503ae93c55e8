package algo

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// An event is a charge of a history, with the units that were not refunded, or a refill of a
// token bucket.
type event struct {
	at, units int64
	refill    bool
}

// replay returns the state after these events.
func replay(r *Rule, all []event, now int64) State {
	var s State
	if r.ID == TokenBucket {
		// The refill clock is the store's: it began with a charge, even if that was refunded since.
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

// randomRefunds makes a random history of charges and refunds. After each step it calls f with the
// state, and with that of a history without the refunded units.
func randomRefunds(r *Rule, seed uint64, steps int, f func(got, want State, now int64)) {
	rng := rand.New(rand.NewPCG(seed, 7))
	now := int64(1_700_000_000) * second
	var s State
	var all []event
	pace := []int64{100, r.Period / 1000, r.Period / 50, r.Period / 10, r.Period}[rng.IntN(5)]
	most := []int64{1, 3, r.Burst/10 + 1, r.Burst}[rng.IntN(4)]
	often := 1 + rng.IntN(9) // of ten acts are refunds
	for range steps {
		now += rng.Int64N(pace + 1)
		added := int64(0)
		for i := int64(1); r.ID == TokenBucket && s.At+i*r.Period <= now && i <= ceilDiv(s.Used, r.Count); i++ {
			all = append(all, event{at: s.At + i*r.Period, refill: true})
		}
		r.Age(&s, now)
		if rng.IntN(10) < often && len(all) > 0 {
			// Mostly young ones, as holds are.
			g := &all[len(all)-1-min(rng.IntN(len(all)), rng.IntN(len(all)), 30)]
			if g.units > 0 {
				back := 1 + rng.Int64N(g.units)
				if rng.IntN(2) == 0 {
					back = g.units
				}
				r.Refund(&s, now, Grant{Units: back, Whole: g.units, At: g.at})
				s.Refundable = maxMarks > 0
				g.units -= back
			}
		} else if n := 1 + rng.Int64N(most); s.Used+n <= r.Burst {
			s.Refundable = maxMarks > 0
			s.Used += n
			added = n
			all = append(all, event{at: now, units: n})
		}
		r.Save(&s, now, added)
		f(s, replay(r, all, now), now)
	}
}

func lowWaterRules() []Rule {
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
// units. With all low-water marks the levels are equal; with fewer, they are never below.
func TestRefundsAgainstReplay(t *testing.T) {
	defer func(most int) { maxMarks = most }(maxMarks)
	for _, most := range []int{1 << 30, 24, 16, 12, 8, 4, 0} {
		maxMarks = most
		for _, r := range lowWaterRules() {
			differ, below, steps, worst, sum := 0, 0, 0, 0.0, 0.0
			for seed := range uint64(20) {
				randomRefunds(&r, seed, 200, func(got, want State, now int64) {
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
			name := fmt.Sprintf("marks %d %s %d/%ds burst %d", most, Steps[r.ID].Name, r.Count, r.Period/second, r.Burst)
			t.Logf("%s: %.2f%% differ, %d below, worst %.2f units (%.1f%% of burst), mean %.4f", name, 100*float64(differ)/float64(steps), below, worst, 100*worst/float64(r.Burst), sum/float64(steps))
			if below > 0 {
				t.Errorf("%s: %d refunds returned too much", name, below)
			}
			if most == 1<<30 && differ > 0 {
				t.Errorf("%s: %d of %d differ", name, differ, steps)
			}
		}
	}
}
