package denycache

import (
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// An entry is one refusal. Once it is in the table, only hits changes.
type entry struct {
	hash      uint64
	key       string
	limit     *weir.Limit
	need      int64 // the cost and what had to stay free
	keep      int64
	immediate bool
	// rising entries refuse larger needs as well.
	rising bool
	// outdated entries have a decision from before units were granted to others.
	outdated bool
	// act is the act that was refused, see table.actOf, and refusals how many of its charges.
	act      uint64
	refusals int
	decision weir.Decision // the refusal
	// answered is when the reply came, in ns of our clock: not before the store decided, so
	// that no wait is too short.
	answered int64
	// until is when the store must be asked again. It counts from when the act was sent,
	// which was before the store decided, so that an entry never outlives the refusal.
	until int64
	hits  atomic.Int32
}

// newEntry returns the entry of a refusal.
func newEntry(ch *weir.Charge, d *weir.Decision, immediate bool) *entry {
	e := &entry{key: strings.Clone(ch.Key), limit: ch.Limit, need: ch.Cost + ch.Keep, keep: ch.Keep, immediate: immediate, decision: *d}
	traits := algo.TraitsOf(ch.Limit.Algorithm)
	e.rising = (traits.Windows || traits.Drains) && d.RetryAfter != weir.Never
	if d.Blocked {
		e.rising = false // another need may have to wait for longer than the block
	}
	if traits.Windows && ch.Limit.ChargeRefused && e.rising {
		// The counter exceeds the limit now: any cost is refused.
		e.need = 1
	}
	return e
}

// refuses reports whether the entry refuses a charge.
func (e *entry) refuses(ch *weir.Charge, immediate bool, now int64) bool {
	if e.immediate != immediate || now >= e.until || now < e.answered || !e.limit.Alike(ch.Limit) {
		return false
	}
	need := ch.Cost + ch.Keep
	return e.need == need || e.rising && e.need < need && need <= e.limit.Capacity()
}

// answer fills in the refusal as the store would give it now. It writes in place, because
// copying a decision that was just written stalls the processor.
func (e *entry) answer(ch *weir.Charge, now int64, d *weir.Decision) {
	*d = e.decision
	elapsed := time.Duration(now - e.answered).Truncate(time.Microsecond)
	d.Source = acts.SourceDenyCache
	d.Remaining = max(0, d.Remaining-max(0, ch.Keep-e.keep))
	d.At = d.At.Add(elapsed)
	if d.ResetAfter != weir.Never {
		d.ResetAfter = max(0, d.ResetAfter-elapsed)
	}
	if d.RetryAfter != weir.Never {
		d.RetryAfter = max(time.Microsecond, d.RetryAfter-elapsed)
		if need := ch.Cost + ch.Keep; (e.outdated || need != e.need) && algo.TraitsOf(e.limit.Algorithm).Drains {
			d.RetryAfter = e.wait(d.ResetAfter, need)
		}
	}
}

// after returns the entry as it is after other units of its key were granted. It returns
// nil if the store would no longer refuse the entry's cost, because more than that was
// granted.
func (e *entry) after(ch *weir.Charge, d *weir.Decision, now int64) *entry {
	if !e.limit.Alike(ch.Limit) || e.need <= d.Granted+ch.Keep || e.decision.Blocked {
		return nil
	}
	later := &entry{
		hash: e.hash, key: e.key, limit: e.limit, need: e.need, keep: e.keep, immediate: e.immediate, rising: e.rising,
		act: e.act, refusals: e.refusals, outdated: true, decision: e.decision, answered: now, until: e.until,
	}
	later.hits.Store(e.hits.Load())
	later.decision.At, later.decision.ResetAfter = d.At, d.ResetAfter
	later.decision.Remaining = max(0, min(e.decision.Remaining, d.Remaining+ch.Keep-e.keep))
	if e.queues() {
		later.decision.Remaining = 0
	}
	if wait := &later.decision.RetryAfter; *wait != weir.Never {
		*wait = max(time.Microsecond, *wait-time.Duration(now-e.answered).Truncate(time.Microsecond))
	}
	return later
}

// queues reports whether the entry refuses charges that would have to wait in a queue.
func (e *entry) queues() bool { return e.immediate && algo.TraitsOf(e.limit.Algorithm).Delays }

// wait is how long it takes until so much fits a limit that drains, from how long it takes
// to drain all.
func (e *entry) wait(all time.Duration, need int64) time.Duration {
	if !e.queues() {
		all -= drained(e.limit.Capacity()-need, e.limit)
	}
	return max(time.Microsecond, all)
}

// drained is how long a limit takes to drain n units, rounded down to its resolution. The
// products of limits are below 2⁵³, so that they fit.
func drained(n int64, l *weir.Limit) time.Duration {
	r := l.Rule()
	high, low := bits.Mul64(uint64(n), uint64(r.Den))
	ticks, _ := bits.Div64(high, low, uint64(r.Num))
	return time.Duration(int64(ticks)*r.Tick) * time.Microsecond
}
