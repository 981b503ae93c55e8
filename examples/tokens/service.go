package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// longest is how long an answer may take.
	longest = 10 * time.Minute
	maxBody = 64 << 10
)

// limits are what each tenant may use.
type limits struct{ perMinute, perDay int64 }

// service answers POST /answer.
type service struct {
	limiter *weir.Limiter
	model   model
	mux     *http.ServeMux
}

// newService returns a service whose tenants' use is kept in the store.
func newService(store weir.Taker, m model, l limits) (*service, error) {
	limiter, err := weir.NewLimiter(store, "tokens",
		weir.Limit{Name: "minute", Count: l.perMinute, Period: time.Minute},
		// A day begins with its first token, so that tenants do not all begin
		// at midnight.
		weir.Limit{Name: "day", Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: l.perDay, Period: 24 * time.Hour},
	)
	if err != nil {
		return nil, err
	}
	s := &service{limiter: limiter, model: m, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /answer", s.answer)
	return s, nil
}

// ServeHTTP serves the one address that there is.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// question is the body of a request.
type question struct {
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

// answer holds what the answer may cost at most, streams it, and charges what it
// did cost.
func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&q); err != nil || q.MaxTokens < 1 {
		http.Error(w, `want {"prompt": "…", "max_tokens": 1 or more}`, http.StatusBadRequest)
		return
	}
	// Where tenants are not trusted, this comes from what authenticates them.
	tenant := r.Header.Get("Tenant")
	h, err := s.limiter.Hold(r.Context(), tenant, tokensOf(q.Prompt)+q.MaxTokens, longest)
	switch {
	case err != nil:
		log.Printf("tenant %q: %v", tenant, err)
		http.Error(w, "no decision whether you may", http.StatusServiceUnavailable)
	case !h.OK():
		refuse(w, h.Decision())
	default:
		s.charge(r.Context(), h, s.stream(w, r, q))
	}
}

// refuse says when to ask again.
func refuse(w http.ResponseWriter, d weir.Decision) {
	seconds, ok := d.RetrySeconds()
	if !ok {
		http.Error(w, "more tokens than anybody may use at once: ask for fewer", http.StatusRequestEntityTooLarge)
		return
	}
	w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	http.Error(w, "no tokens left for now", http.StatusTooManyRequests)
}

// stream sends the answer as it comes, and returns how many tokens were used: none
// if the model failed before its first word.
func (s *service) stream(w http.ResponseWriter, r *http.Request, q question) int64 {
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	out := http.NewResponseController(w)
	used := int64(0)
	for c, err := range s.model(ctx, q.Prompt) {
		if err != nil && used == 0 {
			http.Error(w, "the model failed", http.StatusBadGateway)
		}
		if err != nil || used+c.tokens > q.MaxTokens {
			break
		}
		used += c.tokens
		// The client may have gone; the model has worked all the same.
		_, _ = io.WriteString(w, c.text+" ")
		_ = out.Flush()
	}
	if used == 0 {
		return 0
	}
	return tokensOf(q.Prompt) + used
}

// charge settles what was used, or releases all if that is nothing, also if the client
// has left: settling outlives its context.
func (s *service) charge(ctx context.Context, h *weir.Hold, used int64) {
	var err error
	if used == 0 {
		err = h.Release(ctx)
	} else {
		_, err = h.Settle(ctx, used)
	}
	if err != nil {
		// The estimate stays charged until it has drained.
		log.Printf("holding %s: %d tokens: %v", h.ID(), used, err)
	}
}
