package plainhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/server/internal/held"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unreadable is a connection that reads bytes once more.
type unreadable struct {
	*net.TCPConn
	held  *held.Conn
	early []byte
}

func (c *unreadable) Hold(room func() []byte, received func(int) bool) error {
	return c.held.Read(room, received)
}

func (c *unreadable) WriteSome(p []byte) (int, error) { return c.held.WriteSome(p) }

func (c *unreadable) Unread(p []byte, _ time.Duration) { c.early = p }

func (c *unreadable) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.TCPConn.Read(p)
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &unreadable{TCPConn: c.(*net.TCPConn), held: held.Of(c)}, nil
}

// serve serves a handler by net/http, through a Server or alone, and returns the address.
func serve(t testing.TB, h http.Handler, through bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 60 * time.Second,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	ended := make(chan struct{})
	server := New(s)
	go func() {
		defer close(ended)
		if through {
			_ = server.Serve(listener{l})
		} else {
			_ = s.Serve(listener{l})
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		s.Close()
		<-ended
	})
	return l.Addr().String()
}

// mirror answers with what the request says.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	switch r.URL.RawQuery {
	case "panic":
		panic(http.ErrAbortHandler)
	case "empty":
		w.WriteHeader(http.StatusNoContent)
		return
	case "leave":
		w.Header().Set("Connection", "close")
	case "fields":
		w.Header()["X-A"] = []string{"b", "c\r\nd"}
		w.WriteHeader(http.StatusTooManyRequests)
	}
	keys := []string{}
	for k, v := range r.Header {
		keys = append(keys, fmt.Sprintf("%s=%q", k, v))
	}
	slices.Sort(keys)
	fmt.Fprintf(w, "%s %s %q %s %q %d %v %v %v %q %v\n", r.Method, r.RequestURI, r.URL.Path, r.Proto, r.Host, r.ContentLength, r.TransferEncoding, r.Close, keys, body, err != nil)
}

// A reply is one response and how the connection went on.
type reply struct {
	Status int
	Header http.Header
	Body   string
}

// talk sends input in parts of so many bytes, ends the sending, and returns all replies.
func talk(t *testing.T, address, input string, size int) (replies []reply, rest string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return talkOn(t, conn, input, size)
}

// talkOn is talk on a connection that is open.
func talkOn(t *testing.T, conn net.Conn, input string, size int) (replies []reply, rest string) {
	t.Helper()
	go func() {
		for part := range slices.Chunk([]byte(input), size) {
			if _, err := conn.Write(part); err != nil {
				return
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	all, err := io.ReadAll(conn)
	if e, is := err.(net.Error); is && e.Timeout() {
		t.Errorf("%.60q: no end", input)
	}
	br := bufio.NewReader(bytes.NewReader(all))
	for {
		var asked *http.Request
		if strings.HasPrefix(input, "HEAD ") {
			asked = &http.Request{Method: http.MethodHead}
		}
		got, err := http.ReadResponse(br, asked)
		if err != nil {
			left, _ := io.ReadAll(br)
			return replies, string(left)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Errorf("%.60q: the body of the answer: %v", input, err)
		}
		got.Header.Del("Date")
		got.Header.Del("Content-Length") // net/http sends long answers in chunks
		replies = append(replies, reply{got.StatusCode, got.Header, string(body)})
		if got.Close {
			replies[len(replies)-1].Header.Set("Connection", "close")
		}
	}
}

// twins are odd requests and those that mirror answers in an odd way.
func twins(t *testing.T) []string {
	t.Helper()
	if len(odd) < 200 {
		t.Fatalf("%d requests", len(odd))
	}
	return slices.Concat(odd, []string{
		get("/v1/auth?panic"), get("/v1/auth?empty"), get("/v1/auth?leave") + get("/v1/auth?a"), get("/v1/auth?fields"),
		take("{}", "Content-Length: 2") + "\r\n\r\n\r\n" + get("/v1/auth?a"), get("/v1/auth?a") + "\r\n" + get("/v1/auth?a"), get("/v1/auth?a") + "GET",
	})
}

// TestTwins sends odd requests through both ways, whole and in parts, most of them byte by byte.
func TestTwins(t *testing.T) {
	t.Parallel()
	through, alone := serve(t, http.HandlerFunc(mirror), true), serve(t, http.HandlerFunc(mirror), false)
	for i, input := range twins(t) {
		t.Run(fmt.Sprintf("%d %.40q", i, input), func(t *testing.T) {
			t.Parallel()
			want, wantRest := talk(t, alone, input, len(input))
			for _, size := range []int{len(input), max(1, len(input)/2), max(1, len(input)/40), max(1, len(input)/1000)} {
				got, rest := talk(t, through, input, size)
				if !reflect.DeepEqual(got, want) || rest != wantRest {
					t.Errorf("%q in parts of %d\n got %v %q\nwant %v %q", input, size, got, rest, want, wantRest)
				}
			}
		})
	}
}

// TestTwinsLater sends odd requests as the third ones of connections, whose reads are held.
func TestTwinsLater(t *testing.T) {
	t.Parallel()
	through, alone := serve(t, http.HandlerFunc(mirror), true), serve(t, http.HandlerFunc(mirror), false)
	var all sync.WaitGroup // at once, because a held read may see the end late
	for _, input := range twins(t) {
		for _, size := range []int{len(input), max(1, len(input)/40)} {
			all.Go(func() {
				want, wantRest := talkOn(t, used(t, alone), input, size)
				got, rest := talkOn(t, used(t, through), input, size)
				if !reflect.DeepEqual(got, want) || rest != wantRest {
					t.Errorf("%q in parts of %d\n got %v %q\nwant %v %q", input, size, got, rest, want, wantRest)
				}
			})
		}
	}
	all.Wait()
}

// used returns a connection with two requests that were answered.
func used(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	for range heldAfter {
		if _, err := io.WriteString(conn, get("/v1/auth?a=b", "A: b")); err != nil {
			t.Error(err)
		}
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Error(err)
			continue
		}
		_, _ = io.Copy(io.Discard, got.Body)
	}
	return conn.(*net.TCPConn)
}

// TestHeldReads go on after a pause, and end with the connection.
func TestHeldReads(t *testing.T) {
	t.Parallel()
	conn := used(t, serve(t, http.HandlerFunc(mirror), true))
	time.Sleep(held.Probe * 5 / 4) // the time that is tested
	if replies, rest := talkOn(t, conn, get("/v1/auth?a=b"), 1<<10); len(replies) != 1 || rest != "" {
		t.Errorf("%v, %q", replies, rest)
	}
}

// TestShutdownDuringAHeldRead does not wait for the handler longer than it may.
func TestShutdownDuringAHeldRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, resume := make(chan struct{}), make(chan struct{})
	s := New(&http.Server{
		ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "wait" {
				close(begun)
				<-resume
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(listener{l})
	}()
	conn := used(t, l.Addr().String())
	if _, err := io.WriteString(conn, get("/v1/auth?wait")); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if answer, err := io.ReadAll(conn); err != nil || len(answer) > 0 {
		t.Errorf("got %q, %v", answer, err)
	}
	close(resume)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.http.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestUsualRequestsStay: net/http reads none of them.
func TestUsualRequestsStay(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		get("/v1/auth?domain=d&k=v%20w", "User-Agent: curl/8", "Accept: */*", "Authorization: Bearer secret"),
		take("{}", "Content-Length: 2", "Connection: keep-alive"), strings.Replace(take("{}", "Content-Length: 2"), "take", "settle", 1),
		strings.Replace(take("{}", "Content-Length: 2"), "take", "release", 1),
	} {
		if _, _, size, found := read([]byte(input)); found != whole || size != len(input) {
			t.Errorf("%q goes to net/http", input)
		}
	}
}
