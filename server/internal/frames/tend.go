package frames

import (
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// farewell is the data of the ping whose answer shows that the client has read a GOAWAY.
var farewell = [8]byte{'f', 'a', 'r', 'e', 'w', 'e', 'l', 'l'}

// patient is how long a client may take to answer that ping.
const patient = time.Second

// jitter is a duration give or take a tenth, so that connections that begin together
// do not end together.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d)) //nolint:gosec // it spreads load
}

// drain asks the client to go elsewhere. Calls in flight are served.
func (c *conn) drain(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask(text)
	c.kick()
}

func (c *conn) ask(text string) {
	if c.phase != open || c.closed {
		return
	}
	c.phase, c.said, c.parting = asking, c.server.soon(), text
	if c.greeted {
		c.part()
	}
}

// part sends the request of ask. A client that is still shaking hands gets it with the
// server's settings: it may have sent its first call already.
func (c *conn) part() {
	c.goAway(http2.ErrCodeNo, maxWindow, c.parting)
	c.out = appendFrame(c.out, head{len(farewell), http2.FramePing, 0, 0})
	c.out = append(c.out, farewell[:]...)
}

// depart serves no further calls: those that the client sent before it knew have come.
func (c *conn) depart() {
	c.phase = leaving
	c.goAway(http2.ErrCodeNo, c.lastID, "")
	c.departed()
}

// departed closes a connection that has nothing left to do.
func (c *conn) departed() {
	if c.phase == leaving && c.slots == 0 && len(c.out) == 0 && !c.flushing {
		c.interrupt()
	}
}

// interrupt has the reader end the connection.
func (c *conn) interrupt() {
	c.phase = closing
	_ = c.wire.SetReadDeadline(time.Unix(1, 0))
	c.changed.Broadcast()
}

// tend ends streams and connections that take too long.
func (c *conn) tend(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	o := &c.server.options
	c.soothe(int(patienceASecond*o.tick().Seconds()) + 1)
	switch {
	case c.stalled > 0 && now-c.stalled > o.WriteTimeout:
		c.server.count(ReasonWrite, c.nc)
		c.end()
		return
	case !c.ready && c.phase != closing && now-c.born > o.HandshakeTimeout:
		_ = c.wire.SetWriteDeadline(time.Unix(1, 0))
		c.interrupt()
	case c.blockHeld > 0 && now-c.blockBegan > o.MessageTimeout && c.phase != closing:
		c.fail(fault(http2.ErrCodeEnhanceYourCalm, ReasonSlow, "a header block took too long to arrive"))
		c.interrupt()
	case c.phase == open && c.age > 0 && now > c.age:
		c.server.count(ReasonAge, c.nc)
		c.ask("the connection is old")
	case c.phase == open && o.IdleTimeout > 0 && len(c.streams) == 0 && c.slots == 0 && now-c.active > o.IdleTimeout && c.greeted:
		c.server.count(ReasonIdle, c.nc)
		c.ask("the connection is idle")
	case c.phase == asking && now-c.said > patient && !c.greeted:
		c.end()
		return
	case c.phase == asking && now-c.said > patient:
		c.depart()
	case c.phase == leaving && c.age > 0 && o.AgeGrace > 0 && now-c.said > o.AgeGrace:
		c.end()
		return
	}
	c.hurry(now)
	c.shrink(now)
	c.kick()
	c.departed()
}

// shrink gives back the memory that a busy time has left.
func (c *conn) shrink(now time.Duration) {
	const busy = 2 * time.Second
	if c.slots > 0 || c.flushing || len(c.out) > 0 || now-c.active < busy {
		return
	}
	if c.ready && !c.calm && c.phase != closing {
		c.calm = true
		// This interrupts the reader, which goes on without its buffer.
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	c.dismiss()
	c.out, c.spare, c.aborted, c.blocked = nil, nil, slices.Clip(c.aborted), nil
	if c.most > 16 {
		c.streams, c.most = map[uint32]*stream{}, 0
	}
}

// hurry ends calls whose message takes too long to come, or whose answer to be read.
func (c *conn) hurry(now time.Duration) {
	o := &c.server.options
	for _, st := range c.streams {
		switch {
		case st.unsent() > 0 && now-st.waits > o.WriteTimeout:
			c.server.count(ReasonWrite, c.nc)
			// Without patience for this, the next frame ends the connection.
			_ = c.abort(st.id, http2.ErrCodeCancel)
		case st.flow != nil && st.flow.late(now, o.MessageTimeout):
			c.server.count(ReasonSlow, c.nc)
			_ = c.abort(st.id, http2.ErrCodeCancel)
		case st.ended || st.whole || st.running:
		case st.discard && now > st.arrived:
			// A stream's client may send no end before it is answered. Others have sent it by now.
			c.answer(st)
		case now-st.arrived <= o.MessageTimeout:
		default:
			c.server.count(ReasonSlow, c.nc)
			st.call.Fail(codeDeadlineExceeded, "the message took too long to arrive")
			c.release(st)
			c.answer(st)
		}
	}
}
