package frames

import (
	"encoding/base64"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
	// okTrailer is "grpc-status: 0".
	okTrailer = "\x00\x0bgrpc-status\x010"
)

const prefixLength = 5 // of a message: a flag and four bytes of length

// A head is the header of a frame.
type head struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	id     uint32
}

// appendFrame appends the header of a frame.
func appendFrame(b []byte, h head) []byte {
	return append(b, byte(h.length>>16), byte(h.length>>8), byte(h.length), byte(h.kind), byte(h.flags),
		byte(h.id>>24), byte(h.id>>16), byte(h.id>>8), byte(h.id))
}

func appendUint32(b []byte, v uint32) []byte {
	return append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
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
	return appendFields(b, c.trailers)
}

func appendFields(b []byte, fields []hpack.HeaderField) []byte {
	for i := range fields {
		b = appendField(b, fields[i].Name, fields[i].Value)
	}
	return b
}

// escape encodes a text for the header grpc-message.
func escape(text string) string {
	const digits = "0123456789ABCDEF"
	plain := true
	for i := range len(text) {
		plain = plain && printable(text[i])
	}
	if plain {
		return text
	}
	b := make([]byte, 0, len(text)+16)
	for i := range len(text) {
		if ch := text[i]; printable(ch) {
			b = append(b, ch)
		} else {
			b = append(b, '%', digits[ch>>4], digits[ch&15])
		}
	}
	return string(b)
}

func printable(ch byte) bool { return ch >= ' ' && ch <= '~' && ch != '%' }
