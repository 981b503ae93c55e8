package frames

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// A field is a header field. Its name and value are checked when they are decoded, so that a
// field that a client sends by its index again and again costs next to nothing.
type field struct {
	name, value string
	kind        kind
	invalid     bool   // no header may have it
	missing     uint32 // bytes of the value that were left out, because it is too long
}

// size is what a field counts for in RFC 7541 and RFC 9113.
func (f *field) size() int { return len(f.name) + len(f.value) + int(f.missing) + 32 }

// kind is how the server reads a field.
type kind uint8

const (
	plainField kind = iota
	methodField
	schemeField
	pathField
	authorityField
	otherPseudoField
	contentTypeField
	encodingField
	timeoutField
	teField
	lengthField
	connectionField // of a connection of HTTP/1
)

func kindOf(name string) kind {
	switch name {
	case ":method":
		return methodField
	case ":scheme":
		return schemeField
	case ":path":
		return pathField
	case ":authority":
		return authorityField
	case "content-type":
		return contentTypeField
	case "grpc-encoding":
		return encodingField
	case "grpc-timeout":
		return timeoutField
	case "te":
		return teField
	case "content-length":
		return lengthField
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return connectionField
	}
	if strings.HasPrefix(name, ":") {
		return otherPseudoField
	}
	return plainField
}

func (k kind) isPseudo() bool { return k >= methodField && k <= otherPseudoField }

// newField checks a field. Its name was checked already if the kind of another field that
// has it is known.
func newField(name, value string, named *field) field {
	f := field{name: name, value: value}
	if named != nil {
		f.kind, f.invalid = named.kind, named.invalid && !validName(named.kind, name)
	} else {
		f.kind = kindOf(name)
		f.invalid = !validName(f.kind, name)
	}
	f.invalid = f.invalid || !httpguts.ValidHeaderFieldValue(value) || isPadded(value)
	return f
}

// isPadded reports whether a value begins or ends with white space, which RFC 9113 forbids.
func isPadded(value string) bool {
	n := len(value)
	return n > 0 && (value[0] == ' ' || value[0] == '\t' || value[n-1] == ' ' || value[n-1] == '\t')
}

// validName reports whether a name is one of HTTP/2: a token in lower case.
func validName(k kind, name string) bool {
	return k.isPseudo() || httpguts.ValidHeaderFieldName(name) && strings.ToLower(name) == name
}

// static are the fields of RFC 7541's table: those of package hpack.
var static = func() (all [61]field) {
	for i := range all {
		known, err := hpack.NewDecoder(0, nil).DecodeFull([]byte{0x80 | byte(i+1)})
		if err != nil {
			panic(err)
		}
		all[i] = newField(known[0].Name, known[0].Value, nil)
	}
	return all
}()

// tableSize is the size of the dynamic table that clients may use, HTTP/2's default.
const tableSize = 4096

// A decoder decodes the blocks of a connection's headers, as package hpack does.
type decoder struct {
	// ring has the entries of the dynamic table, of which first is the oldest. Its length
	// is a power of two.
	ring         []field
	first, count int
	size, most   int  // of the entries as RFC 7541 counts them, and what they may have
	started      bool // the block has a field
	skip         int  // bytes of a value to come that are left out
	last         field
	path, length literalField // that came last
}

// A literalField is a field with a valid name, and the value that it was decoded from. Clients send
// paths and lengths as literals, because these may be long or differ, but mostly they repeat.
type literalField struct {
	field          // without a name at first
	text    []byte // in its code
	huffman bool
}

// keptText bounds the text of a literal that is kept, in bytes.
const keptText = 256

// decode returns the field that a text stands for, which it decodes only if the last one was
// another.
func (l *literalField) decode(named *field, text []byte, huffman bool) (field, error) {
	if l.name == named.name && l.huffman == huffman && bytes.Equal(l.text, text) {
		return l.field, nil
	}
	f, err := literal(named, nil, text, [2]bool{false, huffman})
	if err == nil && len(text) <= keptText {
		l.field, l.text, l.huffman = f, append(l.text[:0], text...), huffman
	}
	return f, err
}

// literal returns the field of a literal representation.
func (d *decoder) literal(named *field, name, value []byte, huffman [2]bool) (field, error) {
	switch {
	case named == nil || d.skip > 0:
	case named.kind == pathField:
		return d.path.decode(named, value, huffman[1])
	case named.kind == lengthField:
		return d.length.decode(named, value, huffman[1])
	}
	return literal(named, name, value, huffman)
}

// errIncomplete says that a representation goes on in the next fragment.
var errIncomplete = errors.New("frames: an incomplete header field")

var errCompression = errors.New("frames: a header block that cannot be decoded")

// next decodes a representation, of which b is not empty, and returns what follows it. The
// field, nil if the representation has none, is valid until the next call. No name may be
// longer than longest, which is no less than tableSize; longer values are left out. The error
// is errIncomplete if b ends too early.
func (d *decoder) next(b []byte, longest int) (f *field, rest []byte, err error) {
	if d.skip > 0 {
		n := min(d.skip, len(b))
		d.skip -= n
		return nil, b[n:], nil
	}
	first, index := b[0], uint64(0)
	switch {
	case first&0x80 != 0:
		if index, rest, err = number(b, 7); err != nil {
			return nil, nil, err
		}
		if f = d.at(index); f == nil {
			return nil, nil, errCompression
		}
		d.started = true
		return f, rest, nil
	case first&0xe0 == 0x20:
		rest, err = d.resize(b)
		return nil, rest, err
	case first&0xc0 == 0x40:
		index, rest, err = number(b, 6)
	default:
		index, rest, err = number(b, 4)
	}
	if err != nil {
		return nil, nil, err
	}
	var named *field
	var name, value []byte
	var huffman [2]bool
	if index > 0 {
		if named = d.at(index); named == nil {
			return nil, nil, errCompression
		}
	} else if name, huffman[0], rest, err = text(rest, longest); err != nil {
		return nil, nil, err
	}
	if value, huffman[1], rest, err = d.value(rest, longest); err != nil {
		return nil, nil, err
	}
	if d.last, err = d.literal(named, name, value, huffman); err != nil {
		return nil, nil, errCompression
	}
	d.last.missing = uint32(d.skip)
	d.started = true
	if first&0xc0 == 0x40 {
		d.add(&d.last)
	}
	return &d.last, rest, nil
}

// literal decodes a field.
func literal(named *field, name, value []byte, huffman [2]bool) (field, error) {
	var names string
	var err error
	if named != nil {
		names = named.name
	} else if names, err = decoded(name, huffman[0]); err != nil {
		return field{}, err
	}
	values, err := decoded(value, huffman[1])
	if err != nil {
		return field{}, err
	}
	return newField(names, values, named), nil
}

func decoded(b []byte, huffman bool) (string, error) {
	if huffman {
		return unhuffman(b)
	}
	return string(b), nil
}

// at returns the entry of an index; nil if there is none. It is valid until the next add.
func (d *decoder) at(index uint64) *field {
	switch {
	case index == 0:
		return nil
	case index <= uint64(len(static)):
		return &static[index-1]
	}
	if index -= uint64(len(static)); index > uint64(d.count) {
		return nil
	}
	return &d.ring[(d.first+d.count-int(index))&(len(d.ring)-1)]
}

// add adds an entry, for which the oldest ones go.
func (d *decoder) add(f *field) {
	size := f.size()
	d.evict(d.most - size)
	if size > d.most {
		return
	}
	if d.count == len(d.ring) {
		grown := make([]field, max(4, 2*len(d.ring)))
		n := copy(grown, d.ring[d.first:])
		copy(grown[n:], d.ring[:d.first])
		d.ring, d.first = grown, 0
	}
	d.ring[(d.first+d.count)&(len(d.ring)-1)] = *f
	d.count++
	d.size += size
}

// evict drops the oldest entries until the others have a size.
func (d *decoder) evict(size int) {
	for d.count > 0 && d.size > size {
		oldest := &d.ring[d.first]
		d.size -= oldest.size()
		*oldest = field{}
		d.first = (d.first + 1) & (len(d.ring) - 1)
		d.count--
	}
}

// resize changes the size of the dynamic table, which a block may begin with.
func (d *decoder) resize(b []byte) (rest []byte, err error) {
	size, rest, err := number(b, 5)
	switch {
	case err != nil:
		return nil, err
	case d.started && d.size > 0 || size > tableSize:
		return nil, errCompression
	}
	d.most = int(size)
	d.evict(d.most)
	return rest, nil
}

// number decodes an integer whose first byte has some of its bits.
func number(b []byte, bits uint) (n uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errIncomplete
	}
	most := uint64(1)<<bits - 1
	if n = uint64(b[0]) & most; n < most {
		return n, b[1:], nil
	}
	const longest = 9 // bytes
	for i, next := range b[1:] {
		n += uint64(next&0x7f) << (7 * i)
		if next < 0x80 {
			return n, b[2+i:], nil
		}
		if i == longest-1 {
			return 0, nil, errCompression
		}
	}
	return 0, nil, errIncomplete
}

// value decodes a value, or begins to leave it out if it is longer than longest.
func (d *decoder) value(b []byte, longest int) (s []byte, huffman bool, rest []byte, err error) {
	n, huffman, rest, err := length(b)
	switch {
	case err != nil:
		return nil, false, nil, err
	case n > longest:
		d.skip, n = n, 0
	case n > len(rest):
		return nil, false, nil, errIncomplete
	}
	return rest[:n], huffman, rest[n:], nil
}

// text decodes the frame of a string.
func text(b []byte, longest int) (s []byte, huffman bool, rest []byte, err error) {
	n, huffman, rest, err := length(b)
	switch {
	case err != nil:
		return nil, false, nil, err
	case n > longest:
		return nil, false, nil, errCompression
	case n > len(rest):
		return nil, false, nil, errIncomplete
	}
	return rest[:n], huffman, rest[n:], nil
}

// maxLength bounds the length of a string. No block has room for more.
const maxLength = 1 << 24

// length decodes the length of a string, and whether it is in Huffman's code.
func length(b []byte) (n int, huffman bool, rest []byte, err error) {
	if len(b) == 0 {
		return 0, false, nil, errIncomplete
	}
	size, rest, err := number(b, 7)
	if err == nil && size > maxLength {
		err = errCompression
	}
	return int(size), b[0]&0x80 != 0, rest, err
}
