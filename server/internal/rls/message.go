package rls

import (
	"errors"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/server/internal/rules"
)

// A message decodes one request from the wire. Its memory is reused by later ones.
type message struct {
	request Request
	bounds  rules.Bounds
	call    Charger // nil: not charged
	// refused says why a well-formed message was not decoded.
	refused error
	// shared messages belong to the memo: many calls read them, and nobody frees them.
	shared bool

	text    string // of the whole message; all strings are parts of it
	entries []rules.Entry
	own     []own
}

// own is the memory of what a descriptor has of its own.
type own struct {
	limit      Override
	addend     uint64
	multiplied bool // limit has a Multiplier from the message
}

var messages = sync.Pool{New: func() any { return new(message) }}

// free lets later messages reuse the memory.
func (m *message) free() {
	if m.shared {
		return
	}
	m.reset()
	messages.Put(m)
}

// reset clears the message and keeps the memory.
func (m *message) reset() {
	clear(m.request.Descriptors)
	clear(m.entries)
	*m = message{request: Request{Descriptors: m.request.Descriptors[:0]}, entries: m.entries[:0], own: m.own[:0]}
}

// A Charger is charged for the memory of its request.
type Charger interface {
	// Take charges the memory that decoding takes. The error says that there is none.
	Take(bytes int64) error
	// Text is the message. Only that of a small message is a copy.
	Text() string
}

var errMalformed = errors.New("rls: malformed RateLimitRequest")

// Approximate memory of decoded parts, and the most bytes of a text that is a copy.
const (
	descriptorBytes = 512
	entryBytes      = 64
	copiedBytes     = 4 << 10
)

// unmarshal counts the parts of a message, and decodes it if it is within the bounds and
// the call is charged. The error is errMalformed, or that of the call.
func (m *message) unmarshal(raw []byte) error {
	raw = raw[:len(raw):len(raw)]
	descriptors, entries, err := m.count(raw)
	if err != nil || m.refused != nil {
		return err
	}
	if m.call == nil {
		m.text = string(raw)
	} else {
		if err := m.call.Take(decodedBytes(raw, descriptors, entries)); err != nil {
			return err
		}
		m.text = m.call.Text()
	}
	m.request.Descriptors = grown(m.request.Descriptors, descriptors)
	m.own = grown(m.own, descriptors)
	m.entries = grown(m.entries, entries)
	return m.decode(raw)
}

// decodedBytes is about how much memory decoding a message takes.
func decodedBytes(raw []byte, descriptors, entries int) int64 {
	return int64(min(len(raw), copiedBytes) + descriptors*descriptorBytes + entries*entryBytes)
}

// grown returns an empty slice with room for n elements.
func grown[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, 0, n)
	}
	return s[:0]
}

// count counts the descriptors and their entries. It sets refused if there are too many.
func (m *message) count(raw []byte) (descriptors, entries int, err error) {
	for f := (field{}); len(raw) > 0; {
		if !f.consume(&raw) {
			return 0, 0, errMalformed
		}
		if !f.is(2, protowire.BytesType) {
			continue
		}
		descriptors++
		if descriptors > m.bounds.MostDescriptors() || m.refused != nil {
			continue
		}
		own := 0
		for e, rest := (field{}), f.bytes; len(rest) > 0; {
			if !e.consume(&rest) {
				return 0, 0, errMalformed
			}
			if e.is(1, protowire.BytesType) {
				own++
			}
		}
		if own > rules.MaxEntries {
			m.refused = rules.TooManyEntries(descriptors-1, own)
		}
		entries += own
	}
	if err := m.bounds.CheckDescriptors(descriptors); err != nil {
		m.refused = err
	}
	return descriptors, entries, nil
}

// decode decodes a message whose bytes are those of its text.
func (m *message) decode(raw []byte) error {
	for f := (field{}); len(raw) > 0; {
		ok := f.consume(&raw)
		switch {
		case !ok:
		case f.is(1, protowire.BytesType):
			m.request.Domain, ok = m.string(f.bytes)
		case f.is(2, protowire.BytesType):
			ok = m.descriptor(f.bytes)
		case f.is(3, protowire.VarintType):
			m.request.HitsAddend = uint32(f.number)
		}
		if !ok {
			return errMalformed
		}
	}
	return nil
}

// descriptor decodes a descriptor, and reports whether it is well-formed.
func (m *message) descriptor(raw []byte) bool {
	m.own = append(m.own, own{limit: Override{Multiplier: 1}})
	m.request.Descriptors = append(m.request.Descriptors, Descriptor{})
	d, o, first := &m.request.Descriptors[len(m.own)-1], &m.own[len(m.own)-1], len(m.entries)
	for f := (field{}); len(raw) > 0; {
		ok := f.consume(&raw)
		switch {
		case !ok:
		case f.is(1, protowire.BytesType):
			ok = m.entry(f.bytes)
		case f.is(2, protowire.BytesType):
			d.Limit = &o.limit
			ok = o.override(f.bytes)
		case f.is(3, protowire.BytesType):
			d.HitsAddend = &o.addend
			ok = wrapped(f.bytes, &o.addend)
		case f.is(4, protowire.VarintType):
			d.Refund = f.number != 0
		}
		if !ok {
			return false
		}
	}
	d.Entries = m.entries[first:len(m.entries):len(m.entries)]
	return true
}

// entry decodes an entry, and reports whether it is well-formed.
func (m *message) entry(raw []byte) bool {
	m.entries = append(m.entries, rules.Entry{})
	e := &m.entries[len(m.entries)-1]
	for f := (field{}); len(raw) > 0; {
		ok := f.consume(&raw)
		switch {
		case !ok:
		case f.is(1, protowire.BytesType):
			e.Key, ok = m.string(f.bytes)
		case f.is(2, protowire.BytesType):
			// A client may choose the bytes, and Envoy passes what gets no decision.
			e.Value = m.part(f.bytes)
		}
		if !ok {
			return false
		}
	}
	return true
}

// string is part for a text, and reports whether it is one.
func (m *message) string(part []byte) (string, bool) {
	if !utf8.Valid(part) {
		return "", false
	}
	return m.part(part), true
}

// part returns the part of the text that corresponds to a part of the message.
func (m *message) part(part []byte) string {
	// The capacity of each part reaches to the end of the message.
	from := len(m.text) - cap(part)
	return m.text[from : from+len(part)]
}

// override decodes a limit, or more of it: repeated fields replace earlier ones. It reports
// whether the limit is well-formed.
func (o *own) override(raw []byte) bool {
	for f := (field{}); len(raw) > 0; {
		ok := f.consume(&raw)
		switch {
		case !ok:
		case f.is(1, protowire.VarintType):
			o.limit.Requests = uint32(f.number)
		case f.is(2, protowire.VarintType):
			o.limit.Unit = Unit(f.number)
		case f.is(3, protowire.BytesType):
			multiplier := uint64(0)
			if o.multiplied {
				multiplier = uint64(o.limit.Multiplier)
			}
			ok = wrapped(f.bytes, &multiplier)
			o.limit.Multiplier, o.multiplied = uint32(multiplier), true
		}
		if !ok {
			return false
		}
	}
	return true
}

// wrapped decodes a number that has a message of its own, and reports whether that is
// well-formed.
func wrapped(raw []byte, into *uint64) bool {
	for f := (field{}); len(raw) > 0; {
		if !f.consume(&raw) {
			return false
		}
		if f.is(1, protowire.VarintType) {
			*into = f.number
		}
	}
	return true
}

// A field is a field of a message.
type field struct {
	protowire.Number
	protowire.Type
	number uint64 // of a VarintType
	bytes  []byte // of a BytesType
}

func (f *field) is(n protowire.Number, t protowire.Type) bool { return f.Number == n && f.Type == t }

// consume decodes the first field of a message and removes it. It reports whether the field
// is well-formed.
func (f *field) consume(raw *[]byte) bool {
	// Nearly every field is short: its tag and its length have one byte each.
	const longTag, longLength = 16 << 3, 1 << 7
	if b := *raw; len(b) >= 2 && b[0] < longTag && b[0] >= 1<<3 && b[0]&7 == byte(protowire.BytesType) && b[1] < longLength && int(b[1]) <= len(b)-2 {
		f.Number, f.Type, f.bytes = protowire.Number(b[0]>>3), protowire.BytesType, b[2:2+b[1]]
		*raw = b[2+b[1]:]
		return true
	}
	number, kind, n := protowire.ConsumeTag(*raw)
	if n < 0 || number > protowire.MaxValidNumber {
		return false
	}
	rest := (*raw)[n:]
	f.Number, f.Type = number, kind
	switch kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if n < 0 {
		return false
	}
	*raw = rest[n:]
	return true
}
