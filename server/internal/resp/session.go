package resp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/held"
	"github.com/weirlimit/weir/server/internal/panics"
)

const (
	inputBytes = 8 << 10 // of an ordinary connection's buffer
	maxArg     = 4 << 10 // bytes of an argument of a command without keys

	// lingerTimeout and lingerBytes bound how much input is read after the last reply: a
	// connection that is closed with unread input may lose the reply.
	lingerTimeout = 500 * time.Millisecond
	lingerBytes   = 1 << 20
)

// A session is one client's connection and its settings. It belongs to one goroutine;
// others only use its conn.
type session struct {
	writer
	server *Server
	conn   net.Conn
	seat   *admission.Seat // nil in tests without a listener
	id     int64
	name   string
	authed bool
	who    *callers.Identity
	// recognized says that the client's certificate was checked.
	recognized bool

	// stranger is the time since which the client has not been authenticated.
	stranger time.Time
	attempts callers.Connection

	in     []byte // input that is not answered yet
	args   [maxArgs][]byte
	batch  *batch // nil if no decision is pending
	whole  int    // bytes of out that are whole replies
	unsent int    // replies that are not written yet, undecided ones included

	active      bool      // a command has come since received
	lastCommand time.Time // when the last command had been answered
	lastInput   time.Time // when the last input had been
	armed       time.Time // the deadline of reading
	written     time.Time // the deadline of writing; zero: there is none

	held  *held.Conn // nil: reads are not held
	holds bool       // reads are held

	ending bool // nothing more is read
	broken bool // nothing more can be written
}

func newSession(s *Server, conn net.Conn) *session {
	c := &session{server: s, conn: conn, id: s.lastID.Add(1), lastCommand: time.Now()}
	c.reset()
	return c
}

// reset returns the session to its first state. A client that sends RESET before AUTH
// gains no time.
func (c *session) reset() {
	if c.authed || c.stranger.IsZero() {
		c.stranger = time.Now()
	}
	c.proto, c.name, c.authed, c.who = 2, "", c.server.callers == nil, nil
}

// run answers requests until the client or the server ends the session. It moves the
// deadline of reading when that has passed, not with each command: a move costs a timer.
func (c *session) run() {
	defer c.server.forget(c)
	defer c.conn.Close()
	c.held = held.Of(c.conn)
	for c.arm() {
		read := c.read
		if c.holds {
			read = func() error { return c.held.Read(c.room, c.received) }
		}
		if err := read(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	if c.ending && !c.broken {
		c.linger()
	}
}

// arm sets the deadline of reading. It reports whether the session goes on.
func (c *session) arm() bool {
	if c.ending || c.broken {
		return false
	}
	now := time.Now()
	c.armed = c.until(now)
	if !now.Before(c.armed) || c.conn.SetReadDeadline(c.armed) != nil {
		return false
	}
	// The order matters: either this sees that the server drains, or the server's
	// deadline replaces the one above.
	c.ending = c.server.draining.Load()
	return !c.ending
}

// until returns when reading is to be interrupted. A client has the idle time for each whole
// command, so that single bytes gain it nothing. Before AUTH, commands gain it nothing
// either.
func (c *session) until(now time.Time) time.Time {
	end := c.stranger.Add(authTimeout)
	if c.authed {
		end = c.lastCommand.Add(idleTimeout)
	}
	if again := c.lastInput.Add(held.Probe); c.holds && now.Before(again) && again.Before(end) {
		return again
	}
	return end
}

// read reads and answers until the deadline passes or the session ends.
func (c *session) read() error {
	for {
		n, err := c.conn.Read(c.room())
		if n > 0 && !c.received(n) || err != nil {
			return err
		}
	}
}

// received answers the input with n more bytes. It reports whether to go on reading, in the
// same way and with the same deadline.
//
// Closing a connection waits for its held read, and the server closes a connection without a
// command to make room. So reads are held from the first command on.
func (c *session) received(n int) bool {
	c.in = c.in[:len(c.in)+n]
	c.survive()
	c.flush()
	c.lastInput = time.Now()
	if c.active {
		c.active, c.lastCommand = false, c.lastInput
		if c.authed && c.held != nil && !c.holds {
			c.holds = true
			return false
		}
	}
	return !c.ending && !c.broken && !c.server.draining.Load() && !c.until(c.lastInput).Before(c.armed)
}

// room returns where to read. The buffer grows by what has arrived, never by what is announced,
// and the memory of a long request is freed.
func (c *session) room() []byte {
	switch {
	case len(c.in) == 0 && cap(c.in) != inputBytes:
		c.in = make([]byte, 0, inputBytes)
	case len(c.in) == cap(c.in):
		grown := make([]byte, len(c.in), min(2*cap(c.in), maxRequest))
		copy(grown, c.in)
		c.in = grown
	}
	return c.in[len(c.in):cap(c.in)]
}

// survive answers, and ends the connection with an error if that panics: it is unknown
// which of the batched commands were executed.
func (c *session) survive() {
	defer func() {
		if cause := recover(); cause != nil {
			c.server.panics.Report(c.server.base, "RESP", cause)
			c.out, c.batch, c.ending = c.out[:c.whole], nil, true
			c.fail("ERR " + panics.Answer)
		}
	}()
	if !c.recognized {
		c.recognize()
	}
	c.answer()
}

// answer answers every complete request, in order.
func (c *session) answer() {
	rest := c.in
	for !c.ending && !c.broken {
		args, size, err := parse(rest, c.args[:0])
		if err != nil {
			c.settle()
			c.fail("ERR " + err.Error())
			c.ending = true
		}
		if size == 0 {
			break
		}
		rest = rest[size:]
		if len(args) > 0 {
			c.active = true
			c.dispatch(args)
		}
	}
	c.settle()
	c.in = c.in[:copy(c.in, rest)]
}

// dispatch executes one command.
func (c *session) dispatch(args [][]byte) {
	c.whole = len(c.out)
	if c.unsent++; c.unsent > maxPipeline || len(c.out) > maxUnsent {
		c.settle()
		c.flush()
		c.unsent = 1
	}
	cmd, known := c.server.command(args[0])
	if !cmd.queues {
		c.settle()
	}
	switch {
	case cmd.foreign:
		c.fail("ERR " + protocolError("this is no HTTP server").Error())
		c.ending = true
	case !c.authed && !cmd.open:
		c.fail("NOAUTH Authentication required.")
	case !known:
		c.fail("ERR unknown command " + shown(args[0]))
	case len(args)-1 < cmd.least || len(args)-1 > cmd.most:
		c.fail("ERR wrong number of arguments for " + shown(args[0]))
	case !cmd.queues && slices.ContainsFunc(args, func(arg []byte) bool { return len(arg) > maxArg }):
		c.fail(fmt.Sprintf("ERR an argument of %s is too long: want at most %d bytes", shown(args[0]), maxArg))
	default:
		cmd.run(c, args[1:])
		if c.authed && c.seat != nil {
			c.seat.Called()
		}
	}
}

// flush writes all replies at once.
func (c *session) flush() {
	c.unsent, c.whole = 0, 0
	if len(c.out) == 0 || c.broken {
		return
	}
	c.broken = c.write(c.out) != nil
	if c.out = c.out[:0]; cap(c.out) > 2*maxUnsent {
		c.out = nil
	}
}

// write writes at once what the system takes, and the rest within the time for it.
func (c *session) write(p []byte) error {
	if c.holds {
		n, err := c.held.WriteSome(p)
		if p = p[n:]; len(p) == 0 || err != nil {
			return err
		}
	}
	if now := time.Now(); c.written.Sub(now) < writeTimeout {
		c.written = now.Add(writeTimeout + writeSlack)
		if err := c.conn.SetWriteDeadline(c.written); err != nil {
			return err
		}
	}
	_, err := c.conn.Write(p)
	return err
}

// linger lets the last reply arrive.
func (c *session) linger() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.conn.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.conn, lingerBytes)
}
