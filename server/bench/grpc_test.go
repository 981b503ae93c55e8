package bench

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
)

// Types and flags of HTTP/2 frames.
const (
	dataFrame, headersFrame, settingsFrame, pingFrame, windowFrame = 0, 1, 4, 6, 8
	endStream, ack, endHeaders                                     = 1, 1, 4
)

// calls makes b.N calls over connections, so many at a time on each. message returns the message of
// a call, behind the five bytes of gRPC.
func calls(b *testing.B, pid int, address string, connections, together int, message func(i int) []byte) {
	over(b, pid, address, connections, func(conn net.Conn, n int) error {
		return callAll(conn, n, together, message)
	})
}

// callAll makes n calls on a connection.
func callAll(conn net.Conn, n, together int, message func(i int) []byte) error {
	in, out, begun := bufio.NewReader(conn), bufio.NewWriter(conn), 0
	call := func() {
		id := uint32(2*begun + 1)
		writeFrame(out, headersFrame, endHeaders, id, callHeader)
		writeFrame(out, dataFrame, endStream, id, message(begun))
		begun++
	}
	_, _ = out.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	writeFrame(out, settingsFrame, 0, 0, nil)
	writeFrame(out, windowFrame, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<30))
	for begun < min(n, together) {
		call()
	}
	var head [9]byte
	for ended := 0; ended < n; {
		if in.Buffered() == 0 { // an error shows when the answer is read
			_ = out.Flush()
		}
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if kind, flags := head[3], head[4]; kind == pingFrame && flags&ack == 0 {
			data := make([]byte, size)
			if _, err := io.ReadFull(in, data); err != nil {
				return err
			}
			writeFrame(out, pingFrame, ack, 0, data)
			continue
		}
		if _, err := in.Discard(size); err != nil {
			return err
		}
		switch kind, flags := head[3], head[4]; {
		case kind == settingsFrame && flags&ack == 0:
			writeFrame(out, settingsFrame, ack, 0, nil)
		case kind == headersFrame && flags&endStream != 0:
			if ended++; begun < n {
				call()
			}
		case kind != headersFrame && kind != dataFrame && kind != settingsFrame && kind != windowFrame:
			return fmt.Errorf("a frame of type %d came", kind)
		}
	}
	return nil
}

func writeFrame(to *bufio.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := [9]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	binary.BigEndian.PutUint32(head[5:], stream)
	_, _ = to.Write(head[:])
	_, _ = to.Write(payload)
}

// callHeader is the header of a call, in HPACK's literals and the table that every client has.
var callHeader = func() []byte {
	literal := func(to []byte, text string) []byte { return append(append(to, byte(len(text))), text...) }
	b := literal([]byte{0x83, 0x86, 0x04}, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
	b = literal(append(b, 0x01), "localhost")
	b = literal(append(b, 0x0f, 0x10), "application/grpc")
	return literal(literal(append(b, 0x00), "te"), "trailers")
}()
