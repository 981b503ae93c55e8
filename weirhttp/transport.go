package weirhttp

import (
	"cmp"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/deadline"
)

const (
	defaultMaxWait    = 30 * time.Second
	defaultMaxRetries = 3
	// firstBackoff is the wait after a refusal that names none; it doubles.
	firstBackoff = time.Second
	// spread is the part of a wait that is added at random, so that clients which
	// were given the same time do not come back at once.
	spread = 10
	// drainBytes is how much of a discarded body is read to reuse its connection.
	drainBytes = 64 << 10
	// maxHosts bounds the hosts that Ahead remembers.
	maxHosts = 1000
)

// A Transport is an http.RoundTripper that obeys the limits of servers: it repeats a
// request answered with 429, or with 503 and Retry-After, after the wait in the response's
// Retry-After, RateLimit or X-RateLimit headers. If that wait is too long it returns the
// response. It repeats a request only if it has no body or a GetBody, and after a 503
// only if it may safely arrive twice: by its method, or by an Idempotency-Key.
//
// The zero value is ready for use. It is safe for concurrent use and must not be
// copied after the first.
type Transport struct {
	// Base sends the requests. Nil: http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait bounds the total wait of a request over all tries, as the deadline of its
	// context does. Zero: 30 s.
	MaxWait time.Duration
	// MaxRetries is the largest number of repeats of a request. Zero: 3. Negative: none.
	MaxRetries int
	// Ahead also waits before a request is sent if the host's last response said that
	// nothing remains. It is for clients with one budget for each host. It does not wait
	// if that would take longer than MaxWait.
	Ahead bool
	// ResetEpoch reads X-RateLimit-Reset as seconds since 1970, as GitHub sends
	// them, instead of seconds from now.
	ResetEpoch bool

	mu    sync.Mutex
	until map[string]time.Time // when a host has something left again
}

// RoundTrip sends the request, and repeats it as long as the server asks for it and there
// is time. Cancelling the request's context ends a wait.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	left := min(cmp.Or(t.MaxWait, defaultMaxWait), untilDeadline(r.Context()))
	ahead := t.ahead(r.URL.Host, left)
	if err := deadline.Sleep(r.Context(), ahead); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	left -= ahead
	for try := 0; ; try++ {
		resp, err := t.base().RoundTrip(r)
		if err != nil {
			return nil, err
		}
		said := readAdvice(resp.Header, time.Now(), t.ResetEpoch)
		t.note(r.URL.Host, resp.StatusCode, said)
		wait, again := t.wait(r, resp, said, try)
		if left = min(left, untilDeadline(r.Context())); !again || wait > left {
			return resp, nil
		}
		discard(resp)
		wait = min(spreadOut(wait), left)
		if err := deadline.Sleep(r.Context(), wait); err != nil {
			return nil, err
		}
		left -= wait
		if r, err = repeat(r); err != nil {
			return nil, err
		}
	}
}

// wait returns how long to wait before repeating the request, and whether to repeat it.
func (t *Transport) wait(r *http.Request, resp *http.Response, said advice, try int) (time.Duration, bool) {
	if try >= cmp.Or(t.MaxRetries, defaultMaxRetries) || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return 0, false
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		if wait, ok := said.afterRefusal(); ok {
			return wait, true
		}
		return firstBackoff << min(try, 10), true
	case http.StatusServiceUnavailable:
		return said.retryAfter, said.hasRetryAfter && repeatable(r)
	}
	return 0, false
}

// repeatable reports whether it is safe to repeat a request that may have had its effect.
func repeatable(r *http.Request) bool {
	methods := []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}
	return slices.Contains(methods, r.Method) || r.Header.Get("Idempotency-Key") != ""
}

func repeat(r *http.Request) (*http.Request, error) {
	again := r.Clone(r.Context())
	if r.Body == nil || r.GetBody == nil {
		return again, nil
	}
	body, err := r.GetBody()
	again.Body = body
	return again, err
}

// ahead returns how long to wait before a request to the host; 0 if there is no time.
func (t *Transport) ahead(host string, left time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := time.Until(t.until[host])
	if wait <= 0 || wait > left {
		return 0
	}
	return min(spreadOut(wait), left)
}

// note remembers when the host will have something left again.
func (t *Transport) note(host string, status int, said advice) {
	wait, ok := said.empty()
	if status == http.StatusTooManyRequests {
		wait, ok = said.afterRefusal()
	}
	if !t.Ahead || !ok {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.until) >= maxHosts {
		maps.DeleteFunc(t.until, func(_ string, until time.Time) bool { return until.Before(now) })
	}
	if t.until == nil {
		t.until = map[string]time.Time{}
	}
	if _, known := t.until[host]; known || len(t.until) < maxHosts {
		t.until[host] = now.Add(wait)
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func spreadOut(wait time.Duration) time.Duration { return wait + rand.N(wait/spread+1) }

func untilDeadline(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return 1<<63 - 1
}

// discard lets the connection of an unread response be reused.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
	_ = resp.Body.Close()
}
