package sim

import (
	"slices"

	"github.com/weirlimit/weir"
)

const (
	// points is the number of intervals of a course of events.
	points = 240
	// followed is how many keys are looked at between their grants.
	followed = 10_000
)

// A tally counts the grants of a scenario's clients.
type tally struct {
	period  int64 // µs
	width   int64 // of a point, µs
	point   int
	run     Run
	offered []int64 // by client
	granted []int64 // by client
	recent  []recent
}

// recent is the grants of the last period to one key: when they may be used.
type recent struct {
	at   []int64
	head int
}

func newTally(s *Scenario, limit *weir.Limit) *tally {
	duration := s.Duration.Microseconds()
	width := max(1, (duration+points-1)/points)
	n := int((duration + width - 1) / width)
	return &tally{
		period: limit.Period.Microseconds(), width: width,
		run: Run{
			Algorithm: limit.Algorithm,
			Offers:    make([]int64, n), Grants: make([]int64, n), Held: make([]int64, n),
		},
		offered: make([]int64, s.clients()), granted: make([]int64, s.clients()), recent: make([]recent, s.Keys),
	}
}

// pass moves on to an instant and reports whether that begins another point.
func (t *tally) pass(at int64) bool {
	last := min(int(at/t.width), len(t.run.Held)-1)
	moved := t.point < last
	for t.point < last {
		t.point++
		instant := int64(t.point) * t.width
		held := 0
		for i := range min(len(t.recent), followed) {
			held = max(held, t.recent[i].count(instant, t.period))
		}
		t.run.Held[t.point] = max(t.run.Held[t.point], int64(held))
	}
	return moved
}

// count notes the answer to a request.
func (t *tally) count(a arrival, key int, d weir.Decision) {
	r := &t.run
	r.Offered++
	r.Offers[t.point]++
	t.offered[a.client]++
	if a.attempt == 0 {
		r.Requests++
	}
	if !d.Allowed() {
		return
	}
	r.Granted++
	r.Grants[t.point]++
	t.granted[a.client]++
	r.LongestDelay = max(r.LongestDelay, d.Delay)
	use := a.at + d.Delay.Microseconds()
	held := int64(t.recent[key].push(use, t.period))
	r.Worst = max(r.Worst, held)
	if i := use / t.width; i < int64(len(r.Held)) {
		r.Held[i] = max(r.Held[i], held)
	}
}

// push adds an instant, not before the last one, and returns how many lie in the
// half-open period that ends with it.
func (r *recent) push(at, period int64) int {
	r.drop(at - period)
	if r.head > len(r.at)/2 {
		r.at = r.at[:copy(r.at, r.at[r.head:])]
		r.head = 0
	}
	r.at = append(r.at, at)
	return len(r.at) - r.head
}

func (r *recent) drop(until int64) {
	for r.head < len(r.at) && r.at[r.head] <= until {
		r.head++
	}
}

func (r *recent) count(now, period int64) int {
	r.drop(now - period)
	later, _ := slices.BinarySearch(r.at[r.head:], now+1)
	return later
}

// jain returns the fairness of the grants of all clients that sent requests: 1 if all got
// the same, 1/n if one got it all.
func (t *tally) jain() float64 {
	sum, squares, n := 0.0, 0.0, 0.0
	for i, x := range t.granted {
		if t.offered[i] > 0 {
			sum, squares, n = sum+float64(x), squares+float64(x)*float64(x), n+1
		}
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}
