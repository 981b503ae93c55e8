package memengine

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// isSingle reports whether TakeOne may decide the act.
func isSingle(a *weir.Act) bool {
	c := &a.Charges[0]
	return a.Kind == acts.KindTake && len(a.Charges) == 1 && a.ID == "" && !a.Anonymous && !a.Immediate && !a.Dry &&
		a.MaxWait == 0 && c.UpTo == 0 && c.Keep == 0
}

// takeOne decides a plain act by TakeOne.
func (s *Store) takeOne(a *weir.Act) bool {
	c, d := &a.Charges[0], &a.Decisions[0]
	decided := false
	*d, decided = s.TakeOne("", c.Key, c.Limit, c.Cost)
	d.Limit = nil // the charge's own
	return decided
}

// TakeOne decides a valid take of one charge without an act, see [weir.Taker]. It decides
// nothing if the key may be blocked, or may have to share the overflow's budget. It does not
// allocate.
func (s *Store) TakeOne(prefix, key string, limit *weir.Limit, cost int64) (d weir.Decision, decided bool) {
	if limit.Block > 0 {
		return d, false
	}
	var t slot
	t.limit, t.rule = limit, limit.Rule()
	t.name = s.nameOf(t.rule.ID, prefix, key)
	now, sh := s.read(), &s.shards[t.name.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if now = s.now(now, sh.last); s.clock == nil {
		sh.last = now
	}
	e := sh.entry(t.name)
	i, known := e.cells.find(t.name)
	if known {
		t.load(e.page, i)
	} else if s.overflow.active.Load() || !s.fits(sh, &t, now) {
		return d, false
	}
	t.age(now)
	var w want
	w.cost, w.asked = cost, cost
	granted := cost == 0 || t.fits(&w, now)
	if granted {
		t.state.Used += cost
	} else if t.rule.ChargeRefused {
		t.overcharge(cost)
	}
	if !known {
		s.publish(&t, s.tight(), now)
	} else if t.save(s.tight(), now) {
		s.grew(e.page.set(i, &t.state, seconds(now+t.fresh)) + t.state.Ext.Bytes() - t.extBytes)
	}
	d = weir.Decision{
		Outcome: weir.Refused, Source: acts.SourceStore, At: time.UnixMicro(now),
		Remaining: max(0, t.rule.Burst-t.state.Used), ResetAfter: algo.Duration(t.fresh), Limit: limit,
	}
	if granted {
		d.Outcome, d.Granted, d.Delay = weir.Granted, cost, time.Duration(w.delay)*time.Microsecond
	} else {
		d.RetryAfter = algo.Duration(t.retry(&w, now))
	}
	return d, true
}
