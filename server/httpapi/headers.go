package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
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
	// HeadersNone sends neither.
	HeadersNone
)

var headerStyles = [...]struct {
	name  string
	write func(http.Header, *verdict)
}{
	HeadersDraft11:    {"draft-11", writeDraft11},
	HeadersXRateLimit: {"x-ratelimit", writeXRateLimit},
	HeadersNone:       {"none", func(http.Header, *verdict) {}},
}

// String returns the style's name.
func (s HeaderStyle) String() string {
	if int(s) < len(headerStyles) {
		return headerStyles[s].name
	}
	return "HeaderStyle(" + strconv.Itoa(int(s)) + ")"
}

// ParseHeaderStyle returns the style of that name. The error is a
// [*weir.InvalidError].
func ParseHeaderStyle(name string) (HeaderStyle, error) {
	for i := range headerStyles {
		if headerStyles[i].name == name {
			return HeaderStyle(i), nil
		}
	}
	return 0, invalid("headers", strconv.Quote(name), "one of "+HeaderStyleNames())
}

// HeaderStyleNames lists the names of all styles, for messages.
func HeaderStyleNames() string {
	names := make([]string, len(headerStyles))
	for i := range headerStyles {
		names[i] = headerStyles[i].name
	}
	return strings.Join(names, ", ")
}

// writeHeaders tells the verdict in the headers of an answer.
func (a *api) writeHeaders(h http.Header, v *verdict) {
	h.Set("Cache-Control", "no-store")
	if v.id != "" && strings.IndexFunc(v.id, func(c rune) bool { return c <= ' ' || c > '~' }) < 0 {
		h.Set("Weir-Id", v.id)
	}
	if v.speaker == nil {
		return
	}
	headerStyles[a.Headers].write(h, v)
	if wait := v.speaker.decision.RetryAfter; !v.allowed && wait != weir.Never {
		h.Set("Retry-After", strconv.FormatInt(max(1, roundUp(wait, time.Second)), 10))
	}
}

func writeDraft11(h http.Header, v *verdict) {
	h.Set("RateLimit-Policy", policies(v))
	h.Set("RateLimit", available(v.speaker))
	writeXRateLimit(h, v)
}

func writeXRateLimit(h http.Header, v *verdict) {
	d := &v.speaker.decision
	h.Set("X-RateLimit-Limit", strconv.FormatInt(v.speaker.applied.Limit.Count, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(roundUp(d.ResetAfter, time.Second), 10))
}

// policies lists every limit once that holds for the request.
func policies(v *verdict) string {
	var b strings.Builder
	seen := map[string]bool{}
	for i := range v.limits {
		r := &v.limits[i]
		if r.applied.Rule.Shadow || seen[r.applied.Limit.Name] {
			continue
		}
		seen[r.applied.Limit.Name] = true
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quotedName(r.applied.Limit.Name) + policy(r.applied.Limit))
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
	seconds = max(1, roundUp(l.Period, time.Second))
	rest := time.Duration(seconds)*time.Second - l.Period
	// rest is below a second and a count below 2³², so the product fits.
	return l.Count + l.Count*rest.Milliseconds()/max(1, l.Period.Milliseconds()), seconds
}

// available says what the speaker has left and for how long that is all.
// Retry-After must not point earlier, so a refusal names the same moment.
func available(r *ruling) string {
	d := &r.decision
	wait := d.ResetAfter
	switch {
	case d.Outcome == weir.Refused && d.RetryAfter != weir.Never:
		wait = d.RetryAfter
	case r.applied.Limit.Algorithm == weir.Concurrency:
		wait = 0
	}
	field := quotedName(r.applied.Limit.Name) + ";r=" + strconv.FormatInt(d.Remaining, 10)
	if wait > 0 {
		field += ";t=" + strconv.FormatInt(roundUp(wait, time.Second), 10)
	}
	return field
}

// policyName spells a limit's name in the characters that a header's string may
// hold: all others, and the percent sign, become %XX, so that two names never
// become one.
func policyName(name string) string {
	const hex = "0123456789ABCDEF"
	if strings.IndexFunc(name, func(c rune) bool { return c < ' ' || c > '~' || c == '%' }) < 0 {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

var escapeString = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// quotedName is policyName as a string of a structured field.
func quotedName(name string) string {
	return `"` + escapeString.Replace(policyName(name)) + `"`
}
