package admission

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// headerBytes is about what the headers and the framing of a call occupy.
	headerBytes = 128
	// firstPause and lastPause are how long a connection that holds too much waits
	// for its calls to be answered before it is closed, in doubling steps.
	firstPause = time.Millisecond
	lastPause  = 64 * time.Millisecond
	// maxAbandoned is how many more calls of a connection may end before their messages
	// are read than calls whose messages are read, times readWorth. Each costs a
	// goroutine, which all others wait for.
	maxAbandoned = 1000
	readWorth    = 4
)

var (
	errHeld      = errors.New("admission: the connection holds more unread bytes than are left for it")
	errAbandoned = errors.New("admission: too many calls of the connection ended before their messages were read")
)

// A conn is a connection whose unread bytes are charged to the budget. The bytes
// that it has read count as held until the calls that they belong to have been
// read; while no call arrives, nothing is held.
type conn struct {
	net.Conn
	gate *Gate
	hold *Hold

	mu       sync.Mutex // guards the fields below; never held while waiting
	arriving queue
	unread   int64 // bytes of the hold
	wasted   int   // calls that ended before their messages were read, less readWorth for each other
	watches  int
	timer    *time.Timer // nil while no call arrives
	closed   bool
}

// An address leads from a peer's address to its connection.
type address struct {
	net.Addr
	conn *conn
}

// ClientAddr returns the address that a listener behind a [Gate] gave its connection,
// for the address that a call's peer has.
func ClientAddr(addr net.Addr) net.Addr {
	if a, ok := addr.(*address); ok {
		return a.Addr
	}
	return addr
}

// RemoteAddr returns the address of the client.
func (c *conn) RemoteAddr() net.Addr { return &address{c.Conn.RemoteAddr(), c} }

// Read reads what the client sent, and closes the connection if it holds too much.
func (c *conn) Read(p []byte) (int, error) {
	if !c.settle() {
		c.gate.rejected(Flood)
		return 0, errors.Join(errAbandoned, c.Close())
	}
	n, err := c.Conn.Read(p)
	if n <= 0 {
		return n, err
	}
	for pause := firstPause; !c.charge(int64(n)); pause *= 2 {
		if pause > lastPause {
			c.gate.rejected(Memory)
			return 0, errors.Join(errHeld, c.Close())
		}
		time.Sleep(pause)
	}
	return n, err
}

// charge charges bytes that were read.
func (c *conn) charge(n int64) bool {
	if !c.hold.Take(n) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.hold.Return(n)
		return true
	}
	c.setUnread(c.unread + n)
	return true
}

// settle returns the charge for bytes that belong to no arriving call, and reports
// whether the connection may be read on. The reader calls it: it has handled everything
// that it read before.
func (c *conn) settle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if c.arriving.first == nil {
		c.release(c.unread)
	}
	return c.wasted <= maxAbandoned
}

// forget drops calls that have ended without a handler: their method does not exist,
// or their client has given up.
func (c *conn) forget() {
	for call := c.arriving.first; call != nil && !call.begun && call.Err() != nil; call = c.arriving.first {
		c.arriving.remove(call)
		c.returnHeader(call)
		c.wasted++
	}
}

func (c *conn) release(n int64) {
	n = min(n, c.unread)
	c.setUnread(c.unread - n)
	c.hold.Return(n)
}

func (c *conn) setUnread(n int64) {
	if was := c.unread; was > evictable || n > evictable {
		c.hold.Unfinished(n)
	}
	c.unread = n
}

// evict closes the connection because others need its bytes.
func (c *conn) evict() {
	c.gate.rejected(Memory)
	_ = c.Close()
}

// expect notes a call whose headers came, and closes the connection if they take more than
// is left.
func (c *conn) expect(call *Call) {
	bytes := call.header
	if !c.hold.Take(bytes) {
		call.header = 0
		c.gate.rejected(Memory)
		_ = c.Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		call.header = 0
		c.hold.Return(bytes)
		return
	}
	c.arriving.add(call)
	if c.timer == nil && !c.closed {
		c.timer = time.AfterFunc(c.gate.options.Timeout, c.check)
	}
}

// finish returns what a call's headers hold.
func (c *conn) finish(call *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returnHeader(call)
}

func (c *conn) returnHeader(call *Call) {
	c.hold.Return(call.header)
	call.header = 0
}

// received notes that a call's message has been read, or will not be read.
func (c *conn) received(call *Call, bytes int64, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !call.arriving {
		return
	}
	if read {
		c.wasted = max(0, c.wasted-readWorth)
	} else {
		c.wasted++
	}
	c.arriving.remove(call)
	c.release(bytes + headerBytes)
}

// check closes the connection if a message takes too long to arrive.
func (c *conn) check() {
	if c.late() {
		c.gate.rejected(Slow)
		_ = c.Close()
	}
}

// late reports whether a message takes too long, and looks again later if not.
func (c *conn) late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if c.closed || c.arriving.first == nil {
		c.timer = nil
		return false
	}
	left := c.gate.options.Timeout - time.Since(c.arriving.first.since)
	if left > 0 {
		c.timer.Reset(left)
	}
	return left <= 0
}

// Write writes to the client, which must read within the timeout.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(c.gate.options.Timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close closes the connection and returns the charge for its unread bytes.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.release(c.unread)
	for call := c.arriving.first; call != nil; call = call.next {
		c.returnHeader(call)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// watch makes room for a stream that stays open, if there is some.
func (c *conn) watch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches == maxOwnWatches {
		return false
	}
	if c.gate.watches.Add(1) > int64(c.gate.options.Watches) {
		c.gate.watches.Add(-1)
		return false
	}
	c.watches++
	return true
}

func (c *conn) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches--
	c.gate.watches.Add(-1)
}
