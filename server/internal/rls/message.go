package rls

import (
	"errors"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // registers its codec, too
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/server/internal/rules"
)

// ServerOption returns the option that a gRPC server needs for [Service.Register]: a
// codec that counts and admits requests before it decodes them.
func ServerOption() grpc.ServerOption { return grpc.ForceServerCodecV2(Codec()) }

// Codec returns the codec of [ServerOption]. It handles all other messages like gRPC's
// own.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// buffers fit messages closely: gRPC's own pool has nothing between 32 KiB and 1 MiB.
var buffers = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 32<<10, 64<<10, 128<<10, MaxRequestBytes)

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	m, ok := into.(*message)
	if !ok {
		return c.CodecV2.Unmarshal(data, into)
	}
	raw := data.MaterializeToBuffer(buffers)
	defer raw.Free()
	return m.unmarshal(raw.ReadOnlyData())
}

// A message decodes one request from the wire. Its memory is reused by later ones.
type message struct {
	request Request
	bounds  rules.Bounds
	call    Charger // nil: not charged
	size    int     // bytes
	// refused says why a well-formed message was not decoded.
	refused error

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
	m.reset()
	messages.Put(m)
}

// reset clears the message and keeps the memory.
func (m *message) reset() {
	clear(m.request.Descriptors)
	clear(m.entries)
	*m = message{request: Request{Descriptors: m.request.Descriptors[:0]}, entries: m.entries[:0], own: m.own[:0]}
}

// A Charger is charged for the memory that decoding a message takes. The error is
// [admission.ErrFull].
type Charger interface{ Take(bytes int64) error }

var errMalformed = errors.New("rls: malformed RateLimitRequest")

// Approximate memory of decoded parts, in addition to the text.
const (
	descriptorBytes = 512
	entryBytes      = 64
)

// unmarshal counts the parts of a message, and decodes it if it is within the bounds and
// the call is admitted. The error says that the message is malformed.
func (m *message) unmarshal(raw []byte) error {
	raw, m.size = raw[:len(raw):len(raw)], len(raw)
	descriptors, entries, err := m.count(raw)
	if err != nil || m.refused != nil {
		return err
	}
	cost := 2*len(raw) + descriptors*descriptorBytes + entries*entryBytes
	if m.call != nil {
		if m.refused = m.call.Take(int64(cost)); m.refused != nil {
			return nil
		}
	}
	m.text = string(raw)
	m.request.Descriptors = grown(m.request.Descriptors, descriptors)
	m.own = grown(m.own, descriptors)
	m.entries = grown(m.entries, entries)
	return m.decode(raw)
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
	ok := each(raw, func(f field) bool {
		if !f.is(2, protowire.BytesType) {
			return true
		}
		descriptors++
		if descriptors > m.bounds.MostDescriptors() || m.refused != nil {
			return true
		}
		own := 0
		ok := each(f.bytes, func(f field) bool {
			if f.is(1, protowire.BytesType) {
				own++
			}
			return true
		})
		if own > rules.MaxEntries {
			m.refused = rules.TooManyEntries(descriptors-1, own)
		}
		entries += own
		return ok
	})
	if !ok {
		return 0, 0, errMalformed
	}
	if err := m.bounds.CheckDescriptors(descriptors); err != nil {
		m.refused = err
	}
	return descriptors, entries, nil
}

// decode decodes a message whose bytes are those of its text.
func (m *message) decode(raw []byte) error {
	ok := each(raw, func(f field) bool {
		ok := true
		switch {
		case f.is(1, protowire.BytesType):
			m.request.Domain, ok = m.string(f.bytes)
		case f.is(2, protowire.BytesType):
			ok = m.descriptor(f.bytes)
		case f.is(3, protowire.VarintType):
			m.request.HitsAddend = uint32(f.number)
		}
		return ok
	})
	if !ok {
		return errMalformed
	}
	return nil
}

// descriptor decodes a descriptor.
func (m *message) descriptor(raw []byte) bool {
	m.own = append(m.own, own{limit: Override{Multiplier: 1}})
	m.request.Descriptors = append(m.request.Descriptors, Descriptor{})
	d, o, first := &m.request.Descriptors[len(m.own)-1], &m.own[len(m.own)-1], len(m.entries)
	ok := each(raw, func(f field) bool {
		switch {
		case f.is(1, protowire.BytesType):
			return m.entry(f.bytes)
		case f.is(2, protowire.BytesType):
			d.Limit = &o.limit
			return o.override(f.bytes)
		case f.is(3, protowire.BytesType):
			d.HitsAddend = &o.addend
			return wrapped(f.bytes, &o.addend)
		case f.is(4, protowire.VarintType):
			d.Refund = f.number != 0
		}
		return true
	})
	d.Entries = m.entries[first:len(m.entries):len(m.entries)]
	return ok
}

// entry decodes an entry.
func (m *message) entry(raw []byte) bool {
	m.entries = append(m.entries, rules.Entry{})
	e := &m.entries[len(m.entries)-1]
	return each(raw, func(f field) bool {
		ok := true
		switch {
		case f.is(1, protowire.BytesType):
			e.Key, ok = m.string(f.bytes)
		case f.is(2, protowire.BytesType):
			e.Value, ok = m.string(f.bytes)
		}
		return ok
	})
}

// string returns the part of the text that corresponds to a part of the message.
func (m *message) string(part []byte) (string, bool) {
	if !utf8.Valid(part) {
		return "", false
	}
	// The capacity of each part reaches to the end of the message.
	from := len(m.text) - cap(part)
	return m.text[from : from+len(part)], true
}

// override decodes a limit, or more of it: repeated fields replace earlier ones.
func (o *own) override(raw []byte) bool {
	return each(raw, func(f field) bool {
		ok := true
		switch {
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
		return ok
	})
}

// wrapped decodes a number that has a message of its own.
func wrapped(raw []byte, into *uint64) bool {
	return each(raw, func(f field) bool {
		if f.is(1, protowire.VarintType) {
			*into = f.number
		}
		return true
	})
}

// A field is a field of a message.
type field struct {
	protowire.Number
	protowire.Type
	number uint64 // of a VarintType
	bytes  []byte // of a BytesType
}

func (f *field) is(n protowire.Number, t protowire.Type) bool { return f.Number == n && f.Type == t }

// each passes the fields of a message to do, until that returns false. It reports whether
// the message is well-formed and do accepted all of its fields.
func each(raw []byte, do func(field) bool) bool {
	for len(raw) > 0 {
		f, ok := consume(&raw)
		if !ok || !do(f) {
			return false
		}
	}
	return true
}

// consume decodes the first field of a message and removes it.
func consume(raw *[]byte) (f field, ok bool) {
	number, kind, n := protowire.ConsumeTag(*raw)
	if n < 0 || number > protowire.MaxValidNumber {
		return field{}, false
	}
	f = field{Number: number, Type: kind}
	rest := (*raw)[n:]
	switch kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if n < 0 {
		return field{}, false
	}
	*raw = rest[n:]
	return f, true
}
