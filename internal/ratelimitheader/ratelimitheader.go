// Package ratelimitheader puts limits and decisions into the words of response
// headers: those of draft-ietf-httpapi-ratelimit-headers-11, and the older
// X-RateLimit.
package ratelimitheader

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// An Answer is what the headers of one response tell.
type Answer struct {
	Limits   []*weir.Limit // all that hold for the request; a name is told once
	Speaker  *weir.Limit   // the strictest of them
	Decision weir.Decision // the speaker's
}

// AnswerOf is the answer of a decided act.
func AnswerOf(a *weir.Act) Answer {
	speaker := weir.Strictest(a.Charges, a.Decisions)
	answer := Answer{Speaker: a.Charges[speaker].Limit, Decision: a.Decisions[speaker]}
	for i := range a.Charges {
		answer.Limits = append(answer.Limits, a.Charges[i].Limit)
	}
	return answer
}

// WriteDraft11 adds to RateLimit-Policy and RateLimit, which are lists: limits
// that hold further out have told theirs already.
func (a *Answer) WriteDraft11(h http.Header) {
	h.Add("RateLimit-Policy", a.Policies())
	h.Add("RateLimit", a.Available())
}

// WriteXRateLimit sets X-RateLimit-Limit, -Remaining and -Reset, in seconds from
// now.
func (a *Answer) WriteXRateLimit(h http.Header) {
	h.Set("X-RateLimit-Limit", strconv.FormatInt(a.Speaker.Count, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(a.Decision.Remaining, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(Seconds(a.Decision.ResetAfter), 10))
}

// WriteRetryAfter sets Retry-After if the decision is a refusal that waiting can
// turn.
func (a *Answer) WriteRetryAfter(h http.Header) {
	if wait := a.Decision.RetryAfter; a.Decision.Outcome == weir.Refused && wait != weir.Never {
		h.Set("Retry-After", strconv.FormatInt(max(1, Seconds(wait)), 10))
	}
}

// Policies is the value of RateLimit-Policy.
func (a *Answer) Policies() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, limit := range a.Limits {
		name := nameOf(limit)
		if seen[name] {
			continue
		}
		seen[name] = true
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quotedName(name) + policy(limit))
	}
	return b.String()
}

// policy says how much a limit grants. Places have no window: they are free again
// when their holders leave.
func policy(l *weir.Limit) string {
	if l.Algorithm == weir.Concurrency {
		return ";q=" + strconv.FormatInt(l.Count, 10) + `;qu="concurrent-requests"`
	}
	quota, seconds := quotaOf(l)
	return ";q=" + strconv.FormatInt(quota, 10) + ";w=" + strconv.FormatInt(seconds, 10)
}

// quotaOf states a limit as a quota in a window of whole seconds, since the
// header knows no others: at the limit's rate, over the next whole second.
func quotaOf(l *weir.Limit) (quota, seconds int64) {
	seconds = max(1, Seconds(l.Period))
	rest := time.Duration(seconds)*time.Second - l.Period
	// rest is below a second and a count below 2³², so the product fits.
	return l.Count + l.Count*rest.Milliseconds()/max(1, l.Period.Milliseconds()), seconds
}

// Available is the value of RateLimit: what the speaker has left, and for how
// long that is all. Retry-After must not point earlier, so a refusal names the
// same moment.
func (a *Answer) Available() string {
	d := &a.Decision
	wait := d.ResetAfter
	switch {
	case d.Outcome == weir.Refused && d.RetryAfter != weir.Never:
		wait = d.RetryAfter
	case a.Speaker.Algorithm == weir.Concurrency:
		wait = 0
	}
	field := quotedName(nameOf(a.Speaker)) + ";r=" + strconv.FormatInt(d.Remaining, 10)
	if wait > 0 {
		field += ";t=" + strconv.FormatInt(Seconds(wait), 10)
	}
	return field
}

// Seconds returns d in whole seconds, no shorter than d.
func Seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
