package plainhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"runtime/debug"
	"time"
)

const (
	firstInput = 2 << 10 // bytes of an ordinary connection's buffer
	keptAnswer = 8 << 10 // bytes of an answer whose memory is kept
)

// A conn is a connection that net/http does not know. It belongs to one goroutine; others only
// use its Conn.
type conn struct {
	Conn
	http    *http.Server
	server  *Server
	base    *http.Request // with the context and the address
	in      []byte        // input that is not answered yet
	scanned int           // where the last line of an unfinished head begins
	head    head
	size    int       // of the head; 0: it is not whole
	since   time.Time // when the request began to arrive or, while peeks, the last one was answered
	peeks   bool      // a request was answered and no other has begun
	posted  bool      // that was a POST
	answer  answer
	out     bytes.Buffer
}

// serve answers requests until the connection ends, or one is foreign: then it returns how
// long that has been arriving.
func (c *conn) serve() (spent time.Duration, handOver bool) {
	for {
		switch c.examine() {
		case foreign:
			return time.Since(c.since), true
		case whole:
			if !c.answerOne() {
				return 0, false
			}
			continue
		}
		if c.SetReadDeadline(c.deadline()) != nil {
			return 0, false
		}
		// The order matters: either this sees that the server drains, or the server's
		// deadline replaces the one above.
		if c.server.draining.Load() {
			return time.Since(c.since), len(c.in) > 0 && !c.peeks
		}
		c.makeRoom()
		n, err := c.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		if err != nil && n == 0 {
			// net/http says what is wrong with half a request.
			return time.Since(c.since), len(c.in) > 0 && !c.peeks
		}
	}
}

// examine says what the input begins with.
func (c *conn) examine() verdict {
	if c.peeks && !c.begin() || len(c.in) == 0 {
		return partial
	}
	if c.size == 0 {
		s, found := shapeOf(c.in)
		if found == whole {
			c.scanned, found = endOfHead(c.in, max(c.scanned, len(s.start)))
		}
		if found == whole {
			var ok bool
			if c.head, ok = parseHead(s, string(c.in[:c.scanned])); !ok {
				return foreign
			}
			c.size = c.scanned
		}
		if found != whole {
			return c.bounded(found)
		}
	}
	if len(c.in)-c.size >= max(c.head.length, 0) {
		return whole
	}
	if c.size+c.head.length > maxRequest {
		return foreign
	}
	return partial
}

// begin reports whether another request has begun: net/http waits for its first bytes, and
// skips ends of lines there that old clients send after a POST.
func (c *conn) begin() bool {
	const peeked = 4
	if len(c.in) < peeked {
		return false
	}
	c.peeks, c.since = false, time.Now()
	if c.posted {
		start := c.in[:peeked]
		c.in = c.in[peeked-len(bytes.TrimLeft(start, "\r\n")):]
	}
	return true
}

func (c *conn) bounded(found verdict) verdict {
	if len(c.in) >= maxRequest {
		return foreign
	}
	return found
}

// deadline returns until when to read, as net/http does.
func (c *conn) deadline() time.Time {
	switch {
	case c.peeks:
		return c.since.Add(c.http.IdleTimeout)
	case c.size > 0:
		return c.since.Add(c.http.ReadTimeout)
	}
	return c.since.Add(c.http.ReadHeaderTimeout)
}

// makeRoom grows the buffer by what has arrived, never by what is announced.
func (c *conn) makeRoom() {
	if len(c.in) == cap(c.in) {
		c.in = append(make([]byte, 0, max(2*len(c.in), firstInput)), c.in...)
	}
}

// answerOne answers the request at the beginning of the input. It reports whether the
// connection goes on.
func (c *conn) answerOne() bool {
	end := c.size + max(c.head.length, 0)
	r := c.base.WithContext(c.base.Context())
	c.head.request(r)
	if c.head.length > 0 {
		r.Body = io.NopCloser(bytes.NewReader(c.in[c.size:end]))
	}
	if !c.handle(r) {
		return false
	}
	open := !c.answer.appendTo(&c.out, r.Close || c.server.draining.Load())
	err := c.SetWriteDeadline(time.Now().Add(c.http.WriteTimeout))
	if err == nil {
		_, err = c.Write(c.out.Bytes())
	}
	c.forget(end)
	return open && err == nil
}

// handle passes a request to the handler. It reports false if that ends the connection.
func (c *conn) handle(r *http.Request) (ok bool) {
	defer func() {
		cause := recover()
		if err, is := cause.(error); cause != nil && !(is && errors.Is(err, http.ErrAbortHandler)) {
			c.logf("http: panic serving %v: %v\n%s", r.RemoteAddr, cause, debug.Stack())
		}
	}()
	c.http.Handler.ServeHTTP(&c.answer, r)
	return true
}

func (c *conn) logf(format string, args ...any) {
	if l := c.http.ErrorLog; l != nil {
		l.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// forget drops an answered request, and the memory of a long one.
func (c *conn) forget(end int) {
	c.in = c.in[:copy(c.in, c.in[end:])]
	if len(c.in) == 0 && cap(c.in) > firstInput {
		c.in = nil
	}
	c.peeks, c.posted = true, c.head.method == http.MethodPost
	c.head, c.size, c.scanned, c.since = head{}, 0, 0, time.Now()
	clear(c.answer.header)
	c.answer.status = 0
	c.answer.body.Reset()
	if c.out.Reset(); c.out.Cap() > keptAnswer {
		c.out, c.answer.body = bytes.Buffer{}, bytes.Buffer{}
	}
}

// newConn returns a connection. Its requests have the context that net/http's would have.
func newConn(s *Server, accepted Conn) (*conn, context.CancelFunc) {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.http)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, accepted.LocalAddr())
	if s.http.ConnContext != nil {
		ctx = s.http.ConnContext(ctx, accepted)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{Conn: accepted, http: s.http, server: s, since: time.Now()}
	c.answer = answer{conn: accepted, header: http.Header{}}
	c.base = (&http.Request{RemoteAddr: accepted.RemoteAddr().String()}).WithContext(ctx)
	return c, cancel
}
