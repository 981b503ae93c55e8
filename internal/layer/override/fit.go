package override

import (
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// An entry is an override with the limit that it last made.
type entry struct {
	Override
	fitted atomic.Pointer[fitting]
}

// A fitting is what holds instead of a key's own limit.
type fitting struct{ own, instead *weir.Limit }

// instead returns what holds instead of a key's own limit, which is its own where
// it cannot have the override's numbers.
func (e *entry) instead(own *weir.Limit) *weir.Limit {
	if f := e.fitted.Load(); f != nil && f.own == own {
		return f.instead
	}
	f := &fitting{own, own}
	if e.Limit == nil {
		f.instead = unlimited(own)
	} else if fitted, err := Fit(e.Limit, own); err == nil {
		f.instead = fitted
	}
	e.fitted.Store(f)
	return f.instead
}

// blocks reports whether the override refuses every take.
func (e *entry) blocks() bool { return e.Limit != nil && e.Limit.Count == 0 }

// Fit returns own with the Count, the Period and the Burst of limit, compiled: what
// an override of that limit makes of a key's own. So a key keeps its algorithm,
// with the state that it has, and a reload that gives it another one leaves the
// override in force. An algorithm without bursts ignores the Burst, and a Count of
// 0 needs nothing else. The error is a [*weir.InvalidError].
func Fit(limit, own *weir.Limit) (*weir.Limit, error) {
	fitted := *own
	fitted.Count, fitted.Burst = limit.Count, 0
	if limit.Count == 0 {
		return fitted.Compile()
	}
	fitted.Period = limit.Period
	switch own.Algorithm {
	case weir.GCRA, weir.TokenBucket, weir.LeakyBucket:
		fitted.Burst = limit.Burst
	}
	return fitted.Compile()
}

// unlimited returns own with the largest count that its period takes. It is never
// own itself, so that a charge tells that it came under an override.
func unlimited(own *weir.Limit) *weir.Limit {
	most := *own
	most.Burst = 0
	for most.Count = weir.MaxCost; most.Count > own.Count; most.Count /= 10 {
		if compiled, err := most.Compile(); err == nil {
			return compiled
		}
	}
	same := *own
	return &same
}
