package outage

import (
	"os"
	"sync/atomic"
)

// An echo is a byte that this process sends to itself through the poller and the run
// queue that its replies come through: as long as it has not come back, no reply
// could have been heard either.
type echo struct {
	in, out  *os.File
	received *atomic.Int64
	sent     int64
}

// open makes the pipe, and reports whether it could.
func (e *echo) open() bool {
	out, in, err := os.Pipe()
	if err != nil {
		return false
	}
	*e = echo{in: in, out: out, received: new(atomic.Int64)}
	// It ends when the pipe is closed.
	go listen(out, e.received)
	return true
}

func listen(out *os.File, received *atomic.Int64) {
	defer out.Close()
	buffer := make([]byte, 16)
	for {
		n, err := out.Read(buffer)
		if err != nil {
			return
		}
		received.Add(int64(n))
	}
}

// returned reports whether the last byte has come back, and sends the next one if so.
func (e *echo) returned() bool {
	if e.received.Load() < e.sent {
		return false
	}
	heard := e.sent > 0
	if n, err := e.in.Write([]byte{0}); err == nil {
		e.sent += int64(n)
	}
	return heard
}

func (e *echo) close() { _ = e.in.Close() }
