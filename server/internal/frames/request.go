package frames

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A request is the decoded header of a call.
type request struct {
	method, scheme, path, authority string
	contentType, encoding, timeout  string
	length                          int64 // -1: unknown
	fields                          []hpack.HeaderField
}

func (c *conn) onHeaders(f *http2.MetaHeadersFrame) error {
	id, ends := f.StreamID, f.StreamEnded()
	if f.HasPriority() && f.Priority.StreamDep == id {
		return c.malformed(f.FrameHeader, http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol, Cause: errors.New("a stream depends on itself")})
	}
	if st := c.streams[id]; st != nil {
		return c.onTrailers(st, f)
	}
	if slices.Contains(c.aborted, id) {
		return c.stray(id, ends)
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
	if !c.reserve(streamBytes) {
		if !ends {
			c.remember(id)
		}
		return c.abort(id, http2.ErrCodeRefusedStream)
	}
	st := c.admit(id)
	r := request{length: -1, fields: st.call.fields}
	valid := f.Truncated || r.read(f.Fields)
	st.call.fields, st.length = r.fields, r.length
	if !valid || ends && st.length > 0 {
		return c.abort(id, http2.ErrCodeProtocol)
	}
	if f.Truncated {
		c.server.count(ReasonHeader, c.nc)
		if err := c.charge(10); err != nil {
			return err
		}
		st.plain = plain{status: http.StatusRequestHeaderFieldsTooLarge, text: "the header list is too large\n"}
	}
	return c.route(st, &r, ends)
}

// onTrailers handles the trailers of a request.
func (c *conn) onTrailers(st *stream, f *http2.MetaHeadersFrame) error {
	switch {
	case st.ended:
		return c.abort(st.id, http2.ErrCodeStreamClosed)
	case !f.StreamEnded(), len(f.PseudoFields()) > 0, !st.complete():
		return c.abort(st.id, http2.ErrCodeProtocol)
	}
	return c.ended(st)
}

// route finds the handler of a call.
func (c *conn) route(st *stream, r *request, ends bool) error {
	subtype, isGRPC := subtypeOf(r.contentType)
	o := &c.server.options
	switch {
	case st.plain.status != 0:
	case r.method != "POST":
		st.plain = plain{status: http.StatusMethodNotAllowed, text: "gRPC calls are POST requests\n", head: r.method == "HEAD"}
	case !isGRPC:
		st.plain = plain{status: http.StatusUnsupportedMediaType, text: "the content-type of gRPC calls is application/grpc\n"}
	}
	st.call.method = r.path
	handler := o.Methods[r.path]
	identity := r.encoding == "" || r.encoding == "identity"
	known := subtype == "" || subtype == "proto"
	switch {
	case st.plain.status != 0:
		st.discard = true
	case handler == nil && o.Relay == nil:
		st.discard = true
		st.call.Fail(codeUnimplemented, "unknown method "+r.path)
	case handler != nil && identity && known:
		st.handle, st.call.subtype = handler, subtype
		c.prepare(st, r)
	case o.Relay == nil:
		st.discard = true
		st.call.Fail(codeUnimplemented, "messages are encoded with protobuf and not compressed")
	default:
		if handler != nil {
			c.prepare(st, r)
		}
		if !st.discard {
			c.startRelay(st, r)
		}
	}
	if ends && st.open {
		return c.ended(st)
	}
	return nil
}

// prepare makes a call that a handler will answer, or refuses it already.
func (c *conn) prepare(st *stream, r *request) {
	st.call.ctx = new(callContext)
	if r.timeout != "" {
		timeout, ok := parseTimeout(r.timeout)
		if !ok {
			st.discard = true
			st.call.Fail(codeInternal, "malformed grpc-timeout: "+strconv.Quote(r.timeout))
			return
		}
		st.call.ctx.deadline = c.read.Add(timeout)
	}
	if admit := c.server.options.Admit; admit != nil {
		admit(&st.call)
		st.discard = st.call.code != 0
	}
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
var timeoutUnits = map[byte]time.Duration{
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

// read reads the fields of a header. It reports whether they are well-formed.
func (r *request) read(fields []hpack.HeaderField) bool {
	for i := range fields {
		f := &fields[i]
		if !f.IsPseudo() {
			if !r.readField(f) {
				return false
			}
			r.fields = append(r.fields, *f)
			continue
		}
		switch f.Name {
		case ":method":
			r.method = f.Value
		case ":scheme":
			r.scheme = f.Value
		case ":path":
			r.path = f.Value
		case ":authority":
			r.authority = f.Value
		default:
			return false
		}
	}
	if r.method == "CONNECT" {
		return r.scheme == "" && r.path == "" && r.authority != ""
	}
	return r.method != "" && r.scheme != "" && (strings.HasPrefix(r.path, "/") || r.path == "*")
}

// readField reads a field that is no pseudo-header.
func (r *request) readField(f *hpack.HeaderField) bool {
	switch f.Name {
	case "content-type":
		r.contentType = f.Value
	case "grpc-encoding":
		r.encoding = f.Value
	case "grpc-timeout":
		r.timeout = f.Value
	case "te":
		return f.Value == "trailers"
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 62)
		if err != nil || r.length >= 0 && r.length != int64(n) {
			return false
		}
		r.length = int64(n)
	}
	return true
}
