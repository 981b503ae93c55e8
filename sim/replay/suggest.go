package replay

import (
	"context"
	"math"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// Counts are tried from a sixteenth of the limit's to 256 times that, each about
// a quarter above the one before.
const (
	lowestTried  = 1.0 / 16
	highestTried = 256
)

var rounded = []float64{1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4, 8}

// A ladder tries other counts for a limit on the same requests, each as if it
// were the only rule.
type ladder struct {
	steps []step
	act   weir.Act
	acts  []*weir.Act
}

// A step is one count that is tried.
type step struct {
	limit   *weir.Limit
	store   *memstore.Store
	refused int64
}

func newLadder(l *weir.Limit, newStore func() *memstore.Store) *ladder {
	d := &ladder{act: weir.Act{Charges: make([]weir.Charge, 1), Decisions: make([]weir.Decision, 1)}}
	d.acts = []*weir.Act{&d.act}
	if l.Count == 0 {
		return d
	}
	for _, count := range tried(l.Count) {
		other := *l
		other.Count = count
		if l.Burst > 0 {
			other.Burst = max(1, int64(math.Round(float64(l.Burst)*float64(count)/float64(l.Count))))
		}
		if compiled, err := other.Compile(); err == nil {
			d.steps = append(d.steps, step{limit: compiled, store: newStore()})
		}
	}
	return d
}

// tried returns round counts around one, and that itself, ascending.
func tried(count int64) []int64 {
	low, high := float64(count)*lowestTried, float64(count)*highestTried
	counts := []int64{count}
	for unit := 1.0; unit <= high; unit *= 10 {
		for _, r := range rounded {
			if n := math.Ceil(r * unit); n >= low && n <= high {
				counts = append(counts, int64(n))
			}
		}
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}

// take asks every step what the act asked of the limit.
func (d *ladder) take(act *weir.Act, charge int) {
	d.act.MaxWait, d.act.Immediate = act.MaxWait, act.Immediate
	for i := range d.steps {
		s := &d.steps[i]
		d.act.Charges[0] = act.Charges[charge]
		d.act.Charges[0].Limit = s.limit
		if s.store.Take(context.Background(), d.acts); !d.act.Allowed() {
			s.refused++
		}
	}
}

// A Suggestion is the lowest of the limits that were tried that refuses no more
// than was asked for.
type Suggestion struct {
	Limit   weir.Limit
	Refused int64
	// Found is false if even the highest limit refuses more: it is Limit then.
	Found bool
	// Lowest is set if no lower limit was tried.
	Lowest bool
}

// suggest returns the suggestion for a share of the requests that matched; nil if
// no limit was tried.
func (d *ladder) suggest(share float64, matched int64) *Suggestion {
	if len(d.steps) == 0 || matched == 0 {
		return nil
	}
	// From the top: a lower limit hardly ever refuses less, but may.
	best := len(d.steps)
	for best > 0 && float64(d.steps[best-1].refused) <= share*float64(matched) {
		best--
	}
	if best == len(d.steps) {
		last := &d.steps[best-1]
		return &Suggestion{Limit: *last.limit, Refused: last.refused}
	}
	s := &d.steps[best]
	return &Suggestion{Limit: *s.limit, Refused: s.refused, Found: true, Lowest: best == 0}
}
