package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// A relay lets an http.Handler serve a stream. It is the request's body and the
// response's writer. The connection's mu guards its fields, except
// those marked as the handler's.
type relay struct {
	st     *stream
	conn   *conn
	cancel context.CancelFunc
	moved  *sync.Cond // data has come or gone, or the stream is closed
	input  []byte     // from the client, not yet read
	prefix []byte     // of the first message
	whole  bool       // nothing follows input
	unread bool       // the handler wants no more
	err    error      // why the stream is closed

	header   http.Header // the handler's
	status   int         // the handler's; 0: no header was sent
	output   []byte      // the handler's: not yet sent
	trailers []string    // the handler's: names that were announced
}

// guaranteedRelays is how many calls a connection may have relayed in any case.
const guaranteedRelays = 16

var errClosed = errors.New("frames: the stream is closed")

// startRelay has Options.Relay serve a stream.
func (c *conn) startRelay(st *stream, r *request) {
	s := c.server
	all, most := s.relayed.Add(1), int64(s.options.MaxRelayed)
	// A connection may have as many as are left for all others, as it may of the memory.
	if own := c.relays + 1; all > most || own > guaranteedRelays && own > most-all {
		s.relayed.Add(-1)
		s.count(ReasonRelayed, c.nc)
		st.discard = true
		st.call.Fail(codeResourceExhausted, "the server has too many streams")
		return
	}
	if c.ctx == nil {
		c.ctx = s.options.ConnContext(context.WithValue(context.Background(), http.LocalAddrContextKey, c.nc.LocalAddr()))
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.relays++
	y := &relay{st: st, conn: c, cancel: cancel, moved: sync.NewCond(&c.mu), header: http.Header{}}
	st.relay, st.running = y, true
	request, err := y.request(r)
	if err != nil {
		cancel()
		s.relayed.Add(-1)
		c.relays--
		st.relay, st.running, st.discard = nil, false, true
		st.call.Fail(codeInternal, "malformed path")
		return
	}
	go y.serve(request.WithContext(ctx))
}

// request is a request as handlers see it.
func (y *relay) request(r *request) (*http.Request, error) {
	target, err := url.ParseRequestURI(r.path)
	if err != nil {
		return nil, err
	}
	fields := y.st.call.fields
	header := make(http.Header, len(fields))
	for i := range fields {
		name := textproto.CanonicalMIMEHeaderKey(fields[i].name)
		header[name] = append(header[name], fields[i].value)
	}
	return &http.Request{
		Method: r.method, URL: target, RequestURI: r.path, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: header, Host: r.authority, ContentLength: r.length, Body: (*relayBody)(y),
		RemoteAddr: y.conn.nc.RemoteAddr().String(), TLS: y.conn.tls,
	}, nil
}

// serve runs the handler and ends the answer.
func (y *relay) serve(r *http.Request) {
	c := y.conn
	y.handle(r)
	y.WriteHeader(http.StatusOK)
	trailer := y.trailer()
	c.mu.Lock()
	_ = y.flush()
	y.linger()
	c.server.relayed.Add(-1)
	c.relays--
	st := y.st
	st.running = false
	_ = (*relayBody)(y).drop()
	switch {
	case !st.open:
		c.free(st)
	case c.phase != closing:
		c.soothe(patienceOfCall)
		st.whole, st.trailer = true, trailer
		c.send(st)
	}
	c.kick()
	c.mu.Unlock()
	y.cancel()
}

// linger waits a moment for the end of a request that is already answered. The end is
// probably in flight, and without it a reset would follow the answer, which some clients
// take for an error.
func (y *relay) linger() {
	over := false
	timer := time.AfterFunc(y.conn.server.moment, func() {
		y.conn.mu.Lock()
		defer y.conn.mu.Unlock()
		over = true
		y.moved.Broadcast()
	})
	defer timer.Stop()
	for y.st.open && !y.st.ended && !over {
		y.moved.Wait()
	}
}

// handle runs the handler, also one that panics.
func (y *relay) handle(r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			y.conn.server.options.Logger.Error("a gRPC handler panicked", "method", r.URL.Path, "panic", cause)
			y.header.Set("Grpc-Status", strconv.Itoa(codeInternal))
		}
	}()
	y.conn.server.options.Relay.ServeHTTP(y, r)
}

// arrive takes data from the client.
func (y *relay) arrive(data []byte) error {
	n := int64(len(data))
	if y.unread {
		y.st.allow(n)
		return nil
	}
	if !y.conn.reserve(n) {
		return y.conn.abort(y.st.id, http2.ErrCodeEnhanceYourCalm)
	}
	if !y.begun() {
		y.prefix = append(y.prefix, data[:min(len(data), prefixLength-len(y.prefix))]...)
		y.st.rest += n
		y.conn.unfinished(n)
		if y.begun() {
			y.conn.arrived(y.st)
		}
	}
	y.input = append(y.input, data...)
	y.st.held += n
	y.moved.Broadcast()
	return nil
}

// begun reports whether the first message has come. Those that follow on a stream may come
// whenever the client likes.
func (y *relay) begun() bool {
	return y.whole || y.unread || len(y.prefix) == prefixLength && y.st.got >= prefixLength+int64(binary.BigEndian.Uint32(y.prefix[1:]))
}

// close ends the stream for its handler.
func (y *relay) close(why error) {
	y.err = why
	y.cancel()
	y.moved.Broadcast()
}

// relayBody is a relay as the body of its request.
type relayBody relay

// Read waits for data of the client.
func (b *relayBody) Read(p []byte) (int, error) {
	c, st := b.conn, b.st
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b.input) == 0 && !b.whole && b.err == nil && !b.unread {
		b.moved.Wait()
	}
	switch {
	case len(b.input) > 0 && b.err == nil:
	case b.err == nil && b.whole:
		return 0, io.EOF
	default:
		return 0, errClosed
	}
	n := copy(p, b.input)
	b.input = b.input[n:]
	part := min(st.rest, int64(n))
	c.unfinished(-part)
	st.rest -= part
	st.held -= int64(n)
	c.unreserve(int64(n))
	st.allow(int64(n))
	c.kick()
	return n, nil
}

// Close says that nothing more will be read.
func (b *relayBody) Close() error {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	return b.drop()
}

func (b *relayBody) drop() error {
	b.unread, b.input = true, nil
	b.conn.release(b.st)
	b.moved.Broadcast()
	return nil
}

// Header is the header to be sent, and then the trailer.
func (y *relay) Header() http.Header { return y.header }

// WriteHeader sends the header with the next flush. The first call counts.
func (y *relay) WriteHeader(status int) {
	if y.status == 0 {
		y.status = status
		for _, names := range y.header["Trailer"] {
			for name := range strings.SplitSeq(names, ",") {
				y.trailers = append(y.trailers, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
			}
		}
		block := y.block()
		y.conn.mu.Lock()
		defer y.conn.mu.Unlock()
		if y.st.open && y.conn.phase != closing {
			y.conn.sendHeader(y.st, block, false)
		}
	}
}

// block encodes the header without the fields that belong into the trailer.
func (y *relay) block() []byte {
	b := appendField(nil, ":status", strconv.Itoa(y.status))
	for name, values := range y.header {
		if name == "Trailer" || name == "Connection" || strings.HasPrefix(name, http.TrailerPrefix) || slices.Contains(y.trailers, name) {
			continue
		}
		b = appendValues(b, name, values)
	}
	return b
}

// trailer encodes the trailer; nil if there is none.
func (y *relay) trailer() []byte {
	var b []byte
	for _, name := range y.trailers {
		b = appendValues(b, name, y.header[name])
	}
	for name, values := range y.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			b = appendValues(b, rest, values)
		}
	}
	return b
}

func appendValues(b []byte, name string, values []string) []byte {
	for _, value := range values {
		b = appendField(b, strings.ToLower(name), value)
	}
	return b
}

// Write gathers data for the next flush.
func (y *relay) Write(p []byte) (int, error) {
	y.WriteHeader(http.StatusOK)
	y.output = append(y.output, p...)
	if len(y.output) < maxFrame {
		return len(p), nil
	}
	y.conn.mu.Lock()
	defer y.conn.mu.Unlock()
	if err := y.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush sends the written data, and waits until the client has room for it.
func (y *relay) Flush() {
	y.WriteHeader(http.StatusOK)
	y.conn.mu.Lock()
	defer y.conn.mu.Unlock()
	// The next write reports the error.
	_ = y.flush()
}

func (y *relay) flush() error {
	c, st := y.conn, y.st
	if st.open && c.phase != closing && len(y.output) > 0 {
		st.pending, st.sent = append(st.pending[:0], y.output...), 0
		y.output = y.output[:0]
		c.send(st)
	}
	c.kick()
	for st.open && !c.closed && c.phase != closing && (st.unsent() > 0 || len(c.out) > maxUnsent) {
		if st.unsent() > 0 {
			y.moved.Wait()
		} else {
			c.changed.Wait()
		}
	}
	if !st.open || c.closed || c.phase == closing {
		return errClosed
	}
	return nil
}
