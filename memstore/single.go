package memstore

import (
	"time"

	"github.com/weirlimit/weir"
)

// single decides an act that takes of one key and has no id, as take would, unless the
// key may have to share the overflow's budget. It needs no memory but the stack.
func (s *Store) single(a *weir.Act) bool {
	if a.Kind != weir.KindTake || len(a.Charges) != 1 || a.ID != "" || a.Anonymous {
		return false
	}
	c := &a.Charges[0]
	if c.UpTo != 0 {
		return false
	}
	w := &want{cost: c.Cost, asked: c.Cost, keep: c.Keep, longest: a.MaxWait.Microseconds(), immediate: a.Immediate}
	limit, rule, d := c.Limit, c.Limit.Rule(), &a.Decisions[0]
	named := s.name(rule.ID, c.Key)
	sh := &s.shards[named.shard()]
	now := s.read()
	sh.mu.Lock()
	if now = s.now(now, sh.last); s.clock == nil {
		sh.last = now
	}
	e := sh.entry(named)
	i, known := e.cells.find(named)
	if known {
		t, inline := slot{limit: limit, rule: rule}, rule.ExtBytes() == 0
		if e.cells[i].get(&t.state); !inline {
			t.load(e.page, i)
		}
		t.age(now)
		t.decide(d, w, now)
		switch changed := t.save(s.tight(), now); {
		case changed && inline:
			e.cells[i].set(&t.state, seconds(now+t.fresh))
		case changed:
			s.grew(e.page.set(i, &t.state, seconds(now+t.fresh)) + t.state.Ext.Bytes() - t.extBytes)
		}
		t.report(d, w, now)
	} else if !s.overflow.active.Load() {
		known = s.first(&slot{name: named, limit: limit, rule: rule}, w, d, now)
	}
	sh.mu.Unlock()
	return known
}

// first decides the first take of a key, if there is room for it.
func (s *Store) first(t *slot, w *want, d *weir.Decision, now int64) bool {
	if !s.fits(&s.shards[t.name.shard()], t, now) {
		return false
	}
	t.age(now)
	t.decide(d, w, now)
	s.publish(t, now)
	t.report(d, w, now)
	return true
}

// decide charges the key if that fits, now or in time.
func (t *slot) decide(d *weir.Decision, w *want, now int64) {
	*d = weir.Decision{Source: weir.SourceStore, At: now}
	switch {
	case w.cost == 0 || t.fits(w, now):
		d.Outcome, d.Granted, d.Delay = weir.Granted, w.cost, time.Duration(w.delay)*time.Microsecond
		t.state.Used += w.cost
	case t.rule.ChargeRefused:
		d.Outcome = weir.Refused
		t.overcharge(w.cost)
	default:
		d.Outcome = weir.Refused
	}
}
