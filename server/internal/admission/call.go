package admission

import (
	"context"
	"time"
)

// A Call is a call of a gRPC server, from its headers on. It is the context of the
// call, too: one allocation for both.
type Call struct {
	context.Context
	conn  *conn
	since time.Time // when the headers came
	taken int64     // from the connection's hold, by the call's own goroutine

	// The fields below are guarded by the connection's mu.
	prev, next *Call
	arriving   bool  // its message has not been read yet
	begun      bool  // its handler runs, and will end it
	header     int64 // from the connection's hold
}

type callKey struct{}

// Value returns the call itself to [CallOf].
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// CallOf returns the call that a context belongs to; nil if no [Gate] has seen it.
func CallOf(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

// Take charges the call for bytes until it ends. The error is [ErrFull]. A nil call may
// take any number.
func (c *Call) Take(bytes int64) error {
	if c == nil {
		return nil
	}
	if !c.conn.hold.Take(bytes) {
		c.conn.gate.rejected(Memory)
		return ErrFull
	}
	c.taken += bytes
	return nil
}

// Received notes that the call's message has been read, and its length: it no longer
// occupies the connection's buffers.
func (c *Call) Received(bytes int) {
	if c != nil {
		c.conn.received(c, int64(bytes), true)
	}
}

// begin notes that the call has a handler.
func (c *Call) begin() {
	if c == nil {
		return
	}
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.begun = true
}

// end returns the bytes that the call holds.
func (c *Call) end() {
	if c == nil {
		return
	}
	c.conn.received(c, 0, false)
	c.conn.finish(c)
	c.conn.hold.Return(c.taken)
	c.taken = 0
}

// A queue holds the calls of a connection whose messages have not been read, the
// oldest first.
type queue struct{ first, last *Call }

func (q *queue) add(c *Call) {
	c.arriving, c.prev = true, q.last
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
}

func (q *queue) remove(c *Call) {
	if !c.arriving {
		return
	}
	if c.prev == nil {
		q.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next, c.arriving = nil, nil, false
}
