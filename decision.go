package weir

import (
	"fmt"
	"log/slog"
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
	// had already decided the act, another alternative of its Group was granted, or the act
	// is about a take that did not have the charge. The zero value.
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
func (o Outcome) String() string { return nameOf(outcomeNames[:], uint8(o)) }

// nameOf returns the i-th name, or "unknown".
func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

// A Source is the part that made a decision; its String is its name.
//
//   - none, the zero value: no decision was made.
//   - limit: the limit itself. It has a count of 0 and refuses everything without a store.
//   - store: the store that has the key's state.
//   - shadow: the limit would refuse, but its rule only watches.
//   - deny_cache: this process remembers a refusal of the store that has not ended.
//   - lease: units that this process has leased from the store.
//   - fallback: this process alone, during an outage of the store.
//   - fail_open: the store is unreachable, and the limit's policy is to grant everything.
//   - fail_closed: the store is unreachable, and the limit's policy is to refuse everything.
type Source uint8

// Package acts exports these to stores and layers.
const (
	sourceNone Source = iota
	sourceLimit
	sourceStore
	sourceShadow
	sourceDenyCache
	sourceLease
	sourceFallback
	sourceFailOpen
	sourceFailClosed
)

var sourceNames = [...]string{
	sourceNone: "none", sourceLimit: "limit", sourceStore: "store", sourceShadow: "shadow",
	sourceDenyCache: "deny_cache", sourceLease: "lease", sourceFallback: "fallback",
	sourceFailOpen: "fail_open", sourceFailClosed: "fail_closed",
}

// String returns the source's name in JSON, logs and metrics.
func (s Source) String() string { return nameOf(sourceNames[:], uint8(s)) }

// A Decision is the answer to one [Charge]. It describes one moment: other
// callers may change the state as soon as it is made.
type Decision struct {
	Outcome Outcome
	Source  Source
	// Alternative is the number of the alternative that decided, from 1 on, for a
	// [Limiter.Otherwise] or a class with a guarantee; 0 for other limiters. In acts,
	// [Charge.Alt] has the alternative, and decisions have 0.
	Alternative uint8
	// Blocked is set if the key is blocked by the limit's Block: the charge was refused because of
	// that, has begun it, or costs nothing.
	Blocked bool
	// Granted is the number of units charged: the cost; for an up-to charge between Cost
	// and UpTo; 0 for a peek, or if nothing was charged.
	Granted int64
	// Remaining is the number of units that would fit now, less those that the charge
	// keeps free. It is never negative. Of a [Limiter] with alternatives, it is the most
	// that one of them could take.
	Remaining int64
	// RetryAfter is the shortest wait after which this limit would grant the same act
	// if no other arrives. It is 0 unless the charge was refused, and [Never] if no wait
	// is long enough. Under a concurrency limit it is a second, or the Period if that is
	// shorter: a slot may be released at any time.
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
	if d.Blocked && d.Outcome == Refused {
		text = fmt.Sprintf("blocked by %v", d.Source)
	}
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

// Allowed reports whether this charge lets the caller continue: it was granted, it was a
// peek, or it is no part of the granted take that the act is about.
func (d Decision) Allowed() bool {
	return d.Outcome == Granted || d.Outcome == NotEvaluated && d.Source == sourceStore
}

// RetrySeconds returns the RetryAfter as the HTTP header Retry-After has it: whole seconds,
// rounded up, at least 1. It reports false if there is nothing to wait for: the charge was not
// refused, or it is refused after any wait ([Never]).
func (d Decision) RetrySeconds() (seconds int64, ok bool) {
	if d.Outcome != Refused || d.RetryAfter == Never {
		return 0, false
	}
	seconds = int64(d.RetryAfter / time.Second)
	if d.RetryAfter%time.Second > 0 {
		seconds++
	}
	return max(1, seconds), true
}

// LogValue returns the decision as package slog logs it: its String.
func (d Decision) LogValue() slog.Value { return slog.StringValue(d.String()) }
