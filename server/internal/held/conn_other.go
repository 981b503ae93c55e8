//go:build !unix

package held

import (
	"errors"
	"net"
)

// A Conn reads a connection with held reads, on systems that have them.
type Conn struct{}

// Of returns nil: reads are not held.
func Of(net.Conn) *Conn { return nil }

// Read returns an error.
func (*Conn) Read(func() []byte, func(int) bool) error { return errors.ErrUnsupported }

// WriteSome writes nothing.
func (*Conn) WriteSome([]byte) (int, error) { return 0, nil }
