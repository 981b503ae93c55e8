package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// A StreamHandler serves a call that has any number of messages each way. It runs on a goroutine
// of its own once the first message has come, or the client has sent none. The call succeeds
// unless the handler has called [Call.Fail]. It must not use the stream after it has returned.
type StreamHandler func(*Stream)

// A Stream is a call with any number of messages each way. One goroutine may receive messages
// while another one sends, and any may call Acknowledged and Part.
type Stream struct {
	*Call
	st    *stream
	moved *sync.Cond // data has come or gone, or the call has ended

	// The fields below are guarded by the connection's mu.
	receiving bool
	expected  bool     // the memory of the message that the body begins with is reserved
	used      int      // bytes of the body that the last message takes
	inflated  int64    // what it takes besides them
	lent      int64    // what pending takes
	begun     bool     // the header was sent
	parted    bool     // Recv does not wait
	asked     *receipt // waits for what Send was given to be framed; nil: nothing does
}

// A receipt is a PING whose acknowledgement shows that the client has read all that was sent
// before it.
type receipt struct {
	data [8]byte
	sent bool
	read chan struct{} // closed by the acknowledgement
}

const (
	// guaranteedOpen is how many streams a connection may have open while there is room for
	// any.
	guaranteedOpen = 16
	// openBytes estimates the memory of a stream without its messages, but with as much as its
	// client may send after one.
	openBytes = 8<<10 + firstWindow + updateStreamAfter
)

// open has the handler of a stream run, if there is room for it.
func (c *conn) open(st *stream) error {
	s, bytes := c.server, openBytes+c.extra
	c.arrived(st)
	all, most := s.opened.Add(1), int64(s.options.MaxOpen)
	// A connection may have as many as are left for all others, as it may of the memory.
	full := all > most || c.opened >= guaranteedOpen && c.opened >= most-all
	if full || !c.reserve(bytes) {
		s.opened.Add(-1)
		if full {
			s.count(ReasonWatches, c.nc)
		}
		return c.refuseCall(st, codeResourceExhausted, "the server has too many streams, or too little memory for one more")
	}
	c.opened++
	st.call.taken += bytes
	st.flow = &Stream{Call: &st.call, st: st, moved: sync.NewCond(&c.mu), expected: len(st.body) > 0}
	c.start(st)
	return nil
}

// serve runs the handler.
func (s *Stream) serve(h StreamHandler) {
	c := s.conn // the call may be over when this runs
	defer s.ctx.AfterFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.moved.Broadcast()
	})()
	h(s)
	s.decided = true
}

// arrive takes data that follows the first message.
func (s *Stream) arrive(data []byte) error {
	if len(s.st.body) == s.used {
		s.st.arrived = s.conn.server.soon()
	}
	s.st.body = append(s.st.body, data...)
	s.moved.Broadcast()
	return nil
}

// Recv returns the next message. It is valid until the next call of Recv, which lets the client
// send more. The error is io.EOF after the last message, or a [*Failure].
func (s *Stream) Recv() ([]byte, error) {
	message, compressed, err := s.next()
	if err != nil || !compressed {
		return message, err
	}
	plain, failed := s.inflate(message)
	if failed != nil {
		return nil, failed
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.inflated = int64(len(plain))
	return plain, nil
}

// next waits for the next message.
func (s *Stream) next() (message []byte, compressed bool, err error) {
	c, st := s.conn, s.st
	c.mu.Lock()
	defer c.mu.Unlock()
	s.drop()
	s.receiving = true
	defer func() { s.receiving = false }()
	for {
		if !s.expected && len(st.body) >= prefixLength {
			if failed := c.expect(st); failed != nil {
				return nil, false, failed
			}
			s.expected = true
			c.kick()
		}
		switch {
		case s.ctx.Err() != nil:
			return nil, false, ended(s.ctx)
		case s.expected && st.lacks() <= 0:
			s.used = int(prefixLength + st.size())
			c.arrived(st)
			return st.body[prefixLength:s.used:s.used], st.body[0] != 0, nil
		case st.ended && len(st.body) > 0:
			return nil, false, errUnfinished
		case st.ended:
			return nil, false, io.EOF
		case s.parted:
			return nil, false, errParted
		}
		s.moved.Wait()
	}
}

// drop returns what the last message took, and lets the client send the next one's prefix.
func (s *Stream) drop() {
	c, st := s.conn, s.st
	if s.used == 0 {
		return
	}
	st.body = append(st.body[:0], st.body[s.used:]...)
	st.arrived = c.server.soon()
	s.charge(-s.inflated)
	s.inflated, s.used, s.expected = 0, 0, false
	c.release(st)
	st.invite(firstWindow - updateStreamAfter - int64(len(st.body)))
	c.kick()
}

// charge charges the call for memory that was taken, or returns some.
func (s *Stream) charge(bytes int64) {
	s.taken += bytes
	if bytes < 0 {
		s.conn.unreserve(-bytes)
	}
}

// late reports whether a message that has begun takes too long to arrive.
func (s *Stream) late(now, most time.Duration) bool {
	return s.receiving && len(s.st.body) > 0 && now-s.st.arrived > most
}

// Send sends a message, of which it makes a copy. It waits until the client has taken the last
// one but for what fits its windows and the connection's buffer. A client that does not take it
// within Options.WriteTimeout ends the call. The error is a [*Failure].
func (s *Stream) Send(message []byte) error {
	c, st, n := s.conn, s.st, int64(prefixLength+len(message))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reserve(n) {
		return errFull
	}
	s.charge(n)
	for s.ctx.Err() == nil && c.phase != closing && (st.unsent() > 0 || len(c.out) > maxUnsent) {
		if st.unsent() > 0 {
			s.moved.Wait()
		} else {
			c.changed.Wait()
		}
	}
	s.charge(-s.lent)
	if s.lent = n; s.ctx.Err() != nil || c.phase == closing {
		return ended(s.ctx)
	}
	if !s.begun {
		s.begun = true
		c.sendHeader(st, []byte(c.header(s.Call)), false)
	}
	st.pending = binary.BigEndian.AppendUint32(append(st.pending[:0], 0), uint32(len(message)))
	st.pending, st.sent, st.waits = append(st.pending, message...), 0, 0
	c.send(st)
	c.kick()
	return nil
}

// Acknowledged returns a channel that is closed once the client has read all messages that Send
// was given before: it has acknowledged a PING that follows them. If the call ends first, the
// channel stays open. A further call of Acknowledged replaces the last one.
func (s *Stream) Acknowledged() <-chan struct{} {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	p := &receipt{read: make(chan struct{})}
	binary.BigEndian.PutUint64(p.data[:], c.asked)
	if s.ctx.Err() != nil || c.phase == closing {
		return p.read
	}
	c.dropReceipt(s)
	s.asked = p
	c.askReceipt(s)
	c.kick()
	return p.read
}

// askReceipt sends the PING of a stream that has nothing left to be framed.
func (c *conn) askReceipt(s *Stream) {
	if s.asked == nil || s.asked.sent || s.st.unsent() > 0 {
		return
	}
	s.asked.sent = true
	if c.receipts == nil {
		c.receipts = map[[8]byte]*receipt{}
	}
	c.receipts[s.asked.data] = s.asked
	c.out = appendFrame(c.out, head{len(s.asked.data), http2.FramePing, 0, 0})
	c.out = append(c.out, s.asked.data[:]...)
}

// dropReceipt drops the PING that a stream waits for.
func (c *conn) dropReceipt(s *Stream) {
	if s.asked != nil {
		delete(c.receipts, s.asked.data)
		s.asked = nil
	}
}

// Part ends the wait of Recv for further messages, now and later: it returns those that have come,
// and then a [*Failure] that says UNAVAILABLE. It is for streams that last until the server stops.
// Any goroutine may call it until the handler has returned.
func (s *Stream) Part() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.parted = true
	s.moved.Broadcast()
}

var errParted = &Failure{Code: codeUnavailable, Text: partingWords}

// ended is why a call has ended.
func ended(ctx context.Context) *Failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Failure{Code: codeDeadlineExceeded, Text: "the deadline has passed"}
	}
	return &Failure{Code: codeCanceled, Text: "the client has left"}
}
