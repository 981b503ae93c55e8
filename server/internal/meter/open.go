package meter

import (
	"context"
	"math"
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
	if o.byKey == nil {
		o.byKey = map[string]openHold{}
	}
	for _, c := range all {
		h := o.byKey[c.key]
		h.requests, h.units = h.requests+int(sign), h.units+sign*c.units
		if o.byKey[c.key] = h; h.requests == 0 {
			delete(o.byKey, c.key)
		}
	}
}

// held returns the keys of which something is held.
func (o *openHolds) held() (keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.byKey {
		keys = append(keys, key)
	}
	return keys
}

// of returns what is held of a key.
func (o *openHolds) of(key string) openHold {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byKey[key]
}

// heldOut returns how many open requests of this instance keep a refused request out of a limit;
// 0 if the request would not fit without them either.
func (h *holder) heldOut(ctx context.Context, a *rules.Applied) int {
	charge, d := &a.Act.Charges[a.Charge], a.Decision()
	if d.RetryAfter == weir.Never || d.Source == acts.SourceFailClosed || algo.TraitsOf(a.Limit.Algorithm).HoldsSlots {
		return 0
	}
	open := h.open.of(charge.Key)
	if open.requests == 0 {
		return 0
	}
	lacks := charge.Cost + charge.Keep - d.Remaining
	if d.Remaining == 0 {
		lacks = max(lacks, h.lacks(ctx, a, charge, d))
	}
	if lacks > open.units {
		return 0
	}
	return open.requests
}

// lacks returns how many units more a limit would need that has nothing left, and may have been
// charged beyond its count.
func (h *holder) lacks(ctx context.Context, a *rules.Applied, charge *weir.Charge, d weir.Decision) int64 {
	if a.Limit.Algorithm != weir.FixedWindow {
		// What drains continuously fits the sooner the less it lacks.
		return int64(math.Ceil(float64(d.RetryAfter) / float64(a.Limit.Period) * float64(a.Limit.Count)))
	}
	wide := *a.Limit
	wide.Count = algo.MaxWindow
	compiled, err := wide.Compile()
	if err != nil || a.Overridden {
		return 0
	}
	// The same window under a count that nothing exceeds shows all that was charged.
	peek := &weir.Act{Charges: []weir.Charge{{Key: charge.Key, HashTag: charge.HashTag, Limit: compiled}}, Decisions: make([]weir.Decision, 1)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.Timeout)
	defer cancel()
	if h.Taker.Take(ctx, []*weir.Act{peek}); peek.Err != nil {
		return 0
	}
	return algo.MaxWindow - peek.Decisions[0].Remaining + charge.Cost + charge.Keep - a.Limit.Count
}
