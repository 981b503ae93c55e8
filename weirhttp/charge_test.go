package weirhttp_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/weirhttp"
)

func bytes(r weirhttp.Response) int64 { return r.Bytes }

func status(r weirhttp.Response) int64 { return int64(r.Status) }

func failures(r weirhttp.Response) int64 {
	if r.Status < 300 {
		return 0
	}
	return 1
}

func TestCharge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		charge  func(weirhttp.Response) int64
		handler http.HandlerFunc
		used    int64
	}{
		"success is free":  {failures, ok, 0},
		"failure counts":   {failures, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 1},
		"bytes":            {bytes, ok, 5},
		"several writes":   {bytes, func(w http.ResponseWriter, r *http.Request) { ok(w, r); ok(w, r) }, 10},
		"a file":           {bytes, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 321)) }, 321},
		"no body":          {bytes, func(http.ResponseWriter, *http.Request) {}, 0},
		"no status":        {status, func(http.ResponseWriter, *http.Request) {}, 200},
		"status by body":   {status, ok, 200},
		"the first status": {status, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, 404},
		"early hints":      {status, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, 404},
		"flushed":          {status, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(404) }, 200},
		"panic":            {status, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500},
		"panic after":      {status, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202); panic(http.ErrAbortHandler) }, 202},
		"more than fits":   {func(weirhttp.Response) int64 { return 5000 }, ok, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for cost := range int64(2) {
				limiter := newLimiter(t, frozen(), weir.PerHour(1000))
				h := weirhttp.Middleware(limiter, weirhttp.Options{
					Key:    func(*http.Request) (string, error) { return "k", nil },
					Cost:   func(*http.Request) int64 { return cost },
					Charge: test.charge,
				})(test.handler)
				func() {
					defer func() { _ = recover() }()
					get(h)
				}()
				if d, err := limiter.Peek(context.Background(), "k"); err != nil || d.Remaining != 1000-test.used {
					t.Errorf("charged %d before: %+v, %v, want %d used", cost, d, err, test.used)
				}
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestHijack lets a handler take over a real connection.
func TestHijack(t *testing.T) {
	t.Parallel()
	statuses := make(chan int, 1)
	h := weirhttp.Middleware(newLimiter(t, frozen(), weir.PerHour(1000)), weirhttp.Options{
		Charge: func(r weirhttp.Response) int64 { statuses <- r.Status; return 1 },
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_ = buf.Flush()
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Errorf("%q, %v", line, err)
	}
	if got := <-statuses; got != 101 {
		t.Errorf("status %d, want 101", got)
	}
}

// plain is a ResponseWriter that can do nothing else.
type plain struct{ http.ResponseWriter }

func TestNothingIsPretended(t *testing.T) {
	t.Parallel()
	h := weirhttp.Middleware(newLimiter(t, frozen(), weir.PerHour(1)), weirhttp.Options{Charge: bytes})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err == nil {
				t.Error("flushed what cannot be")
			}
			if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
				t.Error("hijacked what cannot be")
			}
		}))
	h.ServeHTTP(plain{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
}
