//go:build unix

package held

import (
	"cmp"
	"io"
	"net"
	"syscall"
)

// A Conn reads a connection with held reads. One goroutine may use it.
type Conn struct {
	raw syscall.RawConn
	fd  int // during Read; else -1
}

// Of returns the connection as the system has it; nil if it is another one, such as TLS.
func Of(conn net.Conn) *Conn {
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return &Conn{raw: raw, fd: -1}
		}
	}
	return nil
}

// Read reads into what room returns, which has room, and passes the number of bytes to received,
// again and again. It returns nil when received reports false, or the error of the connection,
// such as its deadline.
func (c *Conn) Read(room func() []byte, received func(n int) bool) error {
	var err error
	polled := c.raw.Read(func(fd uintptr) (done bool) {
		done, err = c.turn(int(fd), room, received)
		return done
	})
	return cmp.Or(err, polled)
}

// turn reads what has come. It reports whether the held read is done.
func (c *Conn) turn(fd int, room func() []byte, received func(n int) bool) (done bool, err error) {
	c.fd = fd
	defer func() { c.fd = -1 }()
	for {
		p := room()
		switch n, err := read(fd, p); {
		case err == syscall.EAGAIN:
			return false, nil
		case err == syscall.EINTR:
		case err != nil:
			return true, err
		case n == 0:
			return true, io.EOF
		case !received(n):
			return true, nil
		case n < len(p):
			return false, nil
		}
	}
}

// WriteSome writes, during Read, what the system takes at once, and nothing at other times.
func (c *Conn) WriteSome(p []byte) (int, error) {
	if c.fd < 0 {
		return 0, nil
	}
	n, err := write(c.fd, p)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		err = nil
	}
	return max(n, 0), err
}
