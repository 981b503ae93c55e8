package rls

import (
	"math"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A ruling is what one limit says to a descriptor.
type ruling struct {
	over      bool
	remaining int64
	wait      time.Duration // until it would pass, or the window ends
	count     int64         // of the limit
}

// rule reads a decision. What was asked may be more than was charged.
func (s *Service) rule(a *rules.Applied, cost int64) ruling {
	if a.Act == nil {
		return ruling{remaining: math.MaxUint32, count: math.MaxUint32}
	}
	d := &a.Act.Decisions[a.Charge]
	r := ruling{remaining: room(a, d), wait: d.ResetAfter, count: a.Limit.Count, over: d.Outcome == weir.Refused}
	if r.over && d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		r.wait = d.RetryAfter
	}
	if counted(a) {
		r.wait = s.untilWindowEnds(a.Limit, d.At)
	}
	if looks(a) {
		r.over = refuses(&r, a, cost)
	}
	if r.over {
		r.remaining = 0
	}
	r.remaining = max(0, r.remaining)
	r.over = r.over && !a.Rule.Shadow
	return r
}

// counted reports whether a limit counts as those do that name no algorithm. What
// a key has instead of it says only what remains.
func counted(a *rules.Applied) bool { return a.Rule.Counter() != nil && !a.Overridden }

// room is what would be granted now, negative by as much as the limit is
// exceeded where that is known.
func room(a *rules.Applied, d *weir.Decision) int64 {
	switch {
	case a.Limit.Algorithm == weir.LeakyBucket && d.ResetAfter > 0:
		// Whatever is still in the bucket would have to be waited for.
		return 0
	case looks(a) && counted(a):
		return a.Limit.Count - (a.Rule.Counter().Count - d.Remaining)
	}
	return d.Remaining
}

// refuses reports whether a look is over the limit: where one more unit, or what
// was asked in vain, would be refused. Rules that name no algorithm say so only
// once they are exceeded.
func refuses(r *ruling, a *rules.Applied, cost int64) bool {
	if counted(a) {
		return r.remaining < 0 || cost > mostHits(a.Limit)
	}
	return max(1, cost) > r.remaining
}

// untilWindowEnds counts whole seconds from the second that the store was in, or
// that it is where no store was asked.
func (s *Service) untilWindowEnds(l *weir.Limit, at int64) time.Duration {
	now := at / 1_000_000
	if at == 0 {
		now = s.options.Now().Unix()
	}
	window := int64(l.Period / time.Second)
	return time.Duration(window-now%window) * time.Second
}

// stricterThan reports whether a limit, and not another one of the same
// descriptor, speaks for both.
func (r *ruling) stricterThan(other *ruling) bool {
	switch {
	case r.over != other.over:
		return r.over
	case r.over:
		return r.wait > other.wait
	}
	// Counts and remainders are below 2³², so the products fit.
	return uint64(r.remaining)*uint64(other.count) < uint64(other.remaining)*uint64(r.count)
}

// tell puts the ruling into a status, whose limit is told where there is room for it.
func (r *ruling) tell(a *rules.Applied, s *Status, current *CurrentLimit) {
	*s = Status{Over: r.over, Remaining: uint32(min(r.remaining, math.MaxUint32))}
	if a.Limit == nil {
		return
	}
	*current = currentLimit(a)
	s.Limit, s.Reset = current, r.wait.Truncate(time.Second)
	if s.Reset < r.wait {
		// A client that waits as long as it is told must not be early.
		s.Reset += time.Second
	}
}

var lengths = [...]struct {
	unit   Unit
	length time.Duration
}{
	{Year, 365 * 24 * time.Hour},
	{Month, 30 * 24 * time.Hour},
	{Week, 7 * 24 * time.Hour},
	{Day, 24 * time.Hour},
	{Hour, time.Hour},
	{Minute, time.Minute},
	{Second, time.Second},
}

// currentLimit tells a limit in the units that answers have. One whose period is
// no whole seconds is told as what it allows in the next whole second.
func currentLimit(a *rules.Applied) CurrentLimit {
	current := CurrentLimit{Name: a.Rule.Name}
	if a.Rule.Grouped {
		current.Name = a.Limit.Name
	}
	count, period := a.Limit.Count, a.Limit.Period
	if rest := period % time.Second; rest > 0 {
		rest = time.Second - rest
		// A count is below 2³² and a rest below 1000 ms, so the product fits.
		count += count * rest.Milliseconds() / period.Milliseconds()
		period += rest
	}
	current.Requests = uint32(min(count, math.MaxUint32))
	for _, l := range lengths {
		if period%l.length == 0 {
			current.Unit, current.Multiplier = l.unit, uint32(period/l.length)
			break
		}
	}
	return current
}
