package denycache

import (
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// An entry is one refusal. Once it is in the table only hits changes.
type entry struct {
	hash      uint64
	key       string
	limit     *weir.Limit
	cost      int64
	immediate bool
	// rising entries refuse larger costs as well.
	rising bool
	said   weir.Decision
	// answered is when it was said, by our clock, in ns: not before the store
	// has decided, so that no wait is told too short.
	answered int64
	// until is when the store must be asked again. It counts from when the
	// question was sent, which was before the store decided, so that an entry
	// never lasts longer than the refusal.
	until int64
	hits  atomic.Int32
}

// newEntry makes an entry of a refusal.
func newEntry(ch *weir.Charge, d *weir.Decision, immediate bool) *entry {
	e := &entry{key: strings.Clone(ch.Key), limit: ch.Limit, cost: ch.Cost, immediate: immediate, said: *d}
	switch ch.Limit.Algorithm {
	case weir.FixedWindow:
		e.rising = d.RetryAfter != weir.Never
		if ch.Limit.ChargeRefused && e.rising {
			// The counter is past the limit now: whatever the cost, it is refused.
			e.cost = 1
		}
	case weir.GCRA, weir.LeakyBucket:
		e.rising = d.RetryAfter != weir.Never
	}
	return e
}

// refuses reports whether the entry answers a charge.
func (e *entry) refuses(ch *weir.Charge, immediate bool, now int64) bool {
	if e.limit != ch.Limit || e.immediate != immediate || now >= e.until || now < e.answered {
		return false
	}
	return e.cost == ch.Cost || e.rising && e.cost < ch.Cost && ch.Cost <= fits(e.limit)
}

// fits is the largest cost that a limit can ever grant.
func fits(l *weir.Limit) int64 { return l.Capacity() }

// answer gives the refusal as the store would give it now. It writes in place: a
// copy of what was written just before would have to wait for that.
func (e *entry) answer(ch *weir.Charge, now int64, d *weir.Decision) {
	*d = e.said
	elapsed := time.Duration(now - e.answered).Truncate(time.Microsecond)
	d.Source = weir.SourceDenyCache
	d.At += elapsed.Microseconds()
	if d.ResetAfter != weir.Never {
		d.ResetAfter = max(0, d.ResetAfter-elapsed)
	}
	if d.RetryAfter != weir.Never {
		d.RetryAfter = max(time.Microsecond, d.RetryAfter-elapsed)
		if e.limit.Algorithm != weir.FixedWindow {
			d.RetryAfter += drain(ch.Cost-e.cost, e.limit)
		}
	}
}

// drain is how long a limit takes to drain n units, rounded up to microseconds.
// The products of limits are below 2⁵³, so that they fit.
func drain(n int64, l *weir.Limit) time.Duration {
	if n <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(l.Period.Microseconds()))
	quotient, rest := bits.Div64(high, low, uint64(l.Count))
	if rest > 0 {
		quotient++
	}
	return time.Duration(quotient) * time.Microsecond
}
