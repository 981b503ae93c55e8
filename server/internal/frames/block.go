package frames

import (
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/net/http2"
)

// A block is a header block that is being decoded, and its content. Its memory is reused
// for the next one.
type block struct {
	id        uint32 // of the stream, until the block ends; 0: there is none
	ends      bool   // END_STREAM
	dependent bool   // the stream depends on itself
	room      int    // bytes that CONTINUATION frames may still take
	rest      []byte // of a field that is not complete

	request
	left      int  // of the list's size
	regular   bool // a field was no pseudo-header
	pseudo    bool // a field was a pseudo-header
	invalid   bool
	truncated bool // the list is larger than it may be
}

// A request is the decoded header of a call.
type request struct {
	method, scheme, path, authority string
	contentType, encoding, timeout  string
	seen                            [otherPseudoField]bool // pseudo-headers
	length                          int64                  // -1: unknown
	fields                          []field                // without pseudo-headers
}

// beginBlock decodes the block of a HEADERS frame.
func (c *conn) beginBlock(h head, payload []byte) error {
	if h.id == 0 {
		return fault(http2.ErrCodeProtocol, ReasonProtocol, "HEADERS for no stream")
	}
	payload, err := unpadded(h, payload)
	if err != nil {
		return err
	}
	b := &c.block
	*b = block{
		id: h.id, ends: h.flags.Has(http2.FlagHeadersEndStream), room: 2*c.server.options.MaxHeaderList + 4*maxFrame,
		rest: b.rest[:0], left: c.server.options.MaxHeaderList, request: request{length: -1, fields: b.fields[:0]},
	}
	if h.flags.Has(http2.FlagHeadersPriority) {
		const priority = 5
		if len(payload) < priority {
			return fault(http2.ErrCodeFrameSize, ReasonProtocol, "a HEADERS frame has a wrong length")
		}
		b.dependent = binary.BigEndian.Uint32(payload)&^(1<<31) == h.id
		payload = payload[priority:]
	}
	return c.decode(h, payload)
}

// continueBlock decodes the block of a CONTINUATION frame. A list that is too large goes on
// for a while: its request is refused, and the others of the connection are not.
func (c *conn) continueBlock(h head, payload []byte) error {
	b := &c.block
	if b.room -= headLength + len(payload); b.room <= 0 {
		return fault(http2.ErrCodeEnhanceYourCalm, ReasonHeader, "a header block does not end")
	}
	return c.decode(h, payload)
}

// decode decodes a fragment.
func (c *conn) decode(h head, fragment []byte) error {
	b, longest := &c.block, max(c.server.options.MaxHeaderList, tableSize)
	if len(b.rest) > 0 {
		fragment = append(b.rest, fragment...)
	}
	for len(fragment) > 0 {
		f, rest, err := c.headers.next(fragment, longest)
		if errors.Is(err, errIncomplete) {
			break
		}
		if err != nil {
			return errBlock
		}
		if fragment = rest; f != nil {
			b.add(f)
		}
	}
	if h.flags.Has(http2.FlagHeadersEndHeaders) {
		b.id = 0
		c.headers.started = false
		if len(fragment) > 0 || c.headers.skip > 0 {
			return errBlock
		}
	}
	b.rest = append(b.rest[:0], fragment...)
	return nil
}

var errBlock = fault(http2.ErrCodeCompression, ReasonProtocol, "a header block that cannot be decoded")

// bytes estimates the memory of the fields. A header list counts 32 bytes for each, and
// 40 are used.
func (b *block) bytes(longest int) int64 { return int64(longest - max(0, b.left) + 8*len(b.fields)) }

// add adds a field.
func (b *block) add(f *field) {
	pseudo := f.kind.isPseudo()
	b.regular, b.pseudo = b.regular || !pseudo, b.pseudo || pseudo
	if f.invalid || pseudo && b.regular {
		b.invalid = true
	}
	if b.left -= f.size(); b.left < 0 {
		b.truncated = true
	}
	if b.invalid || b.truncated {
		return
	}
	if pseudo {
		b.invalid = !b.addPseudo(f)
		return
	}
	b.invalid = !b.addRegular(f)
	b.fields = append(b.fields, *f)
}

// addPseudo adds a pseudo-header, and reports whether it is valid.
func (r *request) addPseudo(f *field) bool {
	var to *string
	switch f.kind {
	case methodField:
		to = &r.method
	case schemeField:
		to = &r.scheme
	case pathField:
		to = &r.path
	case authorityField:
		to = &r.authority
	default:
		return false
	}
	if r.seen[f.kind] {
		return false
	}
	*to, r.seen[f.kind] = f.value, true
	return true
}

// addRegular adds a field that is no pseudo-header, and reports whether it is valid.
func (r *request) addRegular(f *field) bool {
	switch f.kind {
	case contentTypeField:
		r.contentType = f.value
	case encodingField:
		r.encoding = f.value
	case timeoutField:
		r.timeout = f.value
	case teField:
		return f.value == "trailers"
	case connectionField:
		return false
	case lengthField:
		n, err := strconv.ParseUint(f.value, 10, 62)
		if err != nil || r.length >= 0 && r.length != int64(n) {
			return false
		}
		r.length = int64(n)
	}
	return true
}
