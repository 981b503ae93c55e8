//go:build unix

package resp

import (
	"cmp"
	"io"
	"net"
	"syscall"
)

// rawOf returns the connection as the system has it; nil if it is another one, such as TLS.
func rawOf(conn net.Conn) syscall.RawConn {
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// hold is read that stays in one read of the connection: Go's poller tells of input, so a
// command is read with one system call. An ordinary read begins with one that finds nothing.
//
// The poller tells only once of an end that arrived together with the last command, and a read
// that got less than there was room for looks like the last one. Reading is tried again after
// probe.
func (c *session) hold() error {
	var err error
	polled := c.raw.Read(func(fd uintptr) (done bool) {
		done, err = c.turn(int(fd))
		return done
	})
	return cmp.Or(err, polled)
}

// turn reads and answers what has come. It reports whether the held read is done.
func (c *session) turn(fd int) (done bool, err error) {
	c.fd = fd
	defer func() { c.fd = -1 }()
	for {
		c.makeRoom()
		room := c.in[len(c.in):cap(c.in)]
		switch n, err := syscall.Read(fd, room); {
		case err == syscall.EAGAIN:
			return false, nil
		case err == syscall.EINTR:
		case err != nil:
			return true, err
		case n == 0:
			return true, io.EOF
		case !c.received(n):
			return true, nil
		case n < len(room):
			return false, nil
		}
	}
}

// writeSome writes what the system takes without waiting.
func writeSome(fd int, p []byte) (int, error) {
	n, err := syscall.Write(fd, p)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		err = nil
	}
	return max(n, 0), err
}
