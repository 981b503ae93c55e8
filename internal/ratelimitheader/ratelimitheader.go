// Package ratelimitheader puts limits and decisions into the words of response
// headers: those of draft-ietf-httpapi-ratelimit-headers-11, and the older
// X-RateLimit.
package ratelimitheader

import (
	"net/http"
	"slices"
	"strconv"
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

// Names of headers as net/http keys them, which spares it from spelling them so
// each time.
const (
	keyPolicy     = "Ratelimit-Policy"
	keyRateLimit  = "Ratelimit"
	keyLimit      = "X-Ratelimit-Limit"
	keyRemaining  = "X-Ratelimit-Remaining"
	keyReset      = "X-Ratelimit-Reset"
	keyRetryAfter = "Retry-After"
)

// WriteAll adds to RateLimit-Policy and RateLimit, which are lists: limits that
// hold further out have told theirs already. It sets what WriteXRateLimit sets.
func (a *Answer) WriteAll(h http.Header) {
	var l lines
	text := a.appendPolicies(make([]byte, 0, 192))
	l.end(keyPolicy, text)
	text = a.appendAvailable(text)
	l.end(keyRateLimit, text)
	text = a.appendXRateLimit(text, &l)
	l.write(h, string(text))
}

// WriteXRateLimit sets X-RateLimit-Limit, -Remaining and -Reset, in seconds from
// now.
func (a *Answer) WriteXRateLimit(h http.Header) {
	var l lines
	text := a.appendXRateLimit(make([]byte, 0, 64), &l)
	l.write(h, string(text))
}

func (a *Answer) appendXRateLimit(text []byte, l *lines) []byte {
	text = strconv.AppendInt(text, a.Speaker.Count, 10)
	l.end(keyLimit, text)
	text = strconv.AppendInt(text, a.Decision.Remaining, 10)
	l.end(keyRemaining, text)
	text = strconv.AppendInt(text, Seconds(a.Decision.ResetAfter), 10)
	l.end(keyReset, text)
	return text
}

// WriteRetryAfter sets Retry-After if the decision is a refusal that waiting can
// turn.
func (a *Answer) WriteRetryAfter(h http.Header) {
	if wait := a.Decision.RetryAfter; a.Decision.Outcome == weir.Refused && wait != weir.Never {
		h[keyRetryAfter] = []string{strconv.FormatInt(max(1, Seconds(wait)), 10)}
	}
}

// Policies is the value of RateLimit-Policy.
func (a *Answer) Policies() string { return string(a.appendPolicies(make([]byte, 0, 128))) }

func (a *Answer) appendPolicies(text []byte) []byte {
	for i, limit := range a.Limits {
		if a.told(i) {
			continue
		}
		if i > 0 {
			text = append(text, ", "...)
		}
		text = appendPolicy(appendQuoted(text, nameOf(limit)), limit)
	}
	return text
}

// told reports whether a limit has the name of an earlier one.
func (a *Answer) told(i int) bool {
	name := nameOf(a.Limits[i])
	return slices.ContainsFunc(a.Limits[:i], func(l *weir.Limit) bool { return nameOf(l) == name })
}

// appendPolicy says how much a limit grants. Places have no window: they are free
// again when their holders leave.
func appendPolicy(text []byte, l *weir.Limit) []byte {
	text = append(text, ";q="...)
	if l.Algorithm == weir.Concurrency {
		return append(strconv.AppendInt(text, l.Count, 10), `;qu="concurrent-requests"`...)
	}
	quota, seconds := quotaOf(l)
	text = append(strconv.AppendInt(text, quota, 10), ";w="...)
	return strconv.AppendInt(text, seconds, 10)
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
func (a *Answer) Available() string { return string(a.appendAvailable(make([]byte, 0, 64))) }

func (a *Answer) appendAvailable(text []byte) []byte {
	d := &a.Decision
	wait := d.ResetAfter
	switch {
	case d.Outcome == weir.Refused && d.RetryAfter != weir.Never:
		wait = d.RetryAfter
	case a.Speaker.Algorithm == weir.Concurrency:
		wait = 0
	}
	text = append(appendQuoted(text, nameOf(a.Speaker)), ";r="...)
	text = strconv.AppendInt(text, d.Remaining, 10)
	if wait > 0 {
		text = strconv.AppendInt(append(text, ";t="...), Seconds(wait), 10)
	}
	return text
}

// Seconds returns d in whole seconds, no shorter than d.
func Seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
