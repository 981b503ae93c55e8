package frames

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// inputSize is the size of the buffers that connections are read through.
const inputSize = 8 << 10

var inputs = sync.Pool{New: func() any { return new([inputSize]byte) }}

// An input reads a connection for its framer. While the connection is calm it has no
// buffer, only room for a few bytes, whose arrival gets it one.
type input struct {
	conn *conn
	buf  *[inputSize]byte // nil: few is used
	few  [16]byte
	from int // of what was read
	to   int
}

// Read copies what has come, or waits for more.
func (in *input) Read(p []byte) (int, error) {
	if in.from == in.to {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.room()[in.from:in.to])
	in.from += n
	return n, nil
}

func (in *input) room() []byte {
	if in.buf == nil {
		return in.few[:]
	}
	return in.buf[:]
}

// fill waits until something comes. It starts a pending write first, and reads nothing
// from clients that do not read.
func (in *input) fill() error {
	c := in.conn
	for {
		in.prepare()
		n, err := c.nc.Read(in.room())
		if n == 0 && err != nil && in.rest(err) {
			continue
		}
		c.read = time.Now()
		in.from, in.to = 0, n
		if n == 0 {
			c.broken = err
			return err
		}
		if c.block > 0 {
			if c.block -= n; c.block <= 0 {
				return fault(http2.ErrCodeEnhanceYourCalm, ReasonHeader, "a header block does not end")
			}
		}
		return nil
	}
}

// prepare gets a buffer unless the connection is calm.
func (in *input) prepare() {
	c := in.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kick()
	for len(c.out) > maxUnsent && !c.closed && c.phase != closing {
		c.changed.Wait()
	}
	if in.to > 0 && in.buf == nil {
		c.calm = false // what came in few
	}
	if in.buf == nil && !c.calm {
		in.buf = inputs.Get().(*[inputSize]byte)
	}
}

// rest gives the buffer back if reading was interrupted for that, and reports whether to
// go on.
func (in *input) rest(err error) bool {
	c := in.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.calm || c.closed || c.phase == closing || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	in.drop()
	return c.nc.SetReadDeadline(time.Time{}) == nil
}

// drop gives the buffer back. Nothing in it is unread.
func (in *input) drop() {
	if in.buf != nil {
		inputs.Put(in.buf)
		in.buf, in.from, in.to = nil, 0, 0
	}
}
