package plainhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"github.com/weirlimit/weir/internal/recorder"
	"github.com/weirlimit/weir/server/internal/held"
)

const (
	firstInput = 2 << 10 // bytes of an ordinary connection's buffer
	keptAnswer = 8 << 10 // bytes of an answer whose memory is kept
	keptFields = 1 << 10 // bytes of a head's fields that are kept
	heldAfter  = 2       // requests, from which on reads are held
)

// A conn is a connection that net/http does not know. It belongs to one goroutine; others only
// use its Conn.
type conn struct {
	Conn
	http     *http.Server
	server   *Server
	base     *http.Request // with the context and the address
	in       []byte        // input that is not answered yet
	scanned  int           // where the last line of an unfinished head begins
	head     head
	last     fields    // of the last request; without text if they are long
	size     int       // of the head; 0: it is not whole
	since    time.Time // when the request began to arrive or, while peeks, the last one was answered
	peeks    bool      // a request was answered and no other has begun
	posted   bool      // that was a POST
	answered int       // requests, up to heldAfter
	holds    bool      // reads are held
	probed   bool      // nothing has come for held.Probe
	over     bool      // nothing more is read here
	passOn   bool      // net/http reads on

	// Memory of the request and of the answer, used again for the next ones.
	request http.Request
	derived derived
	url     url.URL
	body    body
	answer  answer
	seen    recorder.Recorder // of the answer, for handlers that need one
	out     []byte
}

// serve answers requests until the connection ends, or one is foreign: then it returns how
// long that has been arriving.
//
// The server closes a connection without a request to make room, and a client that sends one
// request may end the connection with it. So reads are held after the second request.
func (c *conn) serve() (spent time.Duration, passOn bool) {
	for c.await(); !c.over; {
		if err := c.read(); err != nil {
			// net/http says what is wrong with half a request.
			c.leave(len(c.in) > 0 && !c.peeks)
		}
	}
	return time.Since(c.since), c.passOn
}

// leave ends reading here, for good.
func (c *conn) leave(passOn bool) { c.over, c.passOn = true, passOn }

// await sets the deadline of reading.
func (c *conn) await() {
	if c.SetReadDeadline(c.deadline()) != nil {
		c.leave(false)
	}
	// The order matters: either this sees that the server drains, or the server's
	// deadline replaces the one above.
	if c.server.draining.Load() {
		c.leave(len(c.in) > 0 && !c.peeks)
	}
}

// read reads and answers.
func (c *conn) read() error {
	if !c.holds {
		n, err := c.Read(c.room())
		if n > 0 {
			c.received(n)
			return nil
		}
		return err
	}
	err := c.Hold(c.room, c.received)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		c.holds, c.answered = false, heldAfter+1
	case errors.Is(err, os.ErrDeadlineExceeded) && c.peeks && !c.probed:
		c.probed = true
	default:
		return err
	}
	c.await()
	return nil
}

// received answers the input with n more bytes. It reports whether to read on.
func (c *conn) received(n int) bool {
	c.in, c.probed = c.in[:len(c.in)+n], false
	for !c.over {
		switch c.examine() {
		case foreign:
			c.leave(true)
		case whole:
			if !c.answerOne() {
				c.leave(false)
			}
		default:
			holds := c.holds
			c.holds = holds || c.answered == heldAfter
			c.await()
			return !c.over && c.holds == holds
		}
	}
	return false
}

// examine says what the input begins with.
func (c *conn) examine() verdict {
	if c.peeks && !c.begin() || len(c.in) == 0 {
		return partial
	}
	if c.size == 0 {
		s, found := shapeOf(c.in)
		if found == whole && !c.readAgain(s) {
			found = c.readHead(s)
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

// readAgain reads a head whose fields are those of the last request. It reports false if they
// are others.
func (c *conn) readAgain(s *shape) bool {
	at := len(s.start)
	if s.query {
		at += bytes.IndexByte(c.in[at:], '\n') + 1
	}
	// A head that ends with the same fields ends where they do: with an empty line.
	if c.last.text == "" || len(c.in)-at < len(c.last.text) || string(c.in[at:at+len(c.last.text)]) != c.last.text {
		return false
	}
	h, _, ok := parseLine(s, string(c.in[:at]))
	if h.fields = c.last; !ok || !h.bodyFits() {
		return false
	}
	c.head, c.size = h, at+len(c.last.text)
	return true
}

// readHead reads any head.
func (c *conn) readHead(s *shape) (found verdict) {
	if c.scanned, found = endOfHead(c.in, max(c.scanned, len(s.start))); found != whole {
		return found
	}
	var ok bool
	if c.head, ok = parseHead(s, string(c.in[:c.scanned])); !ok {
		return foreign
	}
	c.size = c.scanned
	return whole
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

// deadline returns until when to read, as net/http does, or until when to look for the end of a
// connection whose reads are held.
func (c *conn) deadline() time.Time {
	switch {
	case c.peeks && c.holds && !c.probed && c.http.IdleTimeout > held.Probe:
		return c.since.Add(held.Probe)
	case c.peeks:
		return c.since.Add(c.http.IdleTimeout)
	case c.size > 0:
		return c.since.Add(c.http.ReadTimeout)
	}
	return c.since.Add(c.http.ReadHeaderTimeout)
}

// room returns where to read. The buffer grows by what has arrived, never by what is announced.
func (c *conn) room() []byte {
	if len(c.in) == cap(c.in) {
		c.in = append(make([]byte, 0, max(2*len(c.in), firstInput)), c.in...)
	}
	return c.in[len(c.in):cap(c.in)]
}

// answerOne answers the request at the beginning of the input. It reports whether the
// connection goes on.
func (c *conn) answerOne() bool {
	end := c.size + max(c.head.length, 0)
	r := &c.request
	*r = *c.base
	c.head.fill(r, &c.url)
	if c.head.length > 0 {
		c.body = body{text: c.in[c.size:end]}
		r.Body = &c.body
	}
	if !c.handle(r) {
		return false
	}
	now := time.Now()
	closing := c.answer.closes(r.Close || c.server.draining.Load())
	c.out = c.answer.appendTo(c.out[:0], closing, now)
	err := c.write(c.out, now)
	c.forget(end, now)
	return !closing && err == nil
}

// write writes at once what the system takes, and the rest within the time for it.
func (c *conn) write(p []byte, now time.Time) error {
	if c.holds {
		n, err := c.WriteSome(p)
		if p = p[n:]; len(p) == 0 || err != nil {
			return err
		}
	}
	if err := c.SetWriteDeadline(now.Add(c.http.WriteTimeout)); err != nil {
		return err
	}
	_, err := c.Write(p)
	return err
}

// handle passes a request to the handler. It reports false if that ends the connection.
func (c *conn) handle(r *http.Request) (ok bool) {
	defer func() {
		cause := recover()
		if err, is := cause.(error); cause != nil && !(is && errors.Is(err, http.ErrAbortHandler)) {
			c.logf("http: panic serving %v: %v\n%s", r.RemoteAddr, cause, debug.Stack())
		}
	}()
	c.seen = recorder.Recorder{ResponseWriter: &c.answer}
	c.http.Handler.ServeHTTP(&c.seen, r)
	return true
}

func (c *conn) logf(format string, args ...any) {
	if l := c.http.ErrorLog; l != nil {
		l.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// forget drops a request that was answered now, and the memory of a long one.
func (c *conn) forget(end int, now time.Time) {
	c.in = c.in[:copy(c.in, c.in[end:])]
	if len(c.in) == 0 && cap(c.in) > firstInput {
		c.in = nil
	}
	if c.last = c.head.fields; len(c.last.text) > keptFields {
		c.last = fields{}
	}
	c.peeks, c.posted = true, c.head.method == http.MethodPost
	c.answered = min(c.answered+1, max(c.answered, heldAfter))
	c.head, c.size, c.scanned, c.since = head{}, 0, 0, now
	c.request, c.derived.request, c.url, c.body = http.Request{}, http.Request{}, url.URL{}, body{}
	c.answer.forget()
	if cap(c.out) > keptAnswer {
		c.out, c.answer.body = nil, bytes.Buffer{}
	}
}

// body is the body of a request that has arrived.
type body struct {
	text []byte
	read int
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n := copy(p, b.text[b.read:])
	b.read += n
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements [io.Closer].
func (b *body) Close() error { return nil }

// Whole returns the whole body, in memory that the connection holds until the request is
// answered.
func (b *body) Whole() []byte { return b.text }

// newConn returns a connection. Its requests have the context that net/http's would have.
func newConn(s *Server, accepted Conn) (*conn, context.CancelFunc) {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.http)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, accepted.LocalAddr())
	if s.http.ConnContext != nil {
		ctx = s.http.ConnContext(ctx, accepted)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{Conn: accepted, http: s.http, server: s, since: time.Now()}
	c.answer = answer{conn: c, header: http.Header{}}
	c.base = (&http.Request{RemoteAddr: accepted.RemoteAddr().String()}).WithContext(ctx)
	return c, cancel
}
