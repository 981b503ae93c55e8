package plainhttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections without a network.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// piped is a connection that notes what is read once more.
type piped struct {
	net.Conn
	early []byte
	spent time.Duration
	moved bool
}

func (c *piped) Unread(p []byte, spent time.Duration) { c.early, c.spent, c.moved = p, spent, true }

func (c *piped) Hold(func() []byte, func(int) bool) error { return errors.ErrUnsupported }

func (c *piped) WriteSome([]byte) (int, error) { return 0, nil }

func (c *piped) CloseWrite() error { return c.Conn.Close() }

func (c *piped) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// A rig is a server in a bubble.
type rig struct {
	*Server
	l *pipes
}

func newRig(t *testing.T, h http.HandlerFunc) *rig {
	t.Helper()
	s := &http.Server{Handler: h, ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	r := &rig{New(s), newPipes()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Serve(r.l)
	}()
	t.Cleanup(func() {
		_ = r.Shutdown(context.Background())
		s.Close()
		<-ended
	})
	return r
}

func (r *rig) dial(t *testing.T) (client net.Conn, server *piped) {
	t.Helper()
	client, c := net.Pipe()
	server = &piped{Conn: c}
	r.l.conns <- server
	t.Cleanup(func() { client.Close() })
	return client, server
}

func ok(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}

// TestSlowRequests: a connection has the time that net/http gives it, and takes along what it
// has used.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, then string // then comes a second later
		moved       bool
		took        time.Duration // until the server closes it, or net/http has it
	}{
		"silence":                      {took: 2 * time.Second},
		"silence after a request":      {first: get("/v1/auth?a"), took: time.Minute},
		"a head without end":           {first: "GET /v1/auth?a", then: "b", moved: true, took: 2 * time.Second},
		"a body without end":           {first: take("", "Content-Length: 9"), then: "{", moved: true, took: 5 * time.Second},
		"an odd head":                  {first: "GET /v1/auth?a", then: " HTTP/1.1\n", moved: true, took: time.Second},
		"a second head without end":    {first: get("/v1/auth?a") + "GET /v1", then: "/auth", moved: true, took: 2 * time.Second},
		"less than net/http waits for": {first: get("/v1/auth?a") + "GE", then: "T", took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := newRig(t, ok).dial(t)
				begun := time.Now()
				go func() {
					_, _ = io.WriteString(client, test.first)
					time.Sleep(time.Second)
					_, _ = io.WriteString(client, test.then)
				}()
				_, _ = io.Copy(io.Discard, client)
				if server.moved != test.moved {
					t.Fatalf("went to net/http: %v, want %v", server.moved, test.moved)
				}
				took := time.Since(begun)
				if test.moved {
					took = server.spent
				}
				if took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}

// TestShutdownAnswersRequests that have arrived, and closes idle connections.
func TestShutdownAnswersRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, resume := make(chan struct{}), make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-resume
			ok(w, r)
		})
		idle, _ := r.dial(t)
		busy, _ := r.dial(t)
		go func() { _, _ = io.WriteString(busy, get("/v1/auth?a")) }()
		<-begun
		stopped := make(chan error)
		go func() { stopped <- r.Shutdown(context.Background()) }()
		if rest, err := io.ReadAll(idle); err != nil || len(rest) > 0 {
			t.Errorf("an idle connection got %q, %v", rest, err)
		}
		synctest.Wait()
		close(resume)
		answer, err := io.ReadAll(busy)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 204 ") || !strings.Contains(string(answer), "Connection: close\r\n") {
			t.Errorf("got %q, %v", answer, err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestShutdownPassesOn half a request to net/http, although nothing is accepted any more.
func TestShutdownPassesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ok)
		client, server := r.dial(t)
		whole := get("/v1/auth?a")
		go func() { _, _ = io.WriteString(client, whole+whole[:20]) }()
		br := bufio.NewReader(client)
		if got, err := http.ReadResponse(br, nil); err != nil || got.StatusCode != http.StatusNoContent {
			t.Fatalf("%v, %v", got, err)
		}
		synctest.Wait()
		if err := r.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if !server.moved {
			t.Fatal("net/http does not have the connection")
		}
		go func() { _, _ = io.WriteString(client, whole[20:]) }()
		if got, err := http.ReadResponse(br, nil); err != nil || got.StatusCode != http.StatusNoContent {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestShutdownIsBounded by its context.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, resume := make(chan struct{}), make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-resume
		})
		busy, _ := r.dial(t)
		go func() { _, _ = io.WriteString(busy, get("/v1/auth?a")) }()
		<-begun
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if rest, err := io.ReadAll(busy); len(rest) > 0 || err != nil {
			t.Errorf("got %q, %v", rest, err)
		}
		close(resume)
	})
}

// TestServeAfterShutdown serves nothing.
func TestServeAfterShutdown(t *testing.T) {
	t.Parallel()
	s, l := New(new(http.Server)), newPipes()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error("the listener is open")
	}
}

// TestInputIsBounded: a connection holds no more, however long its request is.
func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"GET /v1/auth?" + strings.Repeat("a", 1<<16), get("/v1/auth?a", strings.Repeat("A: b\r\n", 1<<13)), take(strings.Repeat(" ", 9000), "Content-Length: 9000")} {
		c := new(conn)
		for rest := []byte(input); c.examine() == partial; {
			n := min(len(rest), len(c.room()))
			c.in, rest = append(c.in, rest[:n]...), rest[n:]
		}
		if c.examine() != foreign || cap(c.in) > maxRequest {
			t.Errorf("%.30q: %d bytes", input, cap(c.in))
		}
	}
}

// BenchmarkRequests answers requests through a Server and by net/http alone. The client's part
// is in the figures, too.
func BenchmarkRequests(b *testing.B) {
	for name, through := range map[string]bool{"plain": true, "net/http": false} {
		for kind, input := range map[string]string{"GET": get("/v1/auth?a=b"), "POST": take("{}", "Content-Length: 2")} {
			b.Run(kind+" "+name, func(b *testing.B) {
				address := serve(b, http.HandlerFunc(ok), through)
				b.SetParallelism(8)
				b.RunParallel(func(pb *testing.PB) {
					c, err := net.Dial("tcp", address)
					if err != nil {
						b.Error(err)
						return
					}
					defer c.Close()
					answer := make([]byte, 4<<10)
					for pb.Next() {
						_, err := io.WriteString(c, input)
						if err == nil {
							_, err = c.Read(answer)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
