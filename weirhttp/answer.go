package weirhttp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/ratelimitheader"
)

// HeaderStyle is how limits are told in headers. The zero value is
// [HeadersDraft11].
type HeaderStyle uint8

// The styles. Retry-After is sent with a refusal in all of them.
const (
	// HeadersDraft11 sends RateLimit-Policy and RateLimit as
	// draft-ietf-httpapi-ratelimit-headers-11 has them, and X-RateLimit-Limit,
	// -Remaining and -Reset (in seconds from now).
	HeadersDraft11 HeaderStyle = iota
	// HeadersXRateLimit sends the X-RateLimit headers only.
	HeadersXRateLimit
	// HeadersNone sends neither, and says in the body of a refusal nothing of
	// the limits: for logins, where they would tell who is being attacked.
	HeadersNone
)

// tell writes what the limits said into the headers of the answer.
func (d *door) tell(h http.Header, act *weir.Act) {
	answer := ratelimitheader.AnswerOf(act)
	switch d.Headers {
	case HeadersDraft11:
		answer.WriteAll(h)
	case HeadersXRateLimit:
		answer.WriteXRateLimit(h)
	}
	answer.WriteRetryAfter(h)
	if !act.Allowed() {
		h.Set("Cache-Control", "no-store")
	}
}

// refuse answers a request that the limits refused, whose headers are set.
func (d *door) refuse(w http.ResponseWriter, r *http.Request, decision weir.Decision) {
	p := &problem.Document{
		Type:   problem.QuotaExceeded,
		Title:  "Quota exceeded",
		Status: http.StatusTooManyRequests,
		Detail: "too many requests",
	}
	if decision.RetryAfter == weir.Never {
		p.Detail = "the request costs more than the limit can ever grant"
	} else if d.Headers != HeadersNone {
		p.Detail = fmt.Sprintf("there is room again in %d s", max(1, ratelimitheader.Seconds(decision.RetryAfter)))
	}
	p.Write(w, r)
}

// fail answers a request for which no decision was reached, or lets it pass.
func (d *door) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	d.OnError(r, err)
	p := &problem.Document{Status: http.StatusServiceUnavailable, Detail: "the limiter reached no decision"}
	switch {
	case errors.Is(err, weir.ErrInvalid):
		p.Status = http.StatusInternalServerError
	case d.FailClosed:
		w.Header().Set("Retry-After", "1")
	default:
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	p.Write(w, r)
}
