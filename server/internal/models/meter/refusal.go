package meter

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A refusal is an answer of Weir itself. It is an error, so that functions which read
// requests can return one.
type refusal struct {
	status  int
	message string
	kind    string // of OpenAI's error
	code    string
	other   string // the type of Anthropic's error
	detail  string // its details.error_code; empty: none
	retry   int    // seconds; 0: waiting does not help, or is not known
	// final tells SDKs not to try again.
	final bool
	limit string // the limit that refused; empty: none
	allow string // the method of the path, if the request has another one
	// instead is a cheaper model to try, and insteadBy the limit that says so; empty: none.
	instead, insteadBy string
	// at is when a limit refused, by the clock of the store, and row the row of the price table.
	at  time.Time
	row string
}

// Error returns the message.
func (r *refusal) Error() string { return r.message }

const invalidRequest = "invalid_request_error"

func misunderstood(status int, code, other, message string) *refusal {
	return &refusal{status: status, message: message, kind: invalidRequest, code: code, other: other, final: true}
}

// unknownPath refuses a request of no endpoint.
func unknownPath(method, path string) *refusal {
	for _, other := range []string{http.MethodGet, http.MethodPost} {
		if endpointOf(other, path) != unknown {
			r := misunderstood(http.StatusMethodNotAllowed, "unknown_method", invalidRequest, fmt.Sprintf("%s %s: want %s", shorten(method), path, other))
			r.allow = other
			return r
		}
	}
	return misunderstood(http.StatusNotFound, "unknown_path", "not_found_error", "the path is not metered: "+shorten(path))
}

func invalidBody(message string) *refusal {
	return misunderstood(http.StatusBadRequest, "invalid_body", invalidRequest, message)
}

func unbounded(message string) *refusal {
	return misunderstood(http.StatusBadRequest, "unbounded", invalidRequest, message)
}

func unauthorized(status int, message string) *refusal {
	r := misunderstood(status, "invalid_api_key", "authentication_error", message)
	r.final = status != http.StatusUnauthorized
	if status == http.StatusBadRequest {
		r.other = invalidRequest
	}
	return r
}

// refusedCaller is the answer of a request that shows nobody who may call; code is that of a
// request that is wrong.
func refusedCaller(code string, why *callers.RefusedError) *refusal {
	if why.Status == http.StatusUnauthorized {
		return unauthorized(why.Status, why.Message)
	}
	return misunderstood(why.Status, code, invalidRequest, why.Message)
}

// failed is the answer of a request that went wrong behind Weir.
func failed(status int, code, message string) *refusal {
	return &refusal{status: status, message: message, kind: "server_error", code: code, other: "api_error"}
}

// undecided is the answer if the store reached no decision.
func undecided() *refusal {
	r := failed(http.StatusServiceUnavailable, "no_decision", "the limits could not be decided; retry in 1 s")
	r.retry = 1
	return r
}

// lineFull is the answer of a request that may not wait behind so many others.
func lineFull() *refusal {
	return &refusal{
		status: http.StatusTooManyRequests, message: "too many requests wait for room already; retry in 1 s",
		kind: "requests", code: "rate_limit_exceeded", other: "rate_limit_error", retry: 1,
	}
}

// longWait is how long an SDK may wait by itself, in seconds. Some would sleep for hours,
// others ignore the number and try at once.
const longWait = 60

// refusedBy is the answer of a request that a limit refused. Open is the number of requests
// whose holds alone keep it out; 0 if the limit is used up.
func refusedBy(a *rules.Applied, d weir.Decision, open int) *refusal {
	l, asked, meter := a.Limit, a.Act.Charges[a.Charge].Cost, meterOf(a)
	r := &refusal{status: http.StatusTooManyRequests, kind: "tokens", code: "rate_limit_exceeded", other: "rate_limit_error", limit: l.Name}
	if meter == config.MeterRequests {
		r.kind = "requests"
	}
	subject, kept := fmt.Sprintf("limit %q (%s)", l.Name, limitText(l, meter)), ""
	if keep := a.Act.Charges[a.Charge].Keep; keep > 0 {
		kept = fmt.Sprintf(" beside the %s that are kept for others", config.AmountText(meter, keep))
	}
	switch {
	case d.Source == acts.SourceFailClosed:
		u := undecided()
		u.limit = l.Name
		return u
	case d.RetryAfter == weir.Never:
		r.status, r.kind, r.code, r.other, r.final = http.StatusRequestEntityTooLarge, invalidRequest, "request_too_large", "request_too_large", true
		r.message = fmt.Sprintf("%s: %s asked can never fit%s", subject, config.AmountText(meter, asked), kept)
		return r
	}
	r.retry = int(max(1, ratelimitheader.Seconds(d.RetryAfter)))
	r.final = r.retry > longWait
	slots := algo.TraitsOf(l.Algorithm).HoldsSlots
	if open == 0 && !slots && (meter == config.MeterUSD || l.Period >= 24*time.Hour) {
		r.kind, r.code, r.detail, r.final = "insufficient_quota", "insufficient_quota", "enforced_spend_limit_reached", true
	}
	r.message = fmt.Sprintf("%s: %s asked, %s left%s; retry in %s", subject, config.AmountText(meter, asked), config.AmountText(meter, d.Remaining), kept, waitText(r.retry))
	if open > 0 {
		r.message += fmt.Sprintf("; the rest is held by %d open request%s", open, plural(open))
	}
	return r
}

// meterOf returns what a limit counts: that of the rule, even if the key has another limit.
func meterOf(a *rules.Applied) string { return rules.MeterOf(a.Act.Charges[a.Charge].Limit) }

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// waitText is a time to wait as people read it, rounded up.
func waitText(seconds int) string {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	count := func(n int, unit string) string {
		if n != 1 {
			unit += "s"
		}
		return fmt.Sprint(n, " ", unit)
	}
	parts := func(n, large int, units [2]string) string {
		text := count(n/large, units[0])
		if rest := n % large; rest > 0 {
			text += " " + count(rest, units[1])
		}
		return text
	}
	minutes, hours := (seconds+minute-1)/minute, (seconds+hour-1)/hour
	switch {
	case seconds <= 2*minute:
		return fmt.Sprint(seconds, " s")
	case minutes < 60:
		return count(minutes, "minute")
	case seconds <= day:
		return parts(minutes, 60, [2]string{"hour", "minute"})
	}
	return parts(hours, 24, [2]string{"day", "hour"})
}

// limitText is a limit as messages have it.
func limitText(l *weir.Limit, meter string) string {
	text := l.String()
	switch _, rest, found := strings.Cut(text, "/"); {
	case algo.TraitsOf(l.Algorithm).HoldsSlots:
		return decimal(l.Count) + " at once"
	case found:
		rest, _, _ = strings.Cut(rest, " ")
		return config.AmountText(meter, l.Count) + "/" + rest
	}
	return text
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// newID returns an ID for an answer.
func newID() string { return rand.Text() }

// body returns the body of the answer in a form.
func (r *refusal) body(f Form, id string) []byte {
	var body any
	if f == Anthropic {
		type details struct {
			Code string `json:"error_code"`
		}
		type failure struct {
			Type    string   `json:"type"`
			Message string   `json:"message"`
			Details *details `json:"details,omitempty"`
		}
		e := failure{Type: r.other, Message: r.message}
		if r.detail != "" {
			e.Details = &details{r.detail}
		}
		body = struct {
			Type  string  `json:"type"`
			Error failure `json:"error"`
			ID    string  `json:"request_id"`
		}{"error", e, id}
	} else {
		type failure struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		}
		body = struct {
			Error failure `json:"error"`
		}{failure{r.message, r.kind, nil, r.code}}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // It is made of texts.
	}
	return text
}

// write sends the answer.
func (r *refusal) write(w http.ResponseWriter, f Form, id string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Weir-Source", "weir")
	h.Set("Weir-Id", id)
	h.Set("X-Request-Id", id)
	h.Set("Request-Id", id)
	if r.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(r.retry))
	}
	if r.final {
		h.Set("X-Should-Retry", "false")
	}
	if r.limit != "" {
		h.Set("Weir-Limit", headerText(r.limit))
	}
	if r.allow != "" {
		h.Set("Allow", r.allow)
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(append(r.body(f, id), '\n'))
}

// headerText replaces what cannot stand in a header.
func headerText(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
}

// describe describes the limits of a plan in headers.
func describe(h http.Header, plan *rules.Plan) {
	decisive := plan.Decisive(speaks)
	if decisive == nil {
		return
	}
	answer := ratelimitheader.Answer{Decision: decisive.Decision()}
	answer.Decision.Limit = decisive.Limit
	for i := range plan.Applied {
		if a := &plan.Applied[i]; speaks(a) {
			answer.Limits = append(answer.Limits, a.Limit)
		}
	}
	// The style has older headers, too, which a provider has of its own.
	written := http.Header{}
	answer.Write(written, ratelimitheader.Draft11)
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
		if values := written[name]; len(values) > 0 {
			h[name] = values
		}
	}
}
