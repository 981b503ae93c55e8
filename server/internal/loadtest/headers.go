package loadtest

import (
	"golang.org/x/net/http2/hpack"
)

// A headerWriter encodes header blocks of the same few fields in the same order, of which
// the last may differ from block to block. Like the encoders of nghttp2 and of Go, it puts
// each field into the dynamic table and refers to it there; unlike them, it does not search
// the table, which takes a third of the CPU time of a call.
type headerWriter struct {
	fields []headerField
	// sizes has the sizes of the table's entries, oldest first, and size their sum. The
	// newest entry has the number inserted.
	sizes          []int
	size, capacity int
	inserted       int
	// update is true if the next block has to tell the decoder the table's capacity.
	update bool
	buf    []byte
}

// A headerField is encoded as an entry of the dynamic table.
type headerField struct {
	name string
	// size is that of an entry, by RFC 7541, section 4.1.
	size int
	// literal has the field, and the instruction to insert it unless never is true.
	literal []byte
	// at is the number of the field's entry, or 0.
	at int
	// never keeps the field out of the table.
	never bool
}

const (
	tableCapacity = 4096 // of the dynamic table, unless SETTINGS say less
	staticEntries = 61
	entryOverhead = 32
)

func newHeaderWriter() *headerWriter { return &headerWriter{capacity: tableCapacity} }

// add appends a field to all blocks, or with never one that no table may remember. Names
// must be in lower case.
func (w *headerWriter) add(name, value string, never bool) {
	f := headerField{name: name, never: never, size: len(name) + len(value) + entryOverhead}
	switch whole := name + ": " + value; {
	case whole == ":method: POST":
		f.never, f.literal = true, []byte{0x83} // entries of the static table
	case whole == ":scheme: http":
		f.never, f.literal = true, []byte{0x86}
	case whole == ":scheme: https":
		f.never, f.literal = true, []byte{0x87}
	case never:
		f.literal = appendText(appendText([]byte{0x10}, name), value)
	default:
		f.literal = appendText(appendText([]byte{0x40}, name), value)
	}
	w.fields = append(w.fields, f)
}

// limit bounds the table to what the server's SETTINGS allow.
func (w *headerWriter) limit(most uint32) {
	w.update = w.update || int(min(most, tableCapacity)) != w.capacity
	w.capacity = int(min(most, tableCapacity))
	w.evict(0)
}

// block returns the fields, the last one with the given value unless it is empty. The
// result is valid until the next call.
func (w *headerWriter) block(last string) []byte {
	w.buf = w.buf[:0]
	if w.update {
		w.buf, w.update = appendNumber(w.buf, 0x20, 5, w.capacity), false
	}
	for i := range w.fields {
		f := &w.fields[i]
		indexed := f.at > w.inserted-len(w.sizes)
		index := staticEntries + 1 + w.inserted - f.at
		switch varies := last != "" && i == len(w.fields)-1; {
		case f.never:
			w.buf = append(w.buf, f.literal...)
		case varies && indexed: // its name is that of the entry before
			w.buf = appendText(appendNumber(w.buf, 0x40, 6, index), last)
			w.insert(f, len(f.name)+len(last)+entryOverhead)
		case varies:
			w.buf = appendText(appendText(append(w.buf, 0x40), f.name), last)
			w.insert(f, len(f.name)+len(last)+entryOverhead)
		case indexed:
			w.buf = appendNumber(w.buf, 0x80, 7, index)
		default:
			w.buf = append(w.buf, f.literal...)
			w.insert(f, f.size)
		}
	}
	return w.buf
}

// insert does what the decoder does with an entry.
func (w *headerWriter) insert(f *headerField, size int) {
	w.evict(size)
	if size <= w.capacity {
		w.inserted++
		w.sizes = append(w.sizes, size)
		w.size += size
		f.at = w.inserted
	}
}

// evict makes room for an entry.
func (w *headerWriter) evict(size int) {
	gone := 0
	for ; gone < len(w.sizes) && w.size+size > w.capacity; gone++ {
		w.size -= w.sizes[gone]
	}
	w.sizes = append(w.sizes[:0], w.sizes[gone:]...)
}

// appendNumber appends an integer with a prefix of some bits, by RFC 7541, section 5.1.
func appendNumber(b []byte, first byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// appendText appends a string literal, by Huffman's code if that is shorter.
func appendText(b []byte, text string) []byte {
	if n := int(hpack.HuffmanEncodeLength(text)); n < len(text) {
		return hpack.AppendHuffmanString(appendNumber(b, 0x80, 7, n), text)
	}
	return append(appendNumber(b, 0, 7, len(text)), text...)
}
