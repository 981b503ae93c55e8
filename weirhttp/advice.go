package weirhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAdvice is the longest wait; longer ones are clamped.
	maxAdvice = 366 * 24 * time.Hour
	// minEpochMillis is the least number that is taken for milliseconds since 1970.
	minEpochMillis = 100_000_000_000
)

// advice is when to come back, as the headers of a response say.
type advice struct {
	retryAfter    time.Duration
	hasRetryAfter bool
	quotas        []quota
}

// quota is how much one limit has left, and the time until it has more.
type quota struct {
	remaining    float64
	hasRemaining bool
	reset        time.Duration
	hasReset     bool
}

// afterRefusal returns the wait that a refusal asks for.
func (a *advice) afterRefusal() (wait time.Duration, ok bool) {
	if a.hasRetryAfter {
		return a.retryAfter, true
	}
	if wait, ok = a.empty(); ok {
		return wait, true
	}
	for _, q := range a.quotas {
		if q.hasReset {
			wait, ok = max(wait, q.reset), true
		}
	}
	return wait, ok
}

// empty returns the wait until all limits that have nothing left have more.
func (a *advice) empty() (wait time.Duration, ok bool) {
	for _, q := range a.quotas {
		if q.hasRemaining && q.remaining < 1 && q.hasReset {
			wait, ok = max(wait, q.reset), true
		}
	}
	return wait, ok
}

// readAdvice reads the headers of a response that arrived now. It uses RateLimit or the
// first of its predecessors that is present, and skips values that it cannot parse.
func readAdvice(h http.Header, now time.Time, epoch bool) advice {
	var a advice
	server := now
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		server = date
	}
	a.retryAfter, a.hasRetryAfter = waitOf(h.Get("Retry-After"), server, false)
	if a.quotas = quotas(strings.Join(h.Values("RateLimit"), ",")); len(a.quotas) > 0 {
		return a
	}
	for _, prefix := range []string{"RateLimit", "X-RateLimit"} {
		var q quota
		q.remaining, q.hasRemaining = number(h.Get(prefix + "-Remaining"))
		q.reset, q.hasReset = waitOf(h.Get(prefix+"-Reset"), server, epoch && prefix == "X-RateLimit")
		if q.hasRemaining || q.hasReset {
			a.quotas = []quota{q}
			break
		}
	}
	return a
}

// quotas reads a RateLimit field: a list such as
//
//	"burst";r=0;t=1, "day";r=90;t=3600
//
// or the dictionary of an older draft, which describes one limit:
//
//	limit=100, remaining=0, reset=30
func quotas(field string) []quota {
	var list []quota
	var dictionary quota
	for _, member := range cut(field, ',') {
		params := cut(member, ';')
		if name, value, isPair := strings.Cut(params[0], "="); isPair && !strings.HasPrefix(name, `"`) {
			dictionary.set(name, value)
			continue
		}
		var q quota
		for _, param := range params[1:] {
			name, value, _ := strings.Cut(param, "=")
			q.set(name, value)
		}
		if q.hasRemaining {
			list = append(list, q)
		}
	}
	if dictionary.hasRemaining || dictionary.hasReset {
		list = append(list, dictionary)
	}
	return list
}

// set sets the parameter that has this name in one of the drafts.
func (q *quota) set(name, value string) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "r", "a", "remaining":
		q.remaining, q.hasRemaining = number(value)
	case "t", "w", "reset":
		var seconds float64
		seconds, q.hasReset = number(value)
		q.reset = within(seconds)
	}
}

// waitOf parses a date, or a number of seconds from now (since 1970 with epoch).
func waitOf(text string, now time.Time, epoch bool) (time.Duration, bool) {
	if date, err := http.ParseTime(text); err == nil {
		return within(date.Sub(now).Seconds()), true
	}
	seconds, ok := number(text)
	if epoch {
		if seconds >= minEpochMillis {
			seconds /= 1000
		}
		seconds -= float64(now.Unix())
	}
	return within(seconds), ok
}

func within(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), maxAdvice.Seconds()) * float64(time.Second))
}

func number(text string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

// cut splits a field at each separator outside of quotes.
func cut(s string, separator byte) []string {
	var parts []string
	quoted, start := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			parts = append(parts, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	return append(parts, strings.TrimSpace(s[start:]))
}
