package weir

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// Never is the RetryAfter of a charge that will not be granted after any wait:
// its cost is more than the limit can ever grant at once.
const Never time.Duration = algo.Never

// An Outcome is the result of a charge.
type Outcome uint8

const (
	// NotEvaluated: the charge was not evaluated, because another charge of its act
	// had already decided the act, or another alternative of its Group was granted. The
	// zero value.
	NotEvaluated Outcome = iota
	// Granted: the charge was made.
	Granted
	// Refused: the limit had no room for the charge.
	Refused
	// NotCharged: the limit had room, but another charge of the act was refused, so
	// nothing was charged.
	NotCharged
)

var outcomeNames = [...]string{"not_evaluated", "granted", "refused", "not_charged"}

// String returns the outcome's name in JSON, logs and metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// A Source is the part that made a decision.
type Source uint8

const (
	// SourceNone: no decision was made. The zero value.
	SourceNone Source = iota
	// SourceLimit: the limit itself. It has a count of 0 and refuses everything
	// without a store.
	SourceLimit
	// SourceStore: the store that has the key's state.
	SourceStore
	// SourceShadow: the limit would refuse, but its rule only watches.
	SourceShadow
	// SourceDenyCache: this process remembers a refusal of the store that has not
	// ended.
	SourceDenyCache
	// SourceLease: units that this process has leased from the store.
	SourceLease
	// SourceFallback: this process alone, during an outage of the store.
	SourceFallback
	// SourceFailOpen: the store is unreachable, and the limit's policy is to grant
	// everything.
	SourceFailOpen
	// SourceFailClosed: the store is unreachable, and the limit's policy is to refuse
	// everything.
	SourceFailClosed
)

var sourceNames = [...]string{
	"none", "limit", "store", "shadow", "deny_cache", "lease", "fallback", "fail_open", "fail_closed",
}

// String returns the source's name in JSON, logs and metrics.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "unknown"
}

// A Decision is the answer to one [Charge]. It describes one moment: other
// callers may change the state as soon as it is made.
type Decision struct {
	Outcome Outcome
	Source  Source
	// Alternative is the number of the alternative that decided, from 1 on, for a
	// [Limiter.Otherwise] or a class with a guarantee; 0 for other limiters. In acts,
	// [Charge.Alt] has the alternative, and decisions have 0.
	Alternative uint8
	// Granted is the number of units charged: the cost; for an up-to charge between Cost
	// and UpTo; 0 for a peek, or if nothing was charged.
	Granted int64
	// Remaining is the number of units that would fit now, less those that the charge
	// keeps free. It is never negative. Of a [Limiter] with alternatives, it is the most
	// that one of them could take.
	Remaining int64
	// RetryAfter is the shortest wait after which this limit would grant the same act
	// if no other arrives. It is 0 unless the charge was refused, and [Never] if no wait
	// is long enough.
	RetryAfter time.Duration
	// ResetAfter is the time until the key is as fresh as one that was never used.
	ResetAfter time.Duration
	// Delay is the time to wait before the granted units may be used. It is 0 unless
	// the charge was booked ahead.
	Delay time.Duration
	// At is the time of the decision by the store's clock, in microseconds; the zero time
	// if no store decided.
	At time.Time
	// Limit is the limit that decided, and Limit.Name is its name. It is never nil in the
	// decision of a [Limiter]. In acts it is nil if it was the charge's own, see
	// [Act.LimitOf].
	Limit *Limit
}

// String returns the decision for logs and tests, such as
// "granted by store, 4 remaining, reset after 12s" or "refused by lease, 0 remaining,
// retry after 3s, reset after 12s".
func (d Decision) String() string {
	if d.Outcome == NotEvaluated {
		return d.Outcome.String()
	}
	text := fmt.Sprintf("%v by %v", d.Outcome, d.Source)
	if d.Granted > 1 {
		text += fmt.Sprintf(", %d units", d.Granted)
	}
	text += fmt.Sprintf(", %d remaining", d.Remaining)
	if d.RetryAfter == Never {
		text += ", never granted"
	} else if d.RetryAfter > 0 {
		text += fmt.Sprintf(", retry after %v", d.RetryAfter)
	}
	if d.Delay > 0 {
		text += fmt.Sprintf(", delay %v", d.Delay)
	}
	if d.ResetAfter > 0 {
		text += fmt.Sprintf(", reset after %v", d.ResetAfter)
	}
	return text
}

// Allowed reports whether this charge lets the caller continue: it was granted, or it
// was a peek.
func (d Decision) Allowed() bool { return d.Outcome == Granted }

// Strictest returns the index of the decision that answers for all of them, or -1 if
// there is none. That is the refusal with the longest RetryAfter or, without a refusal,
// the decision with the least Remaining in proportion to the limit's Count. The first
// wins a tie. For a Group with alternatives, the granted alternative counts, or else the
// one with the shortest RetryAfter; after a peek, the one with most remaining. Within it,
// without a refusal, the least Remaining counts: one charge could take that many units.
func Strictest(charges []Charge, decisions []Decision) int {
	if len(decisions) == 1 {
		return 0
	}
	best := -1
	for i := 0; i < len(decisions); {
		// Nearly all acts have one group with one alternative.
		end := min(altEnd(charges, i), len(decisions))
		next := strictest(charges, decisions, i, end)
		if end < len(decisions) && charges[end].Group == charges[i].Group {
			next, end = easiest(charges, decisions, i)
		}
		if best < 0 || decisions[next].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || stricter(charges, decisions, next, best)) {
			best = next
		}
		i = end
	}
	return best
}

// strictest returns the strictest decision of an alternative, of those that were made.
func strictest(charges []Charge, decisions []Decision, i, end int) int {
	best := i
	for i++; i < end; i++ {
		if decisions[i].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || stricter(charges, decisions, i, best)) {
			best = i
		}
	}
	return best
}

// easiest returns the scarcest decision of the alternative of a group whose scarcest decision
// is the least scarce, and the end of the group.
func easiest(charges []Charge, decisions []Decision, i int) (best, end int) {
	best = -1
	for end = groupEnd(charges, i); i < end; {
		next := altEnd(charges, i)
		s := scarcest(decisions, i, next)
		if best < 0 || decisions[s].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || scarcer(&decisions[best], &decisions[s])) {
			best = s
		}
		i = next
	}
	return best, end
}

// scarcest returns the scarcest decision of an alternative, of those that were made.
func scarcest(decisions []Decision, i, end int) int {
	best := i
	for i++; i < end; i++ {
		if decisions[i].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || scarcer(&decisions[i], &decisions[best])) {
			best = i
		}
	}
	return best
}

func stricter(charges []Charge, decisions []Decision, i, j int) bool {
	a, b := &decisions[i], &decisions[j]
	if a.Outcome == Refused || b.Outcome == Refused {
		return scarcer(a, b)
	}
	// Counts and remainders are below 2³², so the products fit.
	return uint64(a.Remaining)*uint64(decidedBy(charges, decisions, j).Count) <
		uint64(b.Remaining)*uint64(decidedBy(charges, decisions, i).Count)
}

// scarcer compares the waits of refusals, and units of different limits one by one.
func scarcer(a, b *Decision) bool {
	if a.Outcome == Refused || b.Outcome == Refused {
		return a.Outcome == Refused && (b.Outcome != Refused || a.RetryAfter > b.RetryAfter)
	}
	return a.Remaining < b.Remaining
}

func decidedBy(charges []Charge, decisions []Decision, i int) *Limit {
	if l := decisions[i].Limit; l != nil {
		return l
	}
	return charges[i].Limit
}
