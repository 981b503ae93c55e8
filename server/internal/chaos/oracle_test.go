package chaos

import (
	"cmp"
	"context"
	"errors"
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
	{"room", judged(room)},
	{"retry after", judged(retryAfter)},
	{"order", judged(order)},
	{"sense", judged(sense)},
	{"away", judged(away)},
	{"errors", judged(errorsKnown)},
	{"recovers", recovers},
	{"books", books},
	{"repeats", repeats},
	{"lifetimes", lifetimes},
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

// room: no refusal where the rule says there is room, however the unknown went.
func room(h *history) error {
	if h.clock {
		return nil
	}
	doubt := map[string]int64{}
	for i := range h.ops {
		if o := &h.ops[i]; o.outcome == unknown {
			doubt[o.key] += o.cost
		}
	}
	takes := func(o *op) bool { return o.kind == acts.KindTake && o.outcome <= refused && o.subject.how <= holder }
	for key, ops := range h.byKey(takes) {
		s := ops[0].subject
		for i := range ops {
			if o := &ops[i]; o.outcome == refused && o.stores() {
				if used := s.used(ops, i) + doubt[key]; used+o.cost <= s.limit.Capacity() {
					return fmt.Errorf("%v: only %d were used", o, used)
				}
			}
		}
	}
	return nil
}

// used is the most that can count when ops[i] was decided.
func (s *subject) used(ops []op, i int) int64 {
	now, period := ops[i].at(), s.limit.Period.Microseconds()
	counts := func(at int64) bool { return at > now-period }
	switch s.limit.Algorithm {
	case weir.FixedWindow:
		counts = func(at int64) bool { return at/period == now/period }
	case weir.RollingWindow:
		width := (period + int64(s.limit.Buckets) - 1) / int64(s.limit.Buckets)
		counts = func(at int64) bool { return at > now-period-width }
	case weir.SlidingCounter:
		counts = func(at int64) bool { return at/period >= now/period-1 }
	case weir.TokenBucket, weir.GCRA, weir.LeakyBucket:
		return s.level(ops, i)
	}
	sum := int64(0)
	for _, o := range ops {
		if o.at() <= now && counts(o.at()) {
			sum += o.Granted
		}
	}
	return sum
}

// level is what is in the bucket when ops[i] is decided, as acts decided at the same
// instant came before it. The tokens of token_bucket come at latest a period late.
func (s *subject) level(ops []op, i int) int64 {
	num, period, now := s.limit.Count, s.limit.Period.Microseconds(), ops[i].at()
	level, at := int64(0), int64(0) // units × period
	drain := func(to int64) {
		level, at = max(0, level-(to-at)*num), to
	}
	for _, o := range ops {
		if o.at() > now {
			break
		}
		drain(o.at())
		level += o.Granted * period
	}
	drain(now)
	if s.limit.Algorithm == weir.TokenBucket {
		level += num * period
	}
	return (level + period - 1) / period
}

// retryAfter: nobody is granted as much within the time that a refused caller was
// told to wait; that time is exact, so nobody can be. A slot may be free at any moment, and so
// may be what a caller was charged who got an error: it is refunded.
func retryAfter(h *history) error {
	if h.clock || h.losses > 0 {
		return nil
	}
	refunded := map[string]int64{} // by key, when the first of these was asked for
	for i := range h.ops {
		o := &h.ops[i]
		if first, found := refunded[o.key]; o.outcome == unknown && (!found || o.call < first) {
			refunded[o.key] = o.call
		}
	}
	for _, ops := range h.byKey(func(o *op) bool { return o.stores() && o.subject.how < holder }) {
		for i := range ops {
			told := ops[i]
			if told.outcome != refused {
				continue
			}
			for _, o := range ops[i:] {
				after := o.at() - told.at()
				if after >= told.RetryAfter.Microseconds() {
					break
				}
				first, found := refunded[o.key]
				if after > 0 && o.outcome == granted && o.cost >= told.cost && !(found && first < o.ret) {
					return fmt.Errorf("%v: granted after %d µs: %v", &told, after, &o)
				}
			}
		}
	}
	return nil
}

// order: the store's instants agree with who was answered before whom.
func order(h *history) error {
	if h.clock {
		return nil
	}
	byCall := slices.DeleteFunc(slices.Clone(h.ops), func(o op) bool { return !o.stores() || o.tries > 1 })
	byReturn := slices.Clone(byCall)
	slices.SortFunc(byCall, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(byReturn, func(a, b op) int { return cmp.Compare(a.ret, b.ret) })
	latest, next := new(op), 0
	for i := range byCall {
		for ; byReturn[next].ret < byCall[i].call; next++ {
			if byReturn[next].at() > latest.at() {
				latest = &byReturn[next]
			}
		}
		if byCall[i].at() < latest.at() {
			return fmt.Errorf("%v was decided before %v, and asked after it", &byCall[i], latest)
		}
	}
	return nil
}

// sense: every answer is one that its key's limit can give.
func sense(h *history) error {
	for i := range h.ops {
		o := &h.ops[i]
		if o.outcome > refused || o.kind != acts.KindTake {
			continue
		}
		whole := o.outcome == granted && o.Granted == o.cost && o.RetryAfter == 0 ||
			o.outcome == refused && o.Granted == 0 && o.RetryAfter > 0
		if !whole || o.Remaining < 0 || o.Remaining > o.subject.limit.Capacity() || o.At.IsZero() {
			return fmt.Errorf("%v makes no sense", o)
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
	tried, again := 0, 0
	for i := range w.history.ops {
		o := &w.history.ops[i]
		if o.id == "" || o.subject.how == holder {
			continue
		}
		if o.outcome > refused {
			return fmt.Errorf("%v: never answered", o)
		}
		if o.tries > 1 {
			tried++
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

// lifetimes: no key lives for ever.
func lifetimes(ctx context.Context, w *world) error {
	most := decades + 2*time.Hour
	if w.history.clock {
		most += 24 * time.Hour // an expiry is an instant of Redis's clock, which went back
	}
	keys, err := w.admin.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return errors.New("there are no keys")
	}
	for _, key := range keys {
		ttl, err := w.admin.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		const gone = time.Duration(-2)
		if ttl != gone && (ttl < 0 || ttl > most) { // none is negative; 0 is less than a millisecond
			return fmt.Errorf("key %q has a time to live of %v", key, ttl)
		}
	}
	return nil
}
