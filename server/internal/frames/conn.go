package frames

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// A conn is a connection. Its reading goroutine owns the fields of reader; mu guards
// those that follow it.
type conn struct {
	server *Server
	nc     net.Conn // the reader replaces it once, before anybody else knows it
	wire   wire     // what nc is or encrypts
	tls    *tls.ConnectionState
	reader

	mu      sync.Mutex
	changed *sync.Cond // out has shrunk, a slot is free, or the connection is gone
	serving
	memory
	sending
	lifetime
}

// A reader is what the goroutine that reads the connection uses alone, without the lock.
type reader struct {
	input   input
	headers decoder
	block   block
	queue   []*stream // calls that it has to answer
	begun   int       // how many of queue are answered
	later   []*stream // those of them that Gather answers
	over    bool      // nothing more is read
	skip    int       // further calls that it does not answer
	yields  int       // 2^n-1 after n calls that have yielded
	read    time.Time // when bytes came last
	broken  error     // why nothing can be read any more
	called  bool      // a call has come, and the listener knows
}

// A serving is the calls of a connection and who answers them.
type serving struct {
	streams  map[uint32]*stream
	aborted  []uint32 // streams that the server has ended and the client has not, oldest first
	lastID   uint32   // the highest that the client has used
	gap      uint32   // the lowest of the streams that it left out last
	gapEnd   uint32
	most     int                  // of slots, since streams was made
	slots    int                  // of streams: open ones and those whose handler runs
	done     int64                // calls
	workers  []chan *stream       // of goroutines that wait for work
	left     bool                 // nothing will be served any more
	opened   int64                // streams whose handler runs
	receipts map[[8]byte]*receipt // that streams wait for
	asked    uint64               // how many receipts there were
}

// A memory is what the bytes of the client take, and what it may still send.
type memory struct {
	extra      int64 // what the client may send on a stream beyond firstWindow: until it knows the settings
	credit     int64 // what it may send again and does not know of
	held       int64 // bytes of calls, of their messages and of an unfinished header block
	reserved   int64 // of budget, no less than held
	arriving   int64 // bytes of unfinished messages, also of those that have not come
	blockHeld  int64 // bytes of held for a header block that goes on in further frames
	blockBegan time.Duration
	budget     Hold
}

// A sending is what the client is to get.
type sending struct {
	sendWindow   int64         // how much the client wants to get
	streamWindow int64         // the same of a new stream
	blocked      []*stream     // streams that have data to send and no window of the connection
	noTable      bool          // the client knows that no table is used
	greeted      bool          // the client was sent the settings
	out          []byte        // to be written
	spare        []byte        // memory for out
	flushing     bool          // somebody writes
	stalled      time.Duration // when the write began that goes on; 0: none does
}

// A lifetime is how a connection begins, rests and ends.
type lifetime struct {
	ready    bool // the handshake is over
	calm     bool // the reader is to give its buffer back, or rests
	patience int
	phase    phase
	said     time.Duration // when the client was asked to leave
	parting  string        // why
	promised uint32        // the last stream that a GOAWAY has named
	closed   bool          // nothing can be read or written any more
	born     time.Duration
	active   time.Duration // when it last had a stream
	age      time.Duration // when it is too old; 0: never
}

// phase is how far a connection is with ending.
type phase uint8

const (
	open    phase = iota
	asking        // the client knows that it should go; its calls are still served
	leaving       // further calls are not
	closing       // nothing is served; what was written is to arrive
)

func newConn(s *Server, nc net.Conn) *conn {
	now := s.now()
	c := &conn{
		server: s, wire: wire{Conn: nc},
		serving:  serving{streams: map[uint32]*stream{}},
		memory:   memory{extra: minWindow - firstWindow},
		sending:  sending{sendWindow: minWindow, streamWindow: minWindow},
		lifetime: lifetime{patience: maxPatience, promised: maxWindow, born: s.soon(), active: now},
	}
	c.nc = &c.wire
	c.changed = sync.NewCond(&c.mu)
	c.input.conn, c.headers.most = c, tableSize
	c.budget = s.options.Hold(func() {
		s.count(ReasonMemory, nc)
		_ = nc.Close() // without the lock: another connection's is held
	})
	if s.options.MaxAge > 0 {
		c.age = now + jitter(s.options.MaxAge)
	}
	return c
}

// begin shakes hands, and reports whether the connection is to be served. If not, it has
// ended.
func (c *conn) begin() bool {
	if err := c.handshake(); err != nil {
		if !errors.As(err, new(*faultError)) && !errors.Is(err, io.EOF) {
			c.server.count(ReasonHandshake, c.nc, "error", err)
		}
		c.finish()
		c.leave()
		return false
	}
	return true
}

// serve serves the connection until it ends, or until a handler has yielded, and reports
// whether the goroutine may do other work.
func (c *conn) serve() (more bool) {
	for {
		if (c.over || len(c.queue) >= maxQueue || !c.input.whole()) && c.answerReady() {
			return true
		}
		if c.over {
			c.finish()
			c.leave()
			return false
		}
		err := c.next()
		if errors.Is(err, errCalm) {
			// A new goroutine has a small stack again.
			go c.rest()
			return false
		}
		c.mu.Lock()
		c.over = c.phase == closing || c.closed
		if err != nil && !c.over {
			c.fail(err)
			c.over = true
		}
		c.mu.Unlock()
	}
}

// rest waits until the connection has something to read, or ends, and goes on with it. Its
// stack is as small as can be: others are deeper when they wait for bytes.
func (c *conn) rest() {
	c.wire.await()
	c.mu.Lock()
	c.calm = false
	c.mu.Unlock()
	c.work(reading)
}

// handshake gets as far as the client's settings.
func (c *conn) handshake() error {
	if err := c.encrypt(); err != nil {
		return err
	}
	preface, err := c.input.next(len(http2.ClientPreface))
	if err != nil {
		return err
	}
	known := string(preface) == http2.ClientPreface
	c.greet()
	if !known {
		return c.refuse(fault(http2.ErrCodeProtocol, ReasonHandshake, "the client does not speak HTTP/2"))
	}
	h, payload, err := c.input.frame()
	switch {
	case err != nil && c.broken != nil:
		return err
	case err != nil, h.kind != http2.FrameSettings, h.flags.Has(http2.FlagSettingsAck):
		return c.refuse(fault(http2.ErrCodeProtocol, ReasonHandshake, "the first frame is no SETTINGS"))
	}
	if err := c.process(h, payload); err != nil {
		return c.refuse(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == closing {
		return os.ErrDeadlineExceeded
	}
	c.ready = true
	return nil
}

// refuse sends a client the reason why its handshake failed, and returns the error.
func (c *conn) refuse(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(err)
	return err
}

// encrypt puts TLS on the connection, if it is wanted.
func (c *conn) encrypt() error {
	if c.server.options.TLS == nil {
		return nil
	}
	secret := tls.Server(c.nc, c.server.options.TLS)
	if err := secret.HandshakeContext(context.Background()); err != nil { // tend ends it
		return err
	}
	state := secret.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return errors.New("the client did not select h2 by ALPN")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.tls = secret, &state
	return nil
}

// greet sends the server's settings.
func (c *conn) greet() {
	o := &c.server.options
	settings := []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(o.MaxStreams)},
		{ID: http2.SettingInitialWindowSize, Val: firstWindow},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(o.MaxHeaderList)},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted = true
	c.out = appendFrame(c.out, head{6 * len(settings), http2.FrameSettings, 0, 0})
	for _, s := range settings {
		c.out = binary.BigEndian.AppendUint32(append(c.out, byte(s.ID>>8), byte(s.ID)), s.Val)
	}
	c.out = appendWindowUpdate(c.out, 0, connWindow-minWindow)
	if c.phase == asking {
		c.part()
	}
}

// finish lets what was written arrive, as far as the client reads it, and has further
// input thrown away: a connection that is closed with unread input loses data in flight.
func (c *conn) finish() {
	const linger, most = time.Second, 1 << 20
	limit := time.Now().Add(linger)
	_ = c.nc.SetDeadline(limit)
	c.mu.Lock()
	c.kick()
	for c.flushing && !c.closed {
		c.changed.Wait()
	}
	heard := c.greeted && !c.closed && (c.broken == nil || errors.Is(c.broken, os.ErrDeadlineExceeded))
	c.mu.Unlock()
	half, ok := c.nc.(interface{ CloseWrite() error })
	if heard && ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.nc, most)
	}
}

// leave ends the streams that are still open. It waits for its handlers.
func (c *conn) leave() {
	c.mu.Lock()
	c.end()
	for c.slots > 0 || c.flushing {
		c.changed.Wait()
	}
	c.dropBlock()
	c.budget.Close()
	c.left = true
	c.changed.Broadcast()
	c.dismiss()
	c.mu.Unlock()
	c.server.counts.calls.Add(c.done)
	c.server.remove(c)
}

// end ends the connection at once.
func (c *conn) end() {
	if c.closed {
		return
	}
	c.closed = true
	// Closing TLS would write, and wait for the client.
	_ = c.wire.Close()
	for _, st := range c.streams {
		c.forget(st, context.Canceled)
	}
	c.changed.Broadcast()
}

// cut ends the connection at once.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

func (c *conn) calls() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// A faultError ends a connection because of a fault of its client.
type faultError struct {
	code   http2.ErrCode
	reason Reason
	text   string
}

// Error describes the fault.
func (f *faultError) Error() string { return f.text }

func fault(code http2.ErrCode, reason Reason, text string) error {
	return &faultError{code, reason, text}
}

// maxPatience is how many frames a client may send in a row that are no calls.
// Every call that is answered and every second restore some of the patience:
// a client that answers pings, moves windows or cancels calls while it calls never
// gets near the end of it.
const (
	maxPatience     = 10_000
	patienceOfCall  = 4
	patienceASecond = 200
)

// charge takes some of the patience.
func (c *conn) charge(n int) error {
	if c.patience -= n; c.patience >= 0 {
		return nil
	}
	return fault(http2.ErrCodeEnhanceYourCalm, ReasonFlood, "too many frames that are no calls")
}

func (c *conn) soothe(n int) { c.patience = min(c.patience+n, maxPatience) }

// fail sends the client the reason for the end of the connection.
func (c *conn) fail(err error) {
	if f, ok := err.(*faultError); ok && c.phase != closing {
		c.server.count(f.reason, c.nc, "error", f.text)
		c.goAway(f.code, c.lastID, f.text)
	}
	c.phase = closing
	c.changed.Broadcast()
}

// goAway sends a GOAWAY. The last stream must not rise, because the client may already
// have repeated later calls.
func (c *conn) goAway(code http2.ErrCode, last uint32, text string) {
	c.promised = min(c.promised, last)
	c.out = appendFrame(c.out, head{8 + len(text), http2.FrameGoAway, 0, 0})
	c.out = binary.BigEndian.AppendUint32(c.out, c.promised)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
	c.out = append(c.out, text...)
}
