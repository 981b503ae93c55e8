package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// An oracle judges a history. It is given the store to look into.
type oracle struct {
	name  string
	judge func(context.Context, *world) error
}

// oracles are all that is held against every history.
var oracles = []oracle{
	{"bounds", judged(bounds)},
	{"away", judged(away)},
	{"errors", judged(errorsKnown)},
	{"recovers", recovers},
	{"books", books},
	{"repeats", repeats},
	{"chains", chains},
}

func judged(judge func(*history) error) func(context.Context, *world) error {
	return func(_ context.Context, w *world) error { return judge(w.history) }
}

// bounds: never more granted than the algorithm's bound, by the store's clock and
// by ours, which no fault reaches. By ours a grant counts only where all of it, from
// call to answer, lies within.
func bounds(h *history) error {
	for _, ops := range h.byKey(func(o *op) bool { return o.outcome == granted && o.kind == acts.KindTake && o.subject.how <= holder }) {
		s := ops[0].subject
		if !h.clock {
			stamps := make([]span, len(ops))
			for i := range ops {
				stamps[i] = span{ops[i].at() * 1000, ops[i].at() * 1000}
			}
			if err := within(s, stamps, ops, h.losses); err != nil {
				return fmt.Errorf("by the store's clock: %w", err)
			}
			if err := windows(s, ops, h.losses); err != nil {
				return err
			}
		}
		stamps := make([]span, len(ops))
		for i := range ops {
			stamps[i] = span{ops[i].call, ops[i].ret}
		}
		if err := within(s, stamps, ops, h.losses); err != nil {
			return fmt.Errorf("by our clock: %w", err)
		}
	}
	return nil
}

// within demands the bound of every stretch that begins with one act and ends with
// another.
func within(s *subject, stamps []span, ops []op, losses int64) error {
	type grant struct {
		span
		units int64
	}
	grants := make([]grant, len(ops))
	for i := range ops {
		grants[i] = grant{stamps[i], ops[i].Granted}
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.to, b.to) })
	for i := range grants {
		sum := int64(0)
		for _, g := range grants {
			if g.from < grants[i].from {
				continue
			}
			sum += g.units
			d := time.Duration(g.to - grants[i].from)
			if most := s.most(d) + losses*s.limit.Capacity(); sum > most {
				return fmt.Errorf("%s: %d granted in %v, at most %d", s.name, sum, d, most)
			}
		}
	}
	return nil
}

// windows: what each window of fixed_window was granted.
func windows(s *subject, ops []op, losses int64) error {
	if s.limit.Algorithm != weir.FixedWindow {
		return nil
	}
	sums := map[int64]int64{}
	for i := range ops {
		w := ops[i].at() / s.limit.Period.Microseconds()
		sums[w] += ops[i].Granted
		if most := s.limit.Count * (1 + losses); sums[w] > most {
			return fmt.Errorf("%s: %d granted in one window, at most %d", s.name, sums[w], most)
		}
	}
	return nil
}

// away: what was asked and answered while the store was not there did not come from
// it.
func away(h *history) error {
	for i := range h.ops {
		o := &h.ops[i]
		for _, s := range h.away {
			if o.call > s.from && o.ret < s.to && o.stores() && o.tries <= 1 {
				return fmt.Errorf("%v, while the store was away", o)
			}
		}
	}
	return nil
}

// errorsKnown: every error is one that the fault explains.
func errorsKnown(h *history) error {
	for i := range h.ops {
		if h.ops[i].outcome == failed {
			return fmt.Errorf("%v", &h.ops[i])
		}
	}
	return nil
}

// recovers: once the fault is over, everybody is granted something again.
func recovers(_ context.Context, w *world) error {
	if name := w.back.missing(w.ask); name != "" {
		return fmt.Errorf("%s: nothing granted for %v after the fault", name, time.Duration(w.history.now()-w.history.healed.Load()))
	}
	return nil
}

// books: the store has charged what callers were granted, and no more than what they
// do not know of besides; what was asked under ids exactly once.
func books(ctx context.Context, w *world) error {
	for _, s := range w.ask {
		if s.how != book && s.how != repeat {
			continue
		}
		known, perhaps := w.history.charged(s.name)
		used, err := w.used(ctx, s)
		if err != nil {
			return err
		}
		if used > known+perhaps || used < known && w.history.losses == 0 {
			return fmt.Errorf("%s: %d charged; callers were granted %d, and perhaps %d more", s.name, used, known, perhaps)
		}
	}
	return nil
}

// repeats: who asks again under the same id gets the same answer, and every id was
// answered in the end.
func repeats(ctx context.Context, w *world) error {
	again := 0
	for i := range w.history.ops {
		o := &w.history.ops[i]
		if o.id == "" || o.subject.how == holder {
			continue
		}
		if o.outcome > refused {
			return fmt.Errorf("%v: never answered", o)
		}
		if again++; w.history.losses > 0 || again > 200 || o.subject.how != repeat {
			continue
		}
		if now := w.history.ask(ctx, w.direct, *o); now.Decision != o.Decision || now.err != nil {
			return fmt.Errorf("%v; asked again: %v", o, &now)
		}
	}
	return nil
}
