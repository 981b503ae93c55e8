package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/weirhttp"
)

// roundTrip is a server without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is what a server says: a status, and headers in pairs.
func answer(status int, pairs ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	for i := 0; i < len(pairs); i += 2 {
		resp.Header.Set(pairs[i], pairs[i+1])
	}
	return resp
}

// script answers one request after the other, the last for ever, and notes what
// came in and when.
type script struct {
	answers []*http.Response
	bodies  []string
	times   []time.Duration
	begin   time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		body = string(text)
	}
	s.bodies = append(s.bodies, body)
	s.times = append(s.times, time.Since(s.begin))
	resp := *s.answers[min(len(s.times), len(s.answers))-1]
	resp.Body = io.NopCloser(strings.NewReader("body"))
	return &resp, nil
}

func newRequest(ctx context.Context, method, body string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://api.example/", reader)
	if err != nil {
		panic(err)
	}
	return r
}

func noGetBody(r *http.Request) { r.GetBody = nil }

func TestTransport(t *testing.T) {
	t.Parallel()
	ok, refused := answer(200), answer(429, "Retry-After", "10")
	away := answer(503, "Retry-After", "10")
	seconds := func(all ...float64) []float64 { return all }
	for name, test := range map[string]struct {
		transport *weirhttp.Transport
		method    string
		body      string
		change    func(*http.Request)
		answers   []*http.Response
		status    int
		times     []float64 // in seconds; chance adds up to a tenth of each wait
	}{
		"granted":                 {answers: []*http.Response{ok}, status: 200, times: seconds(0)},
		"waits":                   {answers: []*http.Response{refused, ok}, status: 200, times: seconds(0, 10)},
		"waits and sends again":   {method: "POST", body: "hello", answers: []*http.Response{refused, ok}, status: 200, times: seconds(0, 10)},
		"body is gone":            {method: "POST", body: "hello", change: noGetBody, answers: []*http.Response{refused, ok}, status: 429, times: seconds(0)},
		"RateLimit":               {answers: []*http.Response{answer(429, "RateLimit", `"a";r=0;t=4`), ok}, status: 200, times: seconds(0, 4)},
		"no word":                 {answers: []*http.Response{answer(429)}, status: 429, times: seconds(0, 1, 3, 7)},
		"three times":             {answers: []*http.Response{answer(429, "Retry-After", "5")}, status: 429, times: seconds(0, 5, 10, 15)},
		"once":                    {transport: &weirhttp.Transport{MaxRetries: 1}, answers: []*http.Response{refused}, status: 429, times: seconds(0, 10)},
		"never":                   {transport: &weirhttp.Transport{MaxRetries: -1}, answers: []*http.Response{refused}, status: 429, times: seconds(0)},
		"all waits are bounded":   {transport: &weirhttp.Transport{MaxWait: 25 * time.Second}, answers: []*http.Response{refused}, status: 429, times: seconds(0, 10, 20)},
		"a wait that just fits":   {transport: &weirhttp.Transport{MaxWait: 10 * time.Second}, answers: []*http.Response{refused}, status: 429, times: seconds(0, 10)},
		"too long by default":     {answers: []*http.Response{answer(429, "Retry-After", "31")}, status: 429, times: seconds(0)},
		"503":                     {answers: []*http.Response{away, ok}, status: 200, times: seconds(0, 10)},
		"503, no word":            {answers: []*http.Response{answer(503), ok}, status: 503, times: seconds(0)},
		"503, POST":               {method: "POST", answers: []*http.Response{away, ok}, status: 503, times: seconds(0)},
		"503, POST with a key":    {method: "POST", change: func(r *http.Request) { r.Header.Set("Idempotency-Key", "x") }, answers: []*http.Response{away, ok}, status: 200, times: seconds(0, 10)},
		"other errors":            {answers: []*http.Response{answer(500, "Retry-After", "10"), ok}, status: 500, times: seconds(0)},
		"empty, not looked ahead": {answers: []*http.Response{answer(200, "RateLimit", `"a";r=0;t=4`)}, status: 200, times: seconds(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &script{answers: test.answers, begin: time.Now()}
				transport := test.transport
				if transport == nil {
					transport = &weirhttp.Transport{}
				}
				transport.Base = server
				r := newRequest(t.Context(), test.method, test.body)
				if test.change != nil {
					test.change(r)
				}
				resp, err := transport.RoundTrip(r)
				if err != nil || resp.StatusCode != test.status {
					t.Fatalf("got %v, %v", resp, err)
				}
				wantTimes(t, server.times, test.times)
				for _, body := range server.bodies {
					if body != test.body {
						t.Errorf("the body %q came in as %q", test.body, body)
					}
				}
			})
		})
	}
}

func wantTimes(t *testing.T, got []time.Duration, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("sent at %v, want %v", got, want)
	}
	for i := range got {
		earliest := time.Duration(want[i] * float64(time.Second))
		if got[i] < earliest || got[i] > earliest+earliest/10+time.Millisecond {
			t.Errorf("sent at %v, want %v", got, want)
		}
	}
}

func TestTransportKeepsToTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := &weirhttp.Transport{Base: &script{answers: []*http.Response{answer(429, "Retry-After", "10")}}}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, err := transport.RoundTrip(newRequest(ctx, "GET", ""))
		if err != nil || resp.StatusCode != 429 || time.Since(begin) > 0 {
			t.Errorf("a deadline before the wait ends: %v, %v after %v", resp, err, time.Since(begin))
		}
		gone := errors.New("gone")
		cancelled, end := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { end(gone) })
		if _, err := transport.RoundTrip(newRequest(cancelled, "GET", "")); !errors.Is(err, gone) || time.Since(begin) != 3*time.Second {
			t.Errorf("cancelled: %v after %v", err, time.Since(begin))
		}
	})
}

func TestTransportPassesErrorsOn(t *testing.T) {
	t.Parallel()
	down, calls := errors.New("down"), 0
	transport := &weirhttp.Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) { calls++; return nil, down })}
	if _, err := transport.RoundTrip(newRequest(t.Context(), "GET", "")); !errors.Is(err, down) || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
	noBody := &weirhttp.Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) { return answer(429, "Retry-After", "0"), nil })}
	r := newRequest(t.Context(), "POST", "hello")
	r.GetBody = func() (io.ReadCloser, error) { return nil, down }
	if _, err := noBody.RoundTrip(r); !errors.Is(err, down) {
		t.Errorf("got %v, want the error of GetBody", err)
	}
}

// closing notes that a body was closed.
type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

func TestTransportAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		empty := answer(200, "RateLimit", `"a";r=0;t=20`)
		server := &script{answers: []*http.Response{empty, empty, answer(200)}, begin: time.Now()}
		transport := &weirhttp.Transport{Base: server, Ahead: true}
		send := func(host string, timeout time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			r := newRequest(ctx, "GET", "")
			r.URL.Host = host
			if resp, err := transport.RoundTrip(r); err != nil || resp.StatusCode != 200 {
				t.Errorf("got %v, %v", resp, err)
			}
		}
		send("a", time.Hour)
		send("b", time.Hour)        // another host
		send("a", 10*time.Second)   // no time to wait
		send("a", time.Hour)        // waits
		send("a", time.Millisecond) // that is over
		wantTimes(t, server.times, []float64{0, 0, 0, 20, 20})

		transport = &weirhttp.Transport{Base: &script{answers: []*http.Response{empty}}, Ahead: true}
		if _, err := transport.RoundTrip(newRequest(t.Context(), "GET", "")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r, body := newRequest(ctx, "POST", ""), &closing{}
		r.Body = body
		if _, err := transport.RoundTrip(r); !errors.Is(err, context.Canceled) || !body.closed.Load() {
			t.Errorf("cancelled: %v, closed %t", err, body.closed.Load())
		}
	})
}

// TestTransportRemembersSomeHosts: of many hosts, the first thousand are waited for, and others
// once these waits are over.
func TestTransportRemembersSomeHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := &weirhttp.Transport{Base: &script{answers: []*http.Response{answer(200, "RateLimit", `"a";r=0;t=20`)}}, Ahead: true}
		waits := func(host int) bool {
			begun, r := time.Now(), newRequest(t.Context(), "GET", "")
			r.URL.Host = fmt.Sprint(host)
			if _, err := transport.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
			return time.Since(begun) > 0
		}
		const hosts = 1000
		for host := range hosts + 1 {
			waits(host)
		}
		if waits(hosts) || !waits(0) {
			t.Error("host 1000 is waited for, or host 0 is not")
		}
		time.Sleep(time.Minute)
		if waits(hosts) || !waits(hosts) {
			t.Error("host 1000 is not remembered when others are forgotten")
		}
	})
}
