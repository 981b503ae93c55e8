// Package ratelimitheader writes limits and decisions into response headers: RateLimit
// and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, their predecessors of
// draft 03, and the older X-RateLimit.
package ratelimitheader

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/problem"
)

// A Style selects the headers. The zero value is [Draft11].
type Style uint8

// The styles. All of them send Retry-After with a refusal.
const (
	// Draft11 sends RateLimit-Policy, RateLimit and the headers of XRateLimit.
	Draft11 Style = iota
	// XRateLimit sends X-RateLimit-Limit, -Remaining and -Reset, in seconds from now.
	XRateLimit
	// None sends nothing about the limits.
	None
	// Draft03 sends RateLimit-Limit, -Remaining and -Reset, in seconds from now.
	Draft03
	// XRateLimitEpoch is XRateLimit with the reset in seconds since 1970.
	XRateLimitEpoch
	styles
)

var styleNames = [styles]string{"draft-11", "x-ratelimit", "none", "draft-03", "x-ratelimit-epoch"}

// String returns the style's name.
func (s Style) String() string {
	if s < styles {
		return styleNames[s]
	}
	return "Style(" + strconv.Itoa(int(s)) + ")"
}

// ParseStyle returns the style with that name. The error is a [*weir.InvalidError].
func ParseStyle(name string) (Style, error) {
	if i := slices.Index(styleNames[:], name); i >= 0 {
		return Style(i), nil
	}
	return 0, problem.Invalid("headers", strconv.Quote(name), "one of "+StyleNames())
}

// StyleNames lists the names of all styles, for messages.
func StyleNames() string { return strings.Join(styleNames[:], ", ") }

// An Answer is what the headers of one response say.
type Answer struct {
	Limits []*weir.Limit // all that hold for the request; each name is sent once
	// Decision is that of the strictest of them, which is its Limit.
	Decision weir.Decision
}

// AnswerOf returns the answer of a decided act.
func AnswerOf(a *weir.Act) Answer {
	_, d := a.Verdict()
	answer := Answer{Decision: d}
	for i := range a.Charges {
		answer.Limits = append(answer.Limits, a.LimitOf(i))
	}
	return answer
}

// KeyAlternative names the header with the number of the alternative.
const KeyAlternative = "Weir-Alternative"

// Names of headers in their canonical form, which need no conversion.
const (
	keyPolicy     = "Ratelimit-Policy"
	keyRateLimit  = "Ratelimit"
	keyLimit      = "X-Ratelimit-Limit"
	keyRemaining  = "X-Ratelimit-Remaining"
	keyReset      = "X-Ratelimit-Reset"
	keyRetryAfter = "Retry-After"
)

// Write writes the headers of a style, and Retry-After if waiting can turn the refusal
// into a grant. It adds to RateLimit-Policy and RateLimit, which are lists that an outer
// middleware may have begun, and sets all others.
func (a *Answer) Write(h http.Header, style Style) {
	var v values
	text := make([]byte, 0, 192)
	switch style {
	case Draft11:
		text = a.appendPolicies(text)
		v.end(keyPolicy, text)
		text = a.appendAvailable(text)
		v.end(keyRateLimit, text)
		text = a.appendThree(text, &v, keyLimit, keyRemaining, keyReset)
	case XRateLimit, XRateLimitEpoch:
		text = a.appendThree(text, &v, keyLimit, keyRemaining, keyReset)
	case Draft03:
		text = a.appendThree(text, &v, "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset")
	}
	if v.n > 0 {
		v.write(h, string(text))
	}
	if style == XRateLimitEpoch {
		h[keyReset] = []string{strconv.FormatInt(a.resetTime().Unix(), 10)}
	}
	if a.Decision.Alternative > 0 && style != None {
		h[KeyAlternative] = []string{strconv.Itoa(int(a.Decision.Alternative))}
	}
	if seconds, ok := a.Decision.RetrySeconds(); ok {
		h[keyRetryAfter] = []string{strconv.FormatInt(seconds, 10)}
	}
}

// appendThree appends the values of the three headers of older styles.
func (a *Answer) appendThree(text []byte, v *values, limit, remaining, reset string) []byte {
	text = strconv.AppendInt(text, a.Decision.Limit.Count, 10)
	v.end(limit, text)
	text = strconv.AppendInt(text, a.Decision.Remaining, 10)
	v.end(remaining, text)
	text = strconv.AppendInt(text, Seconds(a.reset()), 10)
	v.end(reset, text)
	return text
}

// resetTime returns the reset by the store's clock, rounded up to a second. Decisions
// that were made without the store use this machine's clock.
func (a *Answer) resetTime() time.Time {
	at := a.Decision.At
	if at.IsZero() {
		at = time.Now()
	}
	return at.Add(a.reset() + time.Second - time.Microsecond)
}

// reset is the time until the limit is full again. A request that was refused and can never
// pass would come back then: its time is Never.
func (a *Answer) reset() time.Duration {
	if a.never() {
		return Never
	}
	return a.Decision.ResetAfter
}

func (a *Answer) never() bool {
	return a.Decision.Outcome == weir.Refused && a.Decision.RetryAfter == weir.Never
}

// maxValues is the number of headers that Write writes together.
const maxValues = 5

// values are the values of headers, cut from one text to save allocations.
type values struct {
	keys [maxValues]string
	ends [maxValues]int
	n    int
}

// end makes the text since the last end the value of a header.
func (v *values) end(key string, text []byte) {
	v.keys[v.n], v.ends[v.n] = key, len(text)
	v.n++
}

func (v *values) write(h http.Header, text string) {
	all, from := make([]string, v.n), 0
	for i, key := range v.keys[:v.n] {
		all[i] = text[from:v.ends[i]]
		from = v.ends[i]
		value := all[i : i+1 : i+1]
		if list := key == keyPolicy || key == keyRateLimit; list && h[key] != nil {
			value = append(h[key], value...)
		}
		h[key] = value
	}
}

// Policies returns the value of RateLimit-Policy.
func (a *Answer) Policies() string { return string(a.appendPolicies(make([]byte, 0, 128))) }

func (a *Answer) appendPolicies(text []byte) []byte {
	for i, limit := range a.Limits {
		name := nameOf(limit)
		if slices.ContainsFunc(a.Limits[:i], func(l *weir.Limit) bool { return nameOf(l) == name }) {
			continue
		}
		if i > 0 {
			text = append(text, ", "...)
		}
		text = appendPolicy(appendQuoted(text, name), limit)
	}
	return text
}

// appendPolicy appends how much a limit grants. Slots have no window: they are free
// again when their holders leave.
func appendPolicy(text []byte, l *weir.Limit) []byte {
	text = append(text, ";q="...)
	if algo.TraitsOf(l.Algorithm).HoldsSlots {
		return append(strconv.AppendInt(text, l.Count, 10), `;qu="concurrent-requests"`...)
	}
	quota, seconds := QuotaOf(l)
	text = append(strconv.AppendInt(text, quota, 10), ";w="...)
	return strconv.AppendInt(text, seconds, 10)
}

// QuotaOf returns a limit as a quota in a window of whole seconds, which is all that headers
// can express: at the limit's rate, up to the next whole second.
func QuotaOf(l *weir.Limit) (quota, seconds int64) {
	seconds = max(1, Seconds(l.Period))
	rest := time.Duration(seconds)*time.Second - l.Period
	// rest is below a second and a count below 10¹⁵, so the product fits.
	quota = l.Count + l.Count*rest.Milliseconds()/max(1, l.Period.Milliseconds())
	return min(quota, algo.MaxWindow), seconds
}

// Available returns the value of RateLimit: how much the strictest limit has left, and
// for how long. The time of a refusal is its RetryAfter, because Retry-After must not
// point earlier.
func (a *Answer) Available() string { return string(a.appendAvailable(make([]byte, 0, 64))) }

func (a *Answer) appendAvailable(text []byte) []byte {
	d := &a.Decision
	wait := d.ResetAfter
	switch {
	case a.never():
		wait = 0
	case d.Outcome == weir.Refused:
		wait = d.RetryAfter
	case algo.TraitsOf(d.Limit.Algorithm).HoldsSlots:
		wait = 0
	}
	text = append(appendQuoted(text, nameOf(d.Limit)), ";r="...)
	text = strconv.AppendInt(text, d.Remaining, 10)
	if wait > 0 {
		text = strconv.AppendInt(append(text, ";t="...), Seconds(wait), 10)
	}
	return text
}

// Never is the time until a request can pass that never can, where a field needs a number: 68
// years, the largest number of seconds that every client can read.
const Never = math.MaxInt32 * time.Second

// Seconds returns d in whole seconds, rounded up, at most those of [Never].
func Seconds(d time.Duration) int64 {
	d = min(d, Never)
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// nameOf returns the limit's name, or its text form if it has none.
func nameOf(l *weir.Limit) string {
	if l.Name != "" {
		return l.Name
	}
	return l.String()
}

// PolicyName returns the limit's name in the characters that the string of a header may
// hold: %XX replaces the percent sign and all that are not printable ASCII, so that
// different names stay different.
func PolicyName(l *weir.Limit) string { return string(appendName(nil, nameOf(l), false)) }

// appendQuoted appends a name as a string of a structured field.
func appendQuoted(text []byte, name string) []byte {
	return append(appendName(append(text, '"'), name, true), '"')
}

func appendName(text []byte, name string, quoted bool) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range []byte(name) {
		switch {
		case c < ' ' || c > '~' || c == '%':
			text = append(text, '%', hex[c>>4], hex[c&15])
			continue
		case quoted && (c == '"' || c == '\\'):
			text = append(text, '\\')
		}
		text = append(text, c)
	}
	return text
}
