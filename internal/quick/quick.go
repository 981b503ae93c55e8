// Package quick names what a [weir.Limiter] asks before it asks with an act: what can
// decide a take of one key from memory, a store or what its decorators know.
package quick

import (
	"time"

	"github.com/weirlimit/weir"
)

// A Taker decides takes of cost units of one key without an act around them. It
// answers [weir.NotEvaluated], and has done nothing, where only Take can decide. Otherwise
// wait is the decision's Delay or, where it refuses, its RetryAfter, and Granted is the
// cost or, where it refuses, 0. It is safe for concurrent use.
type Taker interface {
	TakeOne(limit *weir.Limit, key string, cost int64) (
		outcome weir.Outcome, source weir.Source, remaining int64, wait, reset time.Duration, at int64)
}

// Of returns the quick way of a [weir.Taker]. One that has none decides nothing
// quickly.
func Of(taker weir.Taker) Taker {
	if t, ok := taker.(Taker); ok {
		return t
	}
	return none{}
}

type none struct{}

// TakeOne leaves the decision to Take.
func (none) TakeOne(*weir.Limit, string, int64) (
	outcome weir.Outcome, source weir.Source, remaining int64, wait, reset time.Duration, at int64,
) {
	return weir.NotEvaluated, weir.SourceNone, 0, 0, 0, 0
}
