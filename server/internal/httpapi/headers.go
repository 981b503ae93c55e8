package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

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
	// HeadersNone sends neither, and the bodies of refusals of /v1/auth name no
	// limit.
	HeadersNone
	// HeadersDraft03 sends RateLimit-Limit, -Remaining and -Reset (in seconds
	// from now) as draft-ietf-httpapi-ratelimit-headers-03 has them.
	HeadersDraft03
	// HeadersXRateLimitEpoch is HeadersXRateLimit with the reset as an instant, in
	// seconds since 1970, for clients written for such interfaces.
	HeadersXRateLimitEpoch
)

var headerStyles = [...]struct {
	name  string
	write func(http.Header, *verdict)
}{
	HeadersDraft11:    {"draft-11", writeDraft11},
	HeadersXRateLimit: {"x-ratelimit", writeXRateLimit},
	HeadersNone:       {"none", func(http.Header, *verdict) {}},
	HeadersDraft03:    {"draft-03", writeDraft03},

	HeadersXRateLimitEpoch: {"x-ratelimit-epoch", writeXRateLimitEpoch},
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

// noStore is the value of Cache-Control in every answer.
var noStore = []string{"no-store"}

// writeHeaders tells the verdict in the headers of an answer. Their names are spelt
// as net/http keys them.
func (a *api) writeHeaders(h http.Header, v *verdict) {
	h["Cache-Control"] = noStore
	if v.id != "" && strings.IndexFunc(v.id, func(c rune) bool { return c <= ' ' || c > '~' }) < 0 {
		h["Weir-Id"] = []string{v.id}
	}
	if v.speaker == nil {
		return
	}
	headerStyles[a.Headers].write(h, v)
	if !v.allowed {
		answer := v.answer()
		answer.WriteRetryAfter(h)
	}
}

func writeDraft11(h http.Header, v *verdict) {
	answer := v.answer()
	answer.WriteAll(h)
}

func writeXRateLimit(h http.Header, v *verdict) {
	answer := v.answer()
	answer.WriteXRateLimit(h)
}

func writeDraft03(h http.Header, v *verdict) {
	d := &v.speaker.decision
	h.Set("RateLimit-Limit", strconv.FormatInt(v.speaker.applied.Limit.Count, 10))
	h.Set("RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Set("RateLimit-Reset", strconv.FormatInt(ratelimitheader.Seconds(d.ResetAfter), 10))
}

func writeXRateLimitEpoch(h http.Header, v *verdict) {
	writeXRateLimit(h, v)
	d := &v.speaker.decision
	at := time.UnixMicro(d.At)
	if d.At == 0 { // decided without the store
		at = time.Now()
	}
	h.Set("X-RateLimit-Reset", strconv.FormatInt(at.Add(d.ResetAfter+time.Second-time.Microsecond).Unix(), 10))
}

// answer is what the headers tell of a verdict that has a speaker. A limit that
// is only being watched is not among it.
func (v *verdict) answer() ratelimitheader.Answer {
	answer := ratelimitheader.Answer{Speaker: v.speaker.applied.Limit, Decision: v.speaker.decision, Limits: v.live[:0]}
	for i := range v.limits {
		if r := &v.limits[i]; !r.applied.Rule.Shadow {
			answer.Limits = append(answer.Limits, r.applied.Limit)
		}
	}
	return answer
}
