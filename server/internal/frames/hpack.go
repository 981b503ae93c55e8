package frames

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
)

// Answers are encoded without the dynamic table, so that no block depends on those
// before it: nearly every answer is a few constant bytes.
const (
	// noTable says, before the first block, that the table holds nothing.
	noTable = "\x20"
	// okHeader is ":status: 200" and "content-type: application/grpc".
	okHeader = "\x88" + grpcType
	grpcType = "\x0f\x10\x10application/grpc"
	// protoHeader is the same for clients that say "application/grpc+proto".
	protoHeader = "\x88" + "\x0f\x10\x16application/grpc+proto"
	// gzipHeader is "grpc-encoding: gzip".
	gzipHeader = "\x00\x0dgrpc-encoding\x04gzip"
	// okTrailer is "grpc-status: 0".
	okTrailer = "\x00\x0bgrpc-status\x010"
)

const (
	prefixLength = 5 // of a message: a flag and four bytes of length
	headLength   = 9 // of a frame
)

// A head is the header of a frame.
type head struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	id     uint32
}

// appendFrame appends the header of a frame.
func appendFrame(b []byte, h head) []byte {
	b = append(b, byte(h.length>>16), byte(h.length>>8), byte(h.length), byte(h.kind), byte(h.flags))
	return binary.BigEndian.AppendUint32(b, h.id)
}

// appendWindowUpdate appends a WINDOW_UPDATE of a stream, or of the connection for 0.
func appendWindowUpdate(b []byte, id uint32, n int64) []byte {
	b = appendFrame(b, head{4, http2.FrameWindowUpdate, 0, id})
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// appendField appends a header that no table holds.
func appendField(b []byte, name, value string) []byte {
	b = append(b, 0)
	b = appendString(b, name)
	return appendString(b, value)
}

// appendString appends a string as RFC 7541, 5.2 has it, without Huffman's code.
func appendString(b []byte, s string) []byte {
	const most = 127
	n := len(s)
	if n < most {
		return append(append(b, byte(n)), s...)
	}
	b = append(b, most)
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(append(b, byte(n)), s...)
}

// appendStatus appends gRPC's trailers.
func appendStatus(b []byte, c *Call) []byte {
	b = appendField(b, "grpc-status", strconv.Itoa(int(c.code%1000)))
	if c.code != 0 && c.reason != "" {
		b = appendField(b, "grpc-message", escape(c.reason))
	}
	if c.code != 0 && c.details != nil {
		b = appendField(b, "grpc-status-details-bin", base64.RawStdEncoding.EncodeToString(c.details))
	}
	for _, f := range c.trailers {
		b = appendField(b, f.Name, f.Value)
	}
	return b
}

// escape encodes a text for the header grpc-message.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if ch := text[i]; ch >= ' ' && ch <= '~' && ch != '%' {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}
