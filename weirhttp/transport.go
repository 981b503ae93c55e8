package weirhttp

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// What a [Transport] does unless it is told otherwise.
const (
	// DefaultMaxWait bounds what a request waits, all its tries together.
	DefaultMaxWait = 30 * time.Second
	// DefaultMaxRetries is how often a request is repeated.
	DefaultMaxRetries = 3
)

const (
	// firstBackoff is the wait after a refusal that names none; it doubles.
	firstBackoff = time.Second
	// spread is the part of a wait that chance adds, so that those who were told
	// the same moment do not come back at once.
	spread = 10
	// drainBytes is how much of a discarded body is read to keep its connection.
	drainBytes = 64 << 10
	// maxHosts bounds the hosts that Ahead remembers.
	maxHosts = 1000
)

// A Transport is an http.RoundTripper that keeps to the limits of servers: a
// request answered with 429, or with 503 and Retry-After, is sent again after the
// wait that the answer names in Retry-After, RateLimit or X-RateLimit. Where that
// wait is too long, the answer is the caller's. A request is repeated only if its
// body can be had again (it has none, or a GetBody), and after a 503 only if it
// may safely arrive twice: by its method, or by an Idempotency-Key.
//
// The zero value is ready for use. It is safe for concurrent use and must not be
// copied after the first.
type Transport struct {
	// Base sends the requests. Nil: http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait bounds what a request waits, all its tries together; so does the
	// deadline of its context. Zero: [DefaultMaxWait].
	MaxWait time.Duration
	// MaxRetries is how often a request is repeated. Zero: [DefaultMaxRetries];
	// below zero: never.
	MaxRetries int
	// Ahead also waits before a request is sent, where the last answer of its
	// host said that nothing is left: for clients with one budget a host. A wait
	// beyond MaxWait is not made.
	Ahead bool
	// ResetEpoch reads X-RateLimit-Reset as seconds since 1970, as GitHub sends
	// them, instead of seconds from now.
	ResetEpoch bool

	mu    sync.Mutex
	until map[string]time.Time // when a host has something left again
}

// RoundTrip sends the request and repeats it as long as the server asks for that
// and there is time. Cancelling the request's context ends a wait.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	left := min(t.maxWait(), untilDeadline(r.Context()))
	ahead := t.ahead(r.URL.Host, left)
	if err := sleep(r.Context(), ahead); err != nil {
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
		if err := sleep(r.Context(), wait); err != nil {
			return nil, err
		}
		left -= wait
		if r, err = repeat(r); err != nil {
			return nil, err
		}
	}
}

// wait returns how long to wait before the request is sent again, if it is to be.
func (t *Transport) wait(r *http.Request, resp *http.Response, said advice, try int) (time.Duration, bool) {
	if try >= t.maxRetries() || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
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

// repeatable reports whether a request that may have been done can be sent again.
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

// ahead returns how long the host asks to wait, as far as there is time.
func (t *Transport) ahead(host string, left time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := time.Until(t.until[host])
	if wait <= 0 || wait > left {
		return 0
	}
	return min(spreadOut(wait), left)
}

// note remembers when the host has something left again.
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

func (t *Transport) maxWait() time.Duration {
	if t.MaxWait == 0 {
		return DefaultMaxWait
	}
	return t.MaxWait
}

func (t *Transport) maxRetries() int {
	if t.MaxRetries == 0 {
		return DefaultMaxRetries
	}
	return t.MaxRetries
}

func spreadOut(wait time.Duration) time.Duration { return wait + rand.N(wait/spread+1) }

func untilDeadline(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return 1<<63 - 1
}

// discard gives the connection of an answer back that nobody will read.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
	_ = resp.Body.Close()
}

func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
