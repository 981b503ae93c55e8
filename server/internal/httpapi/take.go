package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// act does what the body asks, which is one kind of act.
func (a *api) act(kind weir.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := a.readAct(w, r, kind)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		v := new(verdict)
		if err := a.decide(r, req, v); err != nil {
			a.fail(w, r, err)
			return
		}
		defer v.plan.Free()
		a.writeHeaders(w.Header(), v)
		status := http.StatusOK
		if !v.allowed {
			status = http.StatusTooManyRequests
		}
		writeJSON(w, "application/json", status, answerOf(v))
	}
}

// takeAnswer is the body of an answer.
type takeAnswer struct {
	Allowed bool          `json:"allowed"`
	Granted int64         `json:"granted"`
	ID      string        `json:"id"`
	Limits  []limitAnswer `json:"limits"`
}

type limitAnswer struct {
	Name         string `json:"name"`
	Key          string `json:"key"`
	Algorithm    string `json:"algorithm"`
	Limit        int64  `json:"limit"`
	Granted      int64  `json:"granted"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	DelayMS      int64  `json:"delay_ms"`
	AtUS         int64  `json:"at_us"`
	Source       string `json:"source"`
	// Shadow limits are only watched, Trial ones beside another limit.
	Shadow bool `json:"shadow,omitempty"`
	Trial  bool `json:"trial,omitempty"`
}

func answerOf(v *verdict) *takeAnswer {
	answer := &takeAnswer{Allowed: v.allowed, Granted: v.granted, ID: v.id, Limits: make([]limitAnswer, len(v.limits))}
	for i := range v.limits {
		r := &v.limits[i]
		l, d := r.applied.Limit, &r.decision
		answer.Limits[i] = limitAnswer{
			Name:         l.Name,
			Key:          keysOf(v.request.Descriptors[r.applied.Descriptor]),
			Algorithm:    l.Algorithm.String(),
			Limit:        l.Count,
			Granted:      d.Granted,
			Remaining:    d.Remaining,
			RetryAfterMS: millis(d.RetryAfter),
			ResetAfterMS: millis(d.ResetAfter),
			DelayMS:      millis(d.Delay),
			AtUS:         d.At,
			Source:       d.Source.String(),
			Shadow:       r.applied.Rule.Shadow,
			Trial:        r.applied.Rule.OnTrial,
		}
	}
	return answer
}

// keysOf names a descriptor by the keys of its entries; the values are the
// caller's own.
func keysOf(descriptor []rules.Entry) string {
	keys := make([]string, len(descriptor))
	for i, e := range descriptor {
		keys[i] = e.Key
	}
	return strings.Join(keys, ",")
}

// millis returns d in milliseconds, rounded up, -1 for [weir.Never].
func millis(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return roundUp(d, time.Millisecond)
}
