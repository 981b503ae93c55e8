// Package weirmetrics reports the answers of limiters to an observer, which counts them.
// Package weirprom, a module of its own, has one for Prometheus.
package weirmetrics

import (
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/layer/observe"
)

// An Answer is the answer to one charge of a take.
type Answer struct {
	// Limiter is the name of the limiter; of a limit that has a name, and of one of several
	// limits, it is as keys begin: NAME#LIMIT. Keys of clients are no part of it, so there
	// are as many values as the program has limits.
	Limiter string
	// Decision is the answer, if Err is nil. Its Outcome says whether the charge was granted,
	// and its Source who decided: "fallback", "fail_open" and "fail_closed" did without the
	// store. Its Limit is the one that decided.
	Decision weir.Decision
	// Err is set if there was no decision. Under [weir.ErrAmbiguous] the answer of the store
	// was late or lost.
	Err error
	// Took is how long the caller waited.
	Took time.Duration
}

// An Observer receives every answer before its caller does, on the caller's goroutine. It is
// called from many goroutines, and must be quick.
type Observer interface {
	Observe(a Answer)
}

// Wrap returns a store that uses next and reports the answers to all takes that cost
// something; peeks, refunds and the ends of holds are not reported. Of alternatives, only the
// one that decided is. Give the result to [weir.NewLimiter] in place of next, for all limiters
// that are charged together. It is safe for concurrent use, and can set overrides if next can.
func Wrap(next weir.Taker, o Observer) weir.Taker {
	l := observe.Wrap(next, observe.Options{Observer: reports{o}})
	if below, has := next.(overrider); has {
		return &aboveOverrider{l, below}
	}
	return l
}

// The overrides of a store, which a limiter above must find.
type (
	overrider interface {
		ChangeOverride(key string, o *weir.Override) (had bool, err error)
	}
	aboveOverrider struct {
		weir.Taker
		overrider
	}
)

// reports turns calls into answers.
type reports struct{ to Observer }

// Observe implements [observe.Observer].
func (r reports) Observe(c *observe.Call) {
	for _, a := range c.Acts {
		if a.Kind != acts.KindTake || a.Dry {
			continue
		}
		for i := range a.Charges {
			if a.Charges[i].Cost == 0 || a.Err == nil && a.Decisions[i].Outcome == weir.NotEvaluated {
				continue
			}
			name, _, _ := strings.Cut(a.Charges[i].Key, ":")
			answer := Answer{Limiter: name, Err: a.Err, Took: c.Took}
			if a.Err == nil {
				answer.Decision = a.Decisions[i]
				answer.Decision.Limit = a.LimitOf(i)
			}
			r.to.Observe(answer)
		}
	}
}
