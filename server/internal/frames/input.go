package frames

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Connections are read through small buffers, and through large ones, which any frame fits
// into, once a read has filled a small one.
const (
	smallInput = 2 << 10
	largeInput = headLength + maxFrame
)

var largeInputs = sync.Pool{New: func() any { return new([largeInput]byte) }}

// An input reads a connection. While the connection is calm it has no buffer.
type input struct {
	conn *conn
	room []byte
	from int // of what was read
	to   int
	full bool // the last read has filled the room
	part bool // of a frame was returned, and the rest was not
}

// next returns the next n bytes, which are valid until the next call.
func (in *input) next(n int) ([]byte, error) {
	for in.to-in.from < n {
		if err := in.fill(n); err != nil {
			return nil, err
		}
	}
	b := in.room[in.from : in.from+n]
	in.from += n
	return b, nil
}

// whole reports whether a frame has come as a whole.
func (in *input) whole() bool {
	b := in.room[in.from:in.to]
	return len(b) >= headLength && len(b)-headLength >= int(b[0])<<16|int(b[1])<<8|int(b[2])
}

// frame returns the header of the next frame and its payload, valid until the next call.
func (in *input) frame() (head, []byte, error) {
	b, err := in.next(headLength)
	if err != nil {
		return head{}, nil, err
	}
	h := head{
		int(b[0])<<16 | int(b[1])<<8 | int(b[2]), http2.FrameType(b[3]), http2.Flags(b[4]),
		binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
	if h.length > maxFrame {
		return h, nil, fault(http2.ErrCodeFrameSize, ReasonProtocol, "a frame is too large")
	}
	in.part = true
	payload, err := in.next(h.length)
	in.part = false
	return h, payload, err
}

// errCalm says that reading was interrupted because the connection is calm. It goes on as
// if nothing had happened.
var errCalm = errors.New("frames: the connection is calm")

// fill waits until something comes, and gets room for so many bytes. It starts a pending write
// first, and reads nothing from clients that do not read.
func (in *input) fill(want int) error {
	c := in.conn
	for {
		in.prepare(want)
		n, err := c.nc.Read(in.room[in.to:])
		if n == 0 && err != nil {
			switch in.interrupted(err) {
			case errCalm:
				return errCalm
			case nil:
				continue
			}
		}
		c.read = time.Now()
		in.to += n
		in.full = in.to == len(in.room)
		if n == 0 {
			c.broken = err
			return err
		}
		return nil
	}
}

// prepare makes room.
func (in *input) prepare(want int) {
	c := in.conn
	c.mu.Lock()
	c.kick()
	for len(c.out) > maxUnsent && !c.closed && c.phase != closing {
		c.changed.Wait()
	}
	c.mu.Unlock()
	old, size := in.room, smallInput
	if want > smallInput || in.full {
		size = largeInput
	}
	switch {
	case len(old) >= size:
	case size == largeInput:
		in.room = largeInputs.Get().(*[largeInput]byte)[:]
	default:
		in.room = make([]byte, smallInput)
	}
	in.to = copy(in.room, old[in.from:in.to])
	in.from = 0
}

// interrupted returns nil or errCalm if reading was interrupted to give the buffer back, and
// else the error. In the middle of a frame the buffer is kept.
func (in *input) interrupted(err error) error {
	c := in.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.calm || c.closed || c.phase == closing || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if failed := c.nc.SetReadDeadline(time.Time{}); failed != nil {
		return failed
	}
	if in.to > 0 || in.part {
		c.calm = false
		return nil
	}
	in.drop()
	return errCalm
}

// drop gives the memory back that a busy connection uses. Nothing in it is unread.
func (in *input) drop() {
	if len(in.room) == largeInput {
		largeInputs.Put((*[largeInput]byte)(in.room))
	}
	in.room, in.from, in.to, in.full = nil, 0, 0, false
	if in.conn.block.id == 0 {
		in.conn.block = block{}
	}
}

// A wire is a connection without its encryption. It can wait for bytes with less stack and
// memory than reading them takes.
type wire struct {
	net.Conn
	few [16]byte
	n   int // of few that are not read
}

// await waits until something comes, or reading fails.
func (w *wire) await() {
	if w.n == 0 {
		w.n, _ = w.Conn.Read(w.few[:])
	}
}

// Read reads the bytes that await has found, and then the connection.
func (w *wire) Read(p []byte) (int, error) {
	if w.n == 0 {
		return w.Conn.Read(p)
	}
	n := copy(p, w.few[:w.n])
	copy(w.few[:], w.few[n:w.n])
	w.n -= n
	return n, nil
}

// CloseWrite ends what the client reads, if the connection can do that alone.
func (w *wire) CloseWrite() error {
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
