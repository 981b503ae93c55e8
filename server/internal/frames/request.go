package frames

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// onHeaders handles a header block that has ended, of a new stream or its trailers.
func (c *conn) onHeaders(id uint32) error {
	b := &c.block
	ends := b.ends
	if b.invalid || b.dependent {
		return c.malformed(id, ends)
	}
	if !c.idle(id) {
		if st := c.streams[id]; st != nil {
			return c.onTrailers(st)
		}
		if slices.Contains(c.aborted, id) {
			return c.stray(id, ends)
		}
	}
	if err := c.register(id); err != nil {
		return err
	}
	switch {
	case c.phase == leaving:
		// The client knows by the GOAWAY that it was not served.
		if !ends {
			c.remember(id)
		}
		return c.charge(1)
	case c.slots >= c.server.options.MaxStreams:
		c.server.count(ReasonStreams, c.nc)
		if !ends {
			c.remember(id)
		}
		return c.abort(id, http2.ErrCodeRefusedStream)
	}
	bytes := streamBytes + b.bytes(c.server.options.MaxHeaderList)
	if !c.reserve(bytes) {
		if !ends {
			c.remember(id)
		}
		return c.abort(id, http2.ErrCodeRefusedStream)
	}
	st := c.enter(id, bytes)
	if !c.called {
		c.called = true
		if listener, ok := c.wire.Conn.(interface{ Called() }); ok {
			listener.Called()
		}
	}
	r := &b.request
	st.length = r.length
	if st.ended = ends; !b.truncated && !r.valid() || ends && st.length > 0 {
		return c.abort(id, http2.ErrCodeProtocol)
	}
	st.call.fields, r.fields = r.fields, st.call.fields
	if b.truncated {
		c.server.count(ReasonHeader, c.nc)
		if err := c.charge(10); err != nil {
			return err
		}
		st.plain = plain{status: http.StatusRequestHeaderFieldsTooLarge, code: codeResourceExhausted, text: "the header list is too large\n"}
	}
	return c.route(st, r, ends)
}

// malformed resets the stream of a header that no request may have.
func (c *conn) malformed(id uint32, ends bool) error {
	if c.idle(id) {
		if err := c.register(id); err != nil {
			return err
		}
		if !ends {
			c.remember(id)
		}
	}
	return c.abort(id, http2.ErrCodeProtocol)
}

// onTrailers handles the trailers of a request.
func (c *conn) onTrailers(st *stream) error {
	b := &c.block
	switch {
	case st.ended:
		return c.abort(st.id, http2.ErrCodeStreamClosed)
	case !b.ends, b.pseudo, !st.complete():
		return c.abort(st.id, http2.ErrCodeProtocol)
	}
	return c.ended(st)
}

// valid reports whether the pseudo-headers are those of a request.
func (r *request) valid() bool {
	if r.method == "CONNECT" {
		return r.scheme == "" && r.path == "" && r.authority != ""
	}
	return r.method != "" && r.scheme != "" && (strings.HasPrefix(r.path, "/") || r.path == "*")
}

// route finds the handler of a call.
func (c *conn) route(st *stream, r *request, ends bool) error {
	subtype, isGRPC := subtypeOf(r.contentType)
	o := &c.server.options
	switch {
	case st.plain.status != 0:
	case r.method != "POST":
		st.plain = plain{status: http.StatusMethodNotAllowed, code: codeUnimplemented, text: "gRPC calls are POST requests\n", head: r.method == "HEAD"}
	case !isGRPC:
		st.plain = plain{status: http.StatusUnsupportedMediaType, code: codeInvalidArgument, text: "the content-type of gRPC calls is application/grpc\n"}
	}
	st.call.method = r.path
	st.call.subtype, st.call.gzip = subtype, r.encoding == gzipEncoding
	st.handle, st.serve = o.Methods[r.path], o.Streams[r.path]
	switch {
	case st.plain.status != 0:
		st.discard = true
	case st.handle == nil && st.serve == nil:
		st.discard = true
		st.call.Fail(codeUnimplemented, "unknown method "+r.path)
	case r.encoding != "" && r.encoding != "identity" && !st.call.gzip, subtype != "" && subtype != "proto":
		st.discard = true
		st.call.Fail(codeUnimplemented, "messages are encoded with protobuf, and compressed with gzip if at all")
		st.call.SetTrailer("grpc-accept-encoding", gzipEncoding)
	default:
		if !c.prepare(st, r) {
			return nil
		}
	}
	if ends && st.open {
		return c.ended(st)
	}
	return nil
}

// prepare makes a call that a handler will answer, or refuses it already. It reports whether
// the stream is still there.
func (c *conn) prepare(st *stream, r *request) bool {
	st.call.ctx = &callContext{yieldKey: c.server.options.YieldKey}
	if r.timeout != "" {
		timeout, ok := parseTimeout(r.timeout)
		if !ok {
			st.discard = true
			st.call.Fail(codeInternal, "malformed grpc-timeout: "+strconv.Quote(r.timeout))
			return true
		}
		st.call.ctx.deadline = c.read.Add(timeout)
	}
	if c.server.options.Admit == nil {
		return true
	}
	st.running = true // so that nobody else frees it
	c.admit(&st.call)
	if st.running = false; !st.open {
		c.free(st)
		return false
	}
	st.discard = st.call.code != 0
	return true
}

// admit has Admit judge a call without the lock: Admit may take its time.
func (c *conn) admit(call *Call) {
	c.mu.Unlock()
	defer c.mu.Lock()
	c.server.options.Admit(call)
}

// subtypeOf reads a content-type.
func subtypeOf(contentType string) (subtype string, isGRPC bool) {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	switch {
	case !ok:
		return "", false
	case rest == "" || rest[0] == ';':
		return "", true
	case rest[0] != '+':
		return "", false
	}
	subtype, _, _ = strings.Cut(rest[1:], ";")
	return subtype, true
}

// timeoutUnits are the units of grpc-timeout.
var timeoutUnits = [256]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout parses a grpc-timeout: up to 8 digits and a unit.
func parseTimeout(s string) (time.Duration, bool) {
	const digits = 8
	if len(s) < 2 || len(s) > digits+1 {
		return 0, false
	}
	unit := timeoutUnits[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if err != nil || unit == 0 {
		return 0, false
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}
