package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Twins are two Takers on one clock that must give equal answers to any history.
type Twins struct {
	A, B  weir.Taker
	Clock *Clock
	// Seed makes a history repeatable.
	Seed uint64
	// Algorithms are what the history uses. Empty: all.
	Algorithms []weir.Algorithm
}

const (
	twinKeys   = 4  // keys an algorithm
	twinActs   = 24 // most acts a call
	twinEpochs = 50 // calls before the limits change
)

// Compare drives both with one random history of so many acts, with limits that
// change on the way and a clock that also goes back, and returns the first
// difference.
func (w Twins) Compare(acts int) error {
	h := newHistory(w)
	if err := h.ask(h.first()); err != nil {
		return err
	}
	for calls := 0; h.done < acts; calls++ {
		if calls%twinEpochs == 0 {
			h.change()
		}
		h.tick()
		if err := h.ask(h.acts()); err != nil {
			return fmt.Errorf("seed %d, act %d: %w", w.Seed, h.done, err)
		}
	}
	return nil
}

// A history is what has happened so far.
type history struct {
	Twins
	rng    *rand.Rand
	limits []*weir.Limit // one for each algorithm
	last   weir.Decision // the last refusal
	done   int
}

func newHistory(w Twins) *history {
	h := &history{Twins: w, rng: rand.New(rand.NewPCG(w.Seed, 1))}
	if len(h.Algorithms) == 0 {
		for id := range algo.Steps {
			h.Algorithms = append(h.Algorithms, weir.Algorithm(id))
		}
	}
	h.limits = make([]*weir.Limit, len(h.Algorithms))
	h.change()
	return h
}

// change gives every algorithm another limit, often a near relation.
func (h *history) change() {
	for i, algorithm := range h.Algorithms {
		h.limits[i] = RandomLimit(h.rng, algorithm)
	}
}

// RandomLimit returns a valid limit of an algorithm, such as find mistakes:
// small counts, odd fractions, and now and then something large.
func RandomLimit(rng *rand.Rand, algorithm weir.Algorithm) *weir.Limit {
	periods := []time.Duration{
		time.Millisecond, 7 * time.Millisecond, 100 * time.Millisecond, time.Second, time.Second,
		3 * time.Second, time.Minute, 97 * time.Minute, 24 * time.Hour,
	}
	for {
		l := weir.Per(1+rng.Int64N(20), periods[rng.IntN(len(periods))])
		l.Algorithm = algorithm
		if rng.IntN(8) == 0 {
			l.Count = 1 + rng.Int64N(100_000)
		}
		switch algorithm {
		case weir.GCRA, weir.TokenBucket, weir.LeakyBucket:
			if rng.IntN(2) == 0 {
				l.Burst = 1 + rng.Int64N(30)
			}
		case weir.RollingWindow:
			l.Buckets = 2 + rng.IntN(9)
		case weir.FixedWindow:
			l.Anchor = weir.Anchor(rng.IntN(2))
		}
		l.ChargeRefused = algorithm != weir.Concurrency && rng.IntN(4) == 0
		if compiled, err := l.Compile(); err == nil {
			return compiled
		}
	}
}

// first is one grant for each key, so that both know all keys from then on.
func (h *history) first() []*weir.Act {
	var acts []*weir.Act
	for i := range h.limits {
		for k := range twinKeys {
			acts = append(acts, NewAct(weir.Charge{Key: fmt.Sprint("key ", k), Limit: h.limits[i], Cost: 1}))
		}
	}
	return acts
}

// NewAct returns an act with room for its answers.
func NewAct(charges ...weir.Charge) *weir.Act {
	return &weir.Act{Charges: charges, Decisions: make([]weir.Decision, len(charges))}
}

// tick moves the clock: not at all, a little, to where something happens, far
// ahead or back.
func (h *history) tick() {
	period := h.limits[h.rng.IntN(len(h.limits))].Period
	switch h.rng.IntN(12) {
	case 0, 1, 2:
		return
	case 3:
		h.Clock.Advance(time.Microsecond)
	case 4, 5:
		if h.last.RetryAfter != weir.Never && h.last.RetryAfter > 0 {
			h.Clock.Set(time.UnixMicro(h.last.At).Add(h.last.RetryAfter - time.Duration(h.rng.IntN(2))*time.Microsecond))
		}
	case 6:
		h.Clock.Advance(period)
	case 7:
		h.Clock.Advance(-time.Duration(h.rng.Int64N(int64(2 * period))))
	case 8:
		h.Clock.Advance(time.Duration(h.rng.Int64N(int64(3 * period))))
	default:
		h.Clock.Advance(time.Duration(h.rng.Int64N(int64(period)/4 + 1000)))
	}
}

func (h *history) acts() []*weir.Act {
	acts := make([]*weir.Act, 1+h.rng.IntN(twinActs))
	for i := range acts {
		acts[i] = h.act()
	}
	return acts
}

func (h *history) act() *weir.Act {
	charges := make([]weir.Charge, 1)
	if h.rng.IntN(3) == 0 {
		charges = make([]weir.Charge, 1+h.rng.IntN(4))
	}
	upTo := h.rng.IntN(6) == 0
	for i := range charges {
		limit := h.limits[h.rng.IntN(len(h.limits))]
		charges[i] = weir.Charge{Key: fmt.Sprint("key ", h.rng.IntN(twinKeys)), Limit: limit, Cost: h.cost(limit)}
		if upTo {
			charges[i].Cost, charges[i].UpTo = 1, 5
		}
	}
	return NewAct(charges...)
}

func (h *history) cost(l *weir.Limit) int64 {
	switch h.rng.IntN(10) {
	case 0:
		return 0
	case 1:
		return h.rng.Int64N(l.Capacity() + 3)
	case 2:
		return max(1, l.Capacity()/2)
	}
	return 1 + h.rng.Int64N(2)
}

// ask puts one call to both and compares the answers.
func (h *history) ask(acts []*weir.Act) error {
	twins := make([]*weir.Act, len(acts))
	for i, a := range acts {
		twins[i] = NewAct(a.Charges...)
	}
	h.A.Take(context.Background(), acts)
	h.B.Take(context.Background(), twins)
	for i, a := range acts {
		if err := compare(a, twins[i]); err != nil {
			return err
		}
		for _, d := range a.Decisions {
			if d.Outcome == weir.Refused {
				h.last = d
			}
		}
	}
	h.done += len(acts)
	return nil
}

func compare(a, b *weir.Act) error {
	if a.Err != nil || b.Err != nil {
		if errors.Is(a.Err, weir.ErrInvalid) && errors.Is(b.Err, weir.ErrInvalid) {
			return nil
		}
		return fmt.Errorf("errors %v and %v", a.Err, b.Err)
	}
	for i := range a.Charges {
		if diff := cmp.Diff(a.Decisions[i], b.Decisions[i]); diff != "" {
			c := a.Charges[i]
			return fmt.Errorf("charge %d of %d, key %q, limit %+v, cost %d, up to %d (-a +b):\n%s",
				i, len(a.Charges), c.Key, c.Limit, c.Cost, c.UpTo, diff)
		}
	}
	return nil
}
