package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
)

// keyAnswer is the body of GET /v1/key.
type keyAnswer struct {
	Domain string        `json:"domain"`
	Cost   int64         `json:"cost"`
	Passes bool          `json:"passes"`
	Limits []limitAnswer `json:"limits"`
}

// limitAnswer is how a key does under one limit. The state is missing where nothing
// is counted, and where nobody knows the limit before a request comes.
type limitAnswer struct {
	Name           string          `json:"name,omitempty"`
	Rule           string          `json:"rule,omitempty"`
	At             string          `json:"at,omitempty"`
	Key            string          `json:"key,omitempty"`
	Algorithm      string          `json:"algorithm,omitempty"`
	Limit          string          `json:"limit,omitempty"` // the rule's
	Unlimited      bool            `json:"unlimited,omitempty"`
	Shadow         bool            `json:"shadow,omitempty"` // never refuses this key
	Trial          bool            `json:"trial,omitempty"`
	Enforce        string          `json:"enforce,omitempty"` // the part of the keys; empty: all
	OnStoreFailure string          `json:"on_store_failure,omitempty"`
	Override       *overrideAnswer `json:"override,omitempty"`
	State          *stateAnswer    `json:"state,omitempty"`
	Explanation    string          `json:"explanation"`
}

// stateAnswer is what the store knows of a key, and what that means for a cost.
type stateAnswer struct {
	Limit     string `json:"limit"` // that is in force
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	Passes    bool   `json:"passes"`
	// RetryAfterMS is rounded up, -1 for never, and null where a holder has to
	// leave first.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	AtUS         int64  `json:"at_us"`
}

// overrideAnswer is one override.
type overrideAnswer struct {
	Key string `json:"key"`
	// Limit is what holds instead; empty: no limit.
	Limit   string `json:"limit"`
	Blocked bool   `json:"blocked"`
	Until   string `json:"until"`
	ForMS   int64  `json:"for_ms"`
}

func overrideOf(o override.Override, now time.Time) *overrideAnswer {
	answer := &overrideAnswer{Key: o.Key, Until: o.Until.UTC().Format(time.RFC3339), ForMS: millis(o.Until.Sub(now))}
	if o.Limit != nil {
		answer.Limit, answer.Blocked = o.Limit.String(), o.Limit.Count == 0
	}
	return answer
}

// millis returns d in milliseconds, rounded up, -1 for [weir.Never].
func millis(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// respond sends v. What cannot be sent any more is lost: the client is gone.
func respond(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("admin: answer does not marshal: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// fail answers a call that could not be carried out.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	problemOf(err).Write(w, r)
}

// problemOf finds the problem that tells an error to the caller.
func problemOf(err error) *problem.Document {
	var document *problem.Document
	var mistake *weir.InvalidError
	var forbidden *callers.ForbiddenError
	switch {
	case errors.As(err, &forbidden):
		return &problem.Document{Status: http.StatusForbidden, Code: "forbidden", Detail: err.Error()}
	case errors.As(err, &document):
		return document
	case errors.As(err, &mistake) && mistake.Field == "overrides":
		return full(mistake.Want)
	case errors.As(err, &mistake):
		return &problem.Document{
			Status: http.StatusBadRequest, Field: mistake.Field,
			Detail: fmt.Sprintf("%s is %s: want %s", mistake.Field, mistake.Value, mistake.Want),
		}
	case errors.Is(err, weir.ErrInvalid):
		return &problem.Document{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	return &problem.Document{
		Status: http.StatusServiceUnavailable, Code: "store",
		// Operators may see what the store said.
		Detail: "the store reached no decision: " + err.Error(),
	}
}

func full(want string) *problem.Document {
	return &problem.Document{
		Status: http.StatusConflict, Code: "full", Field: "overrides",
		Detail: "there are as many overrides as there may be, " + want + ": clear some, or wait until they end",
	}
}

// bounded returns a context that ends when the store has had its time.
func (a *api) bounded(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), a.Timeout)
}
