package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// An outcome is what a caller knows of its act.
type outcome uint8

const (
	granted outcome = iota
	refused
	unapplied // the store ran nothing
	unknown   // the store may have run it, or may yet
	failed    // anything else
)

var outcomeNames = [...]string{"granted", "refused", "unapplied", "unknown", "failed"}

func (o outcome) String() string { return outcomeNames[o] }

// forever is when an act returned whose outcome is unknown.
const forever = math.MaxInt64

// An op is one act as its caller saw it. Its instants are of one monotonic clock.
type op struct {
	caller    int
	subject   *subject
	key       string
	kind      weir.Kind
	id        string
	cost      int64
	call, ret int64 // ns since the history began
	tries     int   // with an id
	doubt     bool  // a try before the last one may have been charged
	outcome   outcome
	weir.Decision
	err error
}

func (o *op) String() string {
	return fmt.Sprintf("caller %d, %s, %v of %d at %v: %v %+v %v",
		o.caller, o.key, o.kind, o.cost, time.Duration(o.call), o.outcome, o.Decision, o.err)
}

// stores reports whether the store itself decided.
func (o *op) stores() bool { return o.outcome <= refused && o.Source == acts.SourceStore }

// at is the store's clock at the decision, in µs since 1970.
func (o *op) at() int64 { return o.At.UnixMicro() }

func outcomeOf(a *weir.Act) outcome {
	switch {
	case a.Err == nil && a.Allowed():
		return granted
	case a.Err == nil:
		return refused
	case errors.Is(a.Err, weir.ErrNotApplied), errors.Is(a.Err, weir.ErrMisconfigured):
		return unapplied
	case errors.Is(a.Err, weir.ErrAmbiguous):
		return unknown
	}
	return failed
}

// A span is a stretch of time, ns since the history began.
type span struct{ from, to int64 }

// A history is what everybody was told, and what happened to the store.
type history struct {
	begun time.Time

	mu     sync.Mutex
	ops    []op
	away   []span // when the store could not have answered
	losses int64  // how often the store forgot, or its clock leapt ahead
	clock  bool   // the store's clock was stepped

	healed atomic.Int64 // when the last fault was over
}

func newHistory() *history { return &history{begun: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

// note files what one caller has seen.
func (h *history) note(ops ...op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, ops...)
}

// absent notes that the store cannot answer until the function that it returns is
// called.
func (h *history) absent() (back func()) {
	from := h.now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.away = append(h.away, span{from, h.now()})
	}
}

func (h *history) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.losses++
}

func (h *history) heal() { h.healed.Store(h.now()) }

// count is how many acts had an outcome.
func (h *history) count(o outcome) int {
	n := 0
	for i := range h.ops {
		if h.ops[i].outcome == o {
			n++
		}
	}
	return n
}

// charged is how many units of a key callers were granted, and how many more they
// do not know of.
func (h *history) charged(key string) (known, perhaps int64) {
	for i := range h.ops {
		switch o := &h.ops[i]; {
		case o.key != key || o.kind != acts.KindTake:
		case o.outcome == granted:
			known += o.Granted
			if h.clock && o.tries > 1 {
				perhaps += o.cost // its id may have been forgotten between two tries
			}
		case o.outcome == unknown || o.outcome == unapplied && o.doubt:
			perhaps += o.cost
		}
	}
	return known, perhaps
}

// byKey returns the takes of each key of a subject that has one of its limits, in
// the order in which the store decided them.
func (h *history) byKey(wanted func(*op) bool) map[string][]op {
	keys := map[string][]op{}
	for i := range h.ops {
		if wanted(&h.ops[i]) {
			keys[h.ops[i].key] = append(keys[h.ops[i].key], h.ops[i])
		}
	}
	for _, ops := range keys {
		slices.SortStableFunc(ops, func(a, b op) int { return a.At.Compare(b.At) })
	}
	return keys
}

// ask has a taker decide one act and returns what came of it.
func (h *history) ask(ctx context.Context, taker weir.Taker, o op) op {
	a := &weir.Act{
		Kind: o.kind, ID: o.id, Scope: algo.Scope{Owner: o.key},
		Charges:   []weir.Charge{{Key: o.key, Limit: o.subject.limit, Cost: o.cost}},
		Decisions: make([]weir.Decision, 1),
	}
	if o.call == 0 {
		o.call = h.now()
	}
	taker.Take(ctx, []*weir.Act{a})
	o.ret, o.outcome, o.err = h.now(), outcomeOf(a), a.Err
	if o.outcome <= refused {
		o.Decision = a.Decisions[0]
	}
	if o.outcome == unknown {
		o.ret = forever
	}
	return o
}
