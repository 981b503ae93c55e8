package memstore

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// TakeOne decides a take of cost units of one key, as Take decides an act that
// charges nothing else and has no options. It reports false, and has done nothing,
// where only Take can decide: outside the contract, for limits of concurrency and
// those with a count of 0, and for new keys while the store is full. A
// [weir.Limiter] asks it first. A type that embeds a Store and changes Take has to
// change TakeOne too.
func (s *Store) TakeOne(limit *weir.Limit, key string, cost int64) (weir.Decision, bool) {
	rule := limit.Rule()
	if rule == nil || rule.ID == algo.Concurrency || limit.Count == 0 ||
		cost < 0 || cost > weir.MaxCost || len(key) > weir.MaxKeyBytes {
		return weir.Decision{}, false
	}
	return s.one(limit, key, want{cost: cost, asked: cost})
}

// single decides a take of one key, if that is what the act is.
func (s *Store) single(a *weir.Act) bool {
	if a.Kind != weir.Take || len(a.Charges) != 1 || a.ID != "" {
		return false
	}
	c := &a.Charges[0]
	if c.UpTo != 0 {
		return false
	}
	d, done := s.one(c.Limit, c.Key, want{
		cost: c.Cost, asked: c.Cost, longest: a.MaxWait.Microseconds(), immediate: a.Immediate,
	})
	if done {
		a.Decisions[0] = d
	}
	return done
}

// one is what take does for an act with one charge and no id, without the scratch
// memory of a call. It leaves new keys to take while the overflow is in use.
func (s *Store) one(limit *weir.Limit, key string, w want) (d weir.Decision, done bool) {
	rule := limit.Rule()
	named := s.name(rule.ID, key)
	sh := &s.shards[named.shard()]
	sh.mu.Lock()
	t, now := &sh.one, s.now()
	t.name, t.limit, t.rule, t.step = named, limit, rule, &algo.Steps[rule.ID]
	full := s.load(t, now)
	if done = t.known || !full && !s.overflow.active.Load(); done {
		t.age(now)
		t.decide(&d, &w, now)
		s.publish(t, now)
		t.report(&d, &w, now)
	}
	sh.mu.Unlock()
	return d, done
}

// decide charges the key if that fits, now or in time.
func (t *slot) decide(d *weir.Decision, w *want, now int64) {
	d.Source, d.At = weir.SourceStore, now
	switch {
	case w.cost == 0 || t.fits(w, now):
		d.Outcome, d.Granted, d.Delay = weir.Granted, w.cost, time.Duration(w.delay)*time.Microsecond
		t.state.Used += w.cost
	case t.rule.ChargeRefused:
		d.Outcome = weir.Refused
		t.owe(w.cost)
	default:
		d.Outcome = weir.Refused
	}
}
