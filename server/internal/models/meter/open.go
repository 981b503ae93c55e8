package meter

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/rules"
)

// soon is when a request may be tried again that only open holds keep out.
const soon = time.Second

// openHolds are the holds of this instance that are not settled yet, by the keys that they
// charge. It is safe for concurrent use; the zero value has none.
type openHolds struct {
	mu    sync.Mutex
	byKey map[string]openHold
}

// openHold is what open requests hold of one key.
type openHold struct {
	requests int
	units    int64
	// asking are the requests that are being decided, and ended the units whose holds ended while
	// there were some.
	asking map[*asking]bool
	ended  int64
}

// An asking is a request that is being decided, of which nobody knows yet what it holds.
type asking struct {
	of    *openHolds
	keys  []string
	ended []int64       // the units of each key whose holds had ended before
	done  chan struct{} // closed once it is known what it holds
}

// ask notes that a request for keys is being decided, until it leaves.
func (o *openHolds) ask(keys []string) *asking {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := &asking{of: o, keys: keys, ended: make([]int64, len(keys)), done: make(chan struct{})}
	for i, key := range keys {
		h := o.byKey[key]
		if a.ended[i] = h.ended; h.asking == nil {
			h.asking = map[*asking]bool{}
		}
		h.asking[a] = true
		o.set(key, h)
	}
	return a
}

// known notes that it is known what the request holds.
func (a *asking) known() { close(a.done) }

// leave ends the asking.
func (a *asking) leave() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	for _, key := range a.keys {
		h := a.of.byKey[key]
		delete(h.asking, a)
		a.of.set(key, h)
	}
}

// held returns what is held of a key, with what was while the request was being decided.
func (a *asking) held(key string) openHold {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	h := a.of.byKey[key]
	if ended := h.ended - a.ended[slices.Index(a.keys, key)]; ended > 0 {
		h.requests, h.units = max(1, h.requests), h.units+ended
	}
	return h
}

// awaitAnswers waits until it is known what the others hold that are being decided.
func (a *asking) awaitAnswers(ctx context.Context) {
	var all []*asking
	a.of.mu.Lock()
	for _, key := range a.keys {
		all = slices.AppendSeq(all, maps.Keys(a.of.byKey[key].asking))
	}
	a.of.mu.Unlock()
	for _, other := range all {
		select {
		case <-other.done:
		case <-ctx.Done():
		}
	}
}

// openCharge is what one request holds of one key.
type openCharge struct {
	key   string
	units int64
}

// add adds what granted acts hold, and returns it for remove.
func (o *openHolds) add(list []weir.Act) []openCharge {
	var all []openCharge
	for i := range list {
		for j := range list[i].Charges {
			if c := &list[i].Charges[j]; !algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
				all = append(all, openCharge{c.Key, c.Cost})
			}
		}
	}
	o.change(all, 1)
	return all
}

// remove removes what a settled request held.
func (o *openHolds) remove(all []openCharge) { o.change(all, -1) }

func (o *openHolds) change(all []openCharge, sign int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range all {
		h := o.byKey[c.key]
		h.requests, h.units = h.requests+int(sign), h.units+sign*c.units
		if sign < 0 {
			h.ended += c.units
		}
		o.set(c.key, h)
	}
}

// set keeps what is known of a key, for as long as anybody needs it.
func (o *openHolds) set(key string, h openHold) {
	if h.requests == 0 && len(h.asking) == 0 {
		delete(o.byKey, key)
		return
	}
	if o.byKey == nil {
		o.byKey = map[string]openHold{}
	}
	o.byKey[key] = h
}

// of returns what is held of a key.
func (o *openHolds) of(key string) openHold {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byKey[key]
}

// heldOut returns how many open requests of this instance keep a refused request out of a limit;
// 0 if the request would not fit without them either.
func (h *holder) heldOut(ctx context.Context, a *rules.Applied, asked *asking) int {
	charge, d := &a.Act.Charges[a.Charge], a.Decision()
	if d.RetryAfter == weir.Never || d.Source == acts.SourceFailClosed || algo.TraitsOf(a.Limit.Algorithm).HoldsSlots {
		return 0
	}
	open := asked.held(charge.Key)
	if open.requests == 0 {
		return 0
	}
	lacks := charge.Cost - d.Remaining // which is what is left beside what the charge keeps free
	if d.Remaining == 0 {
		lacks = max(lacks, h.lacks(ctx, a, charge, d))
	}
	if lacks > open.units {
		return 0
	}
	return open.requests
}

// lacks returns how many units more a limit would need that has nothing left, and may have been
// charged beyond its count. It is all that the charge needs if that cannot be told.
func (h *holder) lacks(ctx context.Context, a *rules.Applied, charge *weir.Charge, d weir.Decision) int64 {
	if a.Limit.Algorithm != weir.FixedWindow {
		// What drains continuously fits the sooner the less it lacks.
		return int64(math.Ceil(float64(d.RetryAfter) / float64(a.Limit.Period) * float64(a.Limit.Count)))
	}
	wide := *a.Limit
	wide.Count = algo.MaxWindow
	compiled, err := wide.Compile()
	if err != nil || a.Overridden {
		return charge.Cost + charge.Keep
	}
	// The same window under a count that nothing exceeds shows all that was charged.
	peek := &weir.Act{Charges: []weir.Charge{{Key: charge.Key, HashTag: charge.HashTag, Limit: compiled}}, Decisions: make([]weir.Decision, 1)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.Timeout)
	defer cancel()
	if h.Taker.Take(ctx, []*weir.Act{peek}); peek.Err != nil {
		return charge.Cost + charge.Keep
	}
	return algo.MaxWindow - peek.Decisions[0].Remaining + charge.Cost + charge.Keep - a.Limit.Count
}
