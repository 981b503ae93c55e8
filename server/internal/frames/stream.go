package frames

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// premature is how young a call is that its client cancels too soon to have wanted
// an answer. Deadlines of honest clients are longer.
const premature = 5 * time.Millisecond

// A stream is a call while HTTP/2 is concerned with it. The connection's mu guards
// it, except its call while the handler runs.
type stream struct {
	call Call
	conn *conn
	id   uint32

	began   time.Time
	arrived time.Duration // by the server's clock, no earlier than began
	handle  Handler
	group   []*stream     // that Gather answers together, this one the first; nil: none
	serve   StreamHandler // instead of handle
	flow    *Stream       // of serve, once that runs
	discard bool          // the answer stands, and the message is thrown away
	ended   bool          // the client has sent everything
	running bool          // a handler has the call
	open    bool          // it is among the connection's streams

	length int64 // what content-length says; -1: nothing
	got    int64
	body   []byte // what has come of a message
	held   int64  // bytes of the budget that the message takes
	rest   int64  // bytes of held that belong to an unfinished message
	credit int64  // what the client may send again on this stream and does not know yet

	receiveWindow int64
	sendWindow    int64
	queued        bool   // it is among the connection's blocked streams
	pending       []byte // data that waits for a window, from sent
	sent          int
	waits         time.Duration // since when pending waits for a window
	trailer       []byte        // the block that follows it; nil: none does
	whole         bool          // nothing will follow pending and trailer
	plain         plain
}

// plain is an answer that is not gRPC's.
type plain struct {
	status int // 0: it is gRPC's
	code   uint32
	text   string
	head   bool // the client wants no body
}

var streams = sync.Pool{New: func() any { return new(stream) }}

// enter opens a stream, for which bytes were reserved.
func (c *conn) enter(id uint32, bytes int64) *stream {
	st := streams.Get().(*stream)
	st.conn, st.id, st.open, st.length = c, id, true, -1
	st.began, st.arrived = c.read, c.server.soon()
	st.receiveWindow, st.sendWindow = firstWindow+c.extra, c.streamWindow
	st.call.conn, st.call.taken = c, bytes
	c.streams[id] = st
	c.slots++
	c.most = max(c.most, c.slots)
	return st
}

// forget closes a stream. Its slot is free when its handler has returned too.
func (c *conn) forget(st *stream, why error) {
	delete(c.streams, st.id)
	st.open = false
	if st.flow != nil {
		c.dropReceipt(st.flow)
	}
	c.active = c.server.now()
	if st.call.ctx != nil {
		st.call.ctx.end(why)
	}
	if !st.running {
		c.free(st)
	}
}

// free releases the resources of a stream.
func (c *conn) free(st *stream) {
	c.release(st)
	c.unreserve(st.call.taken)
	c.slots--
	if c.slots == 0 || c.phase != open {
		c.changed.Broadcast()
		c.departed()
	}
	if st.queued {
		at := slices.Index(c.blocked, st)
		c.blocked = slices.Delete(c.blocked, at, at+1)
	}
	st.call.reset()
	*st = stream{call: st.call, body: keep(st.body), pending: keep(st.pending)}
	streams.Put(st)
}

// release returns the memory that was reserved for the message.
func (c *conn) release(st *stream) {
	c.arrived(st)
	if n := st.held; n > 0 {
		st.held = 0
		c.unreserve(n)
	}
}

// arrived notes that no more of a stream's message is expected.
func (c *conn) arrived(st *stream) {
	c.unfinished(-st.rest)
	st.rest = 0
}

// unfinished counts bytes of unfinished messages.
func (c *conn) unfinished(n int64) {
	const notable = 64 << 10
	if before := c.arriving; before/piece != (before+n)/piece && max(before, before+n) > notable {
		c.budget.Unfinished(before + n)
	}
	c.arriving += n
}

// piece is the unit in which connections take memory of the budget.
const piece = 16 << 10

// reserve takes memory for a call, and reports whether there was some.
func (c *conn) reserve(n int64) bool {
	if more := (c.held + n - c.reserved + piece - 1) / piece * piece; more > 0 {
		if !c.budget.Take(more) {
			c.server.count(ReasonMemory, c.nc)
			return false
		}
		c.reserved += more
	}
	c.held += n
	return true
}

// unreserve returns memory of a call. Some is kept for the next one.
func (c *conn) unreserve(n int64) {
	c.held -= n
	if spare := (c.reserved - c.held) / piece * piece; spare > 2*piece || c.held == 0 {
		c.budget.Return(spare)
		c.reserved -= spare
	}
}

// allow lets the client send more on the connection. What came takes no window of it: a
// stream would wait for others, behind a proxy those of other clients.
func (c *conn) allow(n int64) {
	if c.credit += n; c.credit >= updateAfter {
		c.out = appendWindowUpdate(c.out, 0, c.credit)
		c.credit = 0
	}
}

// invite lets the client send the rest of a message, however it pads its frames.
func (st *stream) invite(rest int64) {
	st.allow(max(0, rest+updateStreamAfter-(st.receiveWindow-st.conn.extra+st.credit)))
}

// allow lets the client send more on the stream.
func (st *stream) allow(n int64) {
	if st.credit += n; st.credit < updateStreamAfter || st.ended || !st.open {
		return
	}
	st.receiveWindow += st.credit
	st.conn.out = appendWindowUpdate(st.conn.out, st.id, st.credit)
	st.credit = 0
}

// complete reports whether as much has come as was announced.
func (st *stream) complete() bool { return st.length < 0 || st.got == st.length }

// take takes data of a stream.
func (c *conn) take(st *stream, data []byte) error {
	switch {
	case st.discard, st.whole:
		st.allow(int64(len(data)))
		return nil
	case st.flow != nil:
		return st.flow.arrive(data)
	}
	announced := len(st.body) >= prefixLength
	if announced {
		st.body = slices.Grow(st.body, max(0, int(prefixLength+st.size())-len(st.body)))
	}
	st.body = append(st.body, data...)
	if len(st.body) < prefixLength {
		return nil
	}
	if !announced {
		failed := c.expect(st)
		if failed != nil && failed.Oversized && st.call.replyOversized() {
			// The client sends all of the message before it reads the answer.
			st.discard = true
			st.allow(int64(len(st.body)))
			return nil
		}
		if failed != nil {
			return c.refuseCall(st, failed.Code, failed.Text)
		}
	}
	switch rest := st.lacks(); {
	case st.serve != nil && rest <= 0:
		return c.open(st)
	case rest < 0:
		return c.refuseCall(st, codeInternal, "a unary call has one message")
	}
	return nil
}

// size is the length of the message, as its prefix says; 0 before that has come.
func (st *stream) size() int64 {
	if len(st.body) < prefixLength {
		return 0
	}
	return int64(binary.BigEndian.Uint32(st.body[1:]))
}

// lacks is how many bytes of the message have not come; less than 0 if more has.
func (st *stream) lacks() int64 { return prefixLength + st.size() - int64(len(st.body)) }

// expect reserves the memory of a message whose prefix has come, and lets the client send
// the rest.
func (c *conn) expect(st *stream) *Failure {
	size, most := st.size(), c.server.options.most(&st.call)
	switch {
	case st.body[0] != 0 && (st.body[0] != 1 || !st.call.gzip):
		return errEncoding
	case size > most:
		c.server.count(ReasonMessage, c.nc)
		return tooLarge(size, most)
	case !c.reserve(size):
		return errFull
	}
	st.held = size
	if !st.ended {
		st.rest = size
		c.unfinished(size)
		st.invite(st.lacks())
	}
	return nil
}

var (
	errEncoding   = &Failure{Code: codeInternal, Text: "the message is compressed, and no grpc-encoding says how"}
	errUnfinished = &Failure{Code: codeInternal, Text: "the call ended before its message did"}
	errFull       = &Failure{Code: codeResourceExhausted, Text: "requests that are being received use too much memory: retry later"}
)

// refuseCall answers a call before its message has come.
func (c *conn) refuseCall(st *stream, code uint32, text string) error {
	st.call.Fail(code, text)
	c.release(st)
	c.answer(st)
	return c.charge(1)
}

// ended goes on when the client has sent everything.
func (c *conn) ended(st *stream) error {
	st.ended = true
	c.arrived(st)
	switch {
	case st.flow != nil:
		st.flow.moved.Broadcast()
	case st.discard:
		c.answer(st)
	case st.serve != nil && len(st.body) == 0:
		return c.open(st)
	case len(st.body) < prefixLength, st.lacks() > 0:
		return c.refuseCall(st, errUnfinished.Code, errUnfinished.Text)
	default:
		st.call.message = st.body[prefixLength:]
		c.start(st)
	}
	return nil
}

// maxDirect is the largest message that is handled by the goroutine that reads.
const maxDirect = 2 << 10

// start has a call answered: by the goroutine that reads, or else by another one, which may
// take the time to decompress its message.
func (c *conn) start(st *stream) {
	st.running = true
	c.server.handlers.Add(1)
	switch {
	case !c.server.options.Direct || st.flow != nil || len(st.call.message) > maxDirect || st.call.gzip:
	case c.skip > 0 && c.server.options.Gather == nil:
		c.skip--
	default:
		c.queue = append(c.queue, st)
		return
	}
	c.assign(st)
}

// maxYields bounds how many calls other goroutines answer after one that has yielded.
const maxYields = 127

// yielded has other goroutines answer the next calls: they will have to wait as well, and
// reading that moves between goroutines all the time costs more. Then one is tried again.
func (c *conn) yielded() {
	c.yields = min(2*c.yields+1, maxYields)
	c.skip = c.yields
	c.assign(reading)
}

// These stand for other work than to answer a call.
var (
	reading = new(stream) // the connection
	writing = new(stream) // what has gathered
)

// assign gives work to a goroutine: one that waits for work, or a new one. A new one
// would have to grow its stack first, which costs more than most calls.
func (c *conn) assign(work *stream) {
	if n := len(c.workers); n > 0 {
		c.workers[n-1] <- work
		c.workers = c.workers[:n-1]
		return
	}
	go c.work(work)
}

// maxWorkers bounds the goroutines of a connection that wait for work.
const maxWorkers = 256

// work does some work, and then the work that arrives while the connection is busy.
func (c *conn) work(st *stream) {
	var next chan *stream
	for st != nil {
		switch st {
		case reading:
			if !c.serve() {
				return
			}
		case writing:
			c.flush()
		default:
			st.answer()
		}
		if next == nil {
			next = make(chan *stream, 1)
		}
		c.mu.Lock()
		if c.left || len(c.workers) == maxWorkers {
			close(next)
		} else {
			c.workers = append(c.workers, next)
		}
		c.mu.Unlock()
		st = <-next
	}
}

// dismiss ends the goroutines that wait for work.
func (c *conn) dismiss() {
	for _, next := range c.workers {
		close(next)
	}
	c.workers = nil
}

// answer has the handler answer, or Gather if the stream leads a group. It reports whether the
// goroutine does not read, or no longer because the handler has yielded; it has written the
// answer then.
func (st *stream) answer() (yielded bool) {
	c, group := st.conn, st.group
	if group == nil {
		st.call.handle(st)
	} else {
		c.server.gather(group)
	}
	yielded = !st.call.direct
	st.call.direct = false
	st.call.ctx.reader.Store(nil)
	if group == nil && st.call.later && !st.call.decided {
		c.later = append(c.later, st)
		return false
	}
	c.mu.Lock()
	if group == nil {
		c.answered(st)
	}
	for _, st := range group {
		c.answered(st)
	}
	due := yielded && c.mayWrite()
	c.mu.Unlock()
	if due {
		c.flush()
	}
	return yielded
}

// answered goes on after the handler of a call has answered.
func (c *conn) answered(st *stream) {
	ctx := st.call.ctx
	st.running = false
	c.done++
	if st.flow != nil {
		c.opened--
		c.server.opened.Add(-1)
	}
	if st.open && c.phase != closing {
		c.soothe(patienceOfCall)
		c.release(st)
		c.answer(st)
	} else if !st.open {
		c.free(st)
	}
	ctx.end(context.Canceled)
	c.server.handlers.Done()
}

// handle runs the handler of a call, also one that panics. A unary call's message is
// decompressed before and its reply compressed afterwards.
func (c *Call) handle(st *stream) {
	defer func() {
		if cause := recover(); cause != nil {
			c.conn.server.options.Logger.Error("a gRPC handler panicked",
				"method", c.method, "panic", fmt.Sprint(cause), slog.String("stack", string(debug.Stack())))
			c.Fail(codeInternal, "the call failed; the log says why")
		}
	}()
	if st.flow != nil {
		st.flow.serve(st.serve)
		return
	}
	if st.body[0] != 0 {
		var failed *Failure
		if c.message, failed = c.inflate(c.message); failed != nil {
			if !c.decided { // by the reply to what is too large
				c.Fail(failed.Code, failed.Text)
			}
			return
		}
	}
	st.handle(c)
	if !c.decided && !(c.later && c.direct) {
		c.Fail(codeInternal, "the handler did not answer")
	}
	c.pack()
}
