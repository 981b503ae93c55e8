package frames

import (
	"context"
	"crypto/tls"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/http2/hpack"
)

// Codes of gRPC that this package answers by itself.
const (
	codeCanceled          = 1
	codeInvalidArgument   = 3
	codeDeadlineExceeded  = 4
	codeResourceExhausted = 8
	codeUnimplemented     = 12
	codeInternal          = 13
	codeUnavailable       = 14
)

// A Call is one unary call. It belongs to its handler until that returns; only its
// context may be used afterwards.
type Call struct {
	conn    *conn
	method  string
	subtype string
	fields  []field // without pseudo-headers
	ctx     *callContext
	message []byte
	gzip    bool  // the client compresses messages
	packed  bool  // the reply is compressed
	value   any   // Admit's
	taken   int64 // bytes of the connection's budget; guarded by its mu
	direct  bool  // the handler runs on the goroutine that reads; the handler's
	later   bool  // Gather answers the call

	buffer   []byte // kept for further calls
	largest  int    // reply that is to fit into buffer
	reply    []byte
	decided  bool // by Reply or Fail
	code     uint32
	reason   string
	details  []byte
	trailers []hpack.HeaderField
}

// Take charges the call for the memory that decoding its message takes, until it ends.
// The error is a [*Failure] if there is none. Only the handler may call it.
func (c *Call) Take(bytes int64) error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if !c.conn.reserve(bytes) {
		return errFull
	}
	c.taken += bytes
	return nil
}

// Yield lets another goroutine read the connection if the handler runs on the one that
// reads. A handler that waits for something calls it first, see Options.Direct. It may be
// called again.
func (c *Call) Yield() {
	if !c.direct {
		return
	}
	c.direct = false
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.conn.yielded()
}

// Later leaves the call to Options.Gather, together with others that have come by then, unless
// the handler answers it. It reports whether it does.
func (c *Call) Later() bool {
	c.later = c.direct && c.conn.server.options.Gather != nil
	return c.later
}

// Context ends when the client cancels the call, its deadline passes, its connection
// closes, or its handler returns.
func (c *Call) Context() context.Context { return c.ctx }

// SetValue keeps a value for the handler.
func (c *Call) SetValue(value any) { c.value = value }

// Value returns the value that [Call.SetValue] stored, or nil.
func (c *Call) Value() any { return c.value }

// Method is the full method, such as "/package.Service/Method".
func (c *Call) Method() string { return c.method }

// Header returns the first value of a header, by its name in lower case.
func (c *Call) Header(name string) string {
	for i := range c.fields {
		if c.fields[i].name == name {
			return c.fields[i].value
		}
	}
	return ""
}

// Headers yields the names, in lower case, and values of the headers as they came,
// those that gRPC reserves among them. Values of names that end in "-bin" are encoded.
func (c *Call) Headers() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range c.fields {
			if !yield(c.fields[i].name, c.fields[i].value) {
				return
			}
		}
	}
}

// Message is the request, encoded. It must not be kept or changed. It is empty
// while Options.Admit runs.
func (c *Call) Message() []byte { return c.message }

// Text is the request as a string, which may be kept. The string of a message of some
// kilobytes is the memory of the message, which serves no other call and is charged until
// this one ends; the string of a smaller one is a copy.
func (c *Call) Text() string {
	if cap(c.message) <= maxKept {
		return string(c.message)
	}
	return unsafe.String(unsafe.SliceData(c.message), len(c.message))
}

// RemoteAddr is the address of the client.
func (c *Call) RemoteAddr() net.Addr { return c.conn.nc.RemoteAddr() }

// TLS describes the encryption of the connection; nil if there is none.
func (c *Call) TLS() *tls.ConnectionState { return c.conn.tls }

// Buffer returns memory, with no bytes in it, to append a reply to.
func (c *Call) Buffer() []byte {
	if size := max(bufferBytes, c.largest); cap(c.buffer) < size {
		c.buffer = make([]byte, 0, size)
	}
	return c.buffer[:0]
}

// Reply answers the call with a message, which must stay as it is until the handler
// returns. Of several calls of Reply and Fail the last one counts.
func (c *Call) Reply(message []byte) {
	c.decided, c.code, c.reply = true, 0, message
}

// Fail answers the call with a code of gRPC, which is not 0, and a text.
func (c *Call) Fail(code uint32, text string) { c.FailWith(code, text, nil) }

// FailWith is Fail with details: an encoded google.rpc.Status, or nil.
func (c *Call) FailWith(code uint32, text string, details []byte) {
	if code == 0 {
		code, text = codeInternal, "the call failed without a code"
	}
	c.decided, c.code, c.reason, c.details = true, code, text, details
}

// SetTrailer adds a trailer to the answer. The name is in lower case and no
// reserved one.
func (c *Call) SetTrailer(name, value string) {
	c.trailers = append(c.trailers, hpack.HeaderField{Name: name, Value: value})
}

// Failed returns the code that [Call.Fail] was given, 0 if it was not called.
func (c *Call) Failed() uint32 { return c.code }

const (
	// maxKept is the largest memory that is kept for further calls.
	maxKept = 4096
	// bufferBytes is the least memory for replies.
	bufferBytes = 256
	// maxKeptFields is the largest number of header fields that a call keeps room for.
	maxKeptFields = 64
)

func keep(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// reset prepares the call for reuse and clears its references.
func (c *Call) reset() {
	clear(c.fields)
	clear(c.trailers)
	fields := c.fields[:0]
	if cap(fields) > maxKeptFields {
		fields = nil
	}
	// A larger reply was made of other memory, which may be its handler's.
	largest := min(max(c.largest, len(c.reply)), maxKept)
	*c = Call{buffer: c.buffer, largest: largest, fields: fields, trailers: c.trailers[:0]}
}

// callContext is the context of a call. It starts a timer only if something waits
// for its end.
type callContext struct {
	deadline time.Time // zero: none
	yieldKey any
	reader   atomic.Pointer[Call] // if its handler runs on the goroutine that reads

	mu    sync.Mutex
	err   error
	done  chan struct{}
	timer *time.Timer
	after map[*func()]struct{}
}

// Deadline returns the deadline that the client set.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value returns the context itself for the key of its method Yield.
func (c *callContext) Value(key any) any {
	if key != nil && key == c.yieldKey {
		return c
	}
	return nil
}

// Yield is [Call.Yield] until the handler returns.
func (c *callContext) Yield() {
	if call := c.reader.Swap(nil); call != nil {
		call.Yield()
	}
}

// Err says why the call has ended.
func (c *callContext) Err() error {
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		c.end(context.DeadlineExceeded)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done is closed when the call ends.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		} else {
			c.watch()
		}
	}
	return c.done
}

// AfterFunc calls f on a goroutine of its own when the call ends, unless the
// function that it returns is called before. Package context uses it for contexts
// that are derived from this one.
func (c *callContext) AfterFunc(f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = map[*func()]struct{}{}
	}
	c.after[&f] = struct{}{}
	c.watch()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waits := c.after[&f]
		delete(c.after, &f)
		return waits
	}
}

// watch starts the timer, which is needed from now on.
func (c *callContext) watch() {
	if c.timer == nil && !c.deadline.IsZero() {
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.end(context.DeadlineExceeded) })
	}
}

// end ends the call; the first error counts.
func (c *callContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.done != nil {
		close(c.done)
	}
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
}
