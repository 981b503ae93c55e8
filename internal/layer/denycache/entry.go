package denycache

import (
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// An entry is one refusal. Once it is in the table, only hits changes.
type entry struct {
	hash      uint64
	key       string
	limit     *weir.Limit
	cost      int64
	immediate bool
	// rising entries refuse larger costs as well.
	rising   bool
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
	e := &entry{key: strings.Clone(ch.Key), limit: ch.Limit, cost: ch.Cost, immediate: immediate, decision: *d}
	traits := ch.Limit.Algorithm.Traits()
	e.rising = (traits.Windows || traits.Drains) && d.RetryAfter != weir.Never
	if traits.Windows && ch.Limit.ChargeRefused && e.rising {
		// The counter exceeds the limit now: any cost is refused.
		e.cost = 1
	}
	return e
}

// refuses reports whether the entry refuses a charge.
func (e *entry) refuses(ch *weir.Charge, immediate bool, now int64) bool {
	if e.limit != ch.Limit || e.immediate != immediate || now >= e.until || now < e.answered {
		return false
	}
	return e.cost == ch.Cost || e.rising && e.cost < ch.Cost && ch.Cost <= e.limit.Capacity()
}

// answer fills in the refusal as the store would give it now. It writes in place, because
// copying a decision that was just written stalls the processor.
func (e *entry) answer(ch *weir.Charge, now int64, d *weir.Decision) {
	*d = e.decision
	elapsed := time.Duration(now - e.answered).Truncate(time.Microsecond)
	d.Source = weir.SourceDenyCache
	d.At += elapsed.Microseconds()
	if d.ResetAfter != weir.Never {
		d.ResetAfter = max(0, d.ResetAfter-elapsed)
	}
	if d.RetryAfter != weir.Never {
		d.RetryAfter = max(time.Microsecond, d.RetryAfter-elapsed)
		if !e.limit.Algorithm.Traits().Windows {
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
