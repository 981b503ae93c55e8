package replay

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
)

// Counts are tried from a sixteenth of the limit's to 256 times that, each about
// a quarter above the one before.
const (
	lowestTried  = 1.0 / 16
	highestTried = 256
)

var rounded = []float64{1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4, 8}

// batch is how many requests wait before the steps are asked: asking one step after
// another keeps its keys at hand, and several at once uses all cores.
const batch = 4096

// A ladder tries other counts for a limit, or for a budget of several, on the same
// requests, each as if there were no other.
type ladder struct {
	steps   []*step
	waiting []request
	matched int64 // requests
}

// A request has the cost that was charged to the limit, and its time.
type request struct {
	charge    weir.Charge
	maxWait   time.Duration
	immediate bool
	at        int64
}

// A step is one count that is tried.
type step struct {
	limit   *weir.Limit
	store   *memengine.Store
	now     int64
	acts    []*weir.Act
	refused int64
	clients map[string]struct{} // refused, at most kept
}

func newLadder(l *weir.Limit, bytes int64) *ladder {
	d := &ladder{waiting: make([]request, 0, batch)}
	if l.Count == 0 {
		return d
	}
	for _, count := range tried(l.Count) {
		other := *l
		other.Count = count
		if l.Burst > 0 {
			other.Burst = max(1, int64(math.Round(float64(l.Burst)*float64(count)/float64(l.Count))))
		}
		compiled, err := other.Compile()
		if err != nil {
			// Beyond what limits can be.
			continue
		}
		s := &step{limit: compiled, clients: map[string]struct{}{}, acts: []*weir.Act{{Charges: make([]weir.Charge, 1), Decisions: make([]weir.Decision, 1)}}}
		s.store = memengine.New(memengine.Options{MaxBytes: bytes, Now: func() time.Time { return time.UnixMicro(s.now) }})
		d.steps = append(d.steps, s)
	}
	return d
}

// take notes the charges of an act to the limit.
func (d *ladder) take(act *weir.Act, charge int, at int64) {
	d.matched++
	d.waiting = append(d.waiting, request{act.Charges[charge], act.MaxWait, act.Immediate, at})
	if len(d.waiting) == batch {
		d.flush()
	}
}

// flush lets every step decide the requests that were noted.
func (d *ladder) flush() {
	var group sync.WaitGroup
	cores := min(runtime.GOMAXPROCS(0), len(d.steps))
	for core := range cores {
		group.Go(func() {
			for i := core; i < len(d.steps); i += cores {
				d.steps[i].play(d.waiting)
			}
		})
	}
	group.Wait()
	clear(d.waiting)
	d.waiting = d.waiting[:0]
}

func (s *step) play(requests []request) {
	act := s.acts[0]
	for i := range requests {
		r := &requests[i]
		s.now, act.MaxWait, act.Immediate = r.at, r.maxWait, r.immediate
		act.Charges[0] = r.charge
		act.Charges[0].Limit = s.limit
		if s.store.Take(context.Background(), s.acts); !act.Allowed() {
			s.refused++
			if _, known := s.clients[r.charge.Key]; !known && len(s.clients) < kept {
				s.clients[strings.Clone(r.charge.Key)] = struct{}{}
			}
		}
	}
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

// shared is how many charges had to share a budget for want of memory.
func (d *ladder) shared() int64 {
	n := int64(0)
	for _, s := range d.steps {
		n += s.store.Stats().Overflowed
	}
	return n
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
	// Matched is how many requests there were, of all limits that charge one budget.
	Matched int64
}

// suggest returns the suggestion for a share of the requests; nil if no limit was tried.
func (d *ladder) suggest(share float64) *Suggestion {
	d.flush()
	if len(d.steps) == 0 || d.matched == 0 {
		return nil
	}
	// From the top: a lower limit hardly ever refuses less, but may.
	best := len(d.steps)
	for best > 0 && float64(d.steps[best-1].refused) <= share*float64(d.matched) {
		best--
	}
	if best == len(d.steps) {
		last := d.steps[best-1]
		return &Suggestion{Limit: *last.limit, Refused: last.refused, Matched: d.matched}
	}
	s := d.steps[best]
	return &Suggestion{Limit: *s.limit, Refused: s.refused, Found: true, Lowest: best == 0, Matched: d.matched}
}

// A Step is a limit that was tried, with the requests and clients that it refuses.
type Step struct {
	Limit   weir.Limit
	Refused int64
	Clients Distinct
}

// around returns the limits that were tried around a suggestion, the lowest first.
func (d *ladder) around(s *Suggestion) []Step {
	const each = 4
	if s == nil {
		return nil
	}
	at := slices.IndexFunc(d.steps, func(step *step) bool { return step.limit.Count == s.Limit.Count })
	var steps []Step
	for _, step := range d.steps[max(0, at-each):min(len(d.steps), at+each+1)] {
		n := len(step.clients)
		steps = append(steps, Step{*step.limit, step.refused, Distinct{int64(n), n == kept}})
	}
	return steps
}
