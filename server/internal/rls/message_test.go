package rls

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// FuzzMessage holds the decoder against that of protobuf: both read the same request,
// or none, but for what has more descriptors or entries than there may be, and for values that
// are no text, which protobuf does not read.
func FuzzMessage(f *testing.F) {
	whole := &rlsv3.RateLimitRequest{
		Domain: "d", HitsAddend: 3,
		Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "a", Value: "é"}, {Key: "b"}}},
			{
				Limit: &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(2),
				},
				HitsAddend: wrapperspb.UInt64(1 << 60), IsNegativeHits: true,
			},
			{},
		},
	}
	raw, err := proto.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	// Twice: singular fields are merged, repeated ones go on.
	f.Add(append(raw, raw...))
	twice, err := proto.Marshal(whole.GetDescriptors()[1])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(protowire.AppendBytes([]byte{0x12}, append(twice, twice...)))
	f.Add([]byte("\x12\x04\x12\x02\x1a\x00"))                 // a multiplier without a value
	f.Add([]byte("\x12\x02\x1a\x00\x10\x01\x0b\x0c\x0d1234")) // a group, and others that are unknown
	f.Add([]byte("\x0a\x01\xff"))                             // not UTF-8
	f.Add([]byte("\x12\x05\x0a\x03\x0a\x01\xff"))
	f.Add([]byte("\x12\x05\x0a\x03\x12\x01\xff"))
	f.Add(bytes.Repeat([]byte{0x12, 0}, 600))
	f.Fuzz(func(t *testing.T, raw []byte) {
		want := new(rlsv3.RateLimitRequest)
		wrong := proto.Unmarshal(raw, want)
		m := new(message)
		err := m.unmarshal(bytes.Clone(raw))
		if m.refused != nil {
			if wrong == nil && !tooMany(want) {
				t.Errorf("%v: refused: %v", want, m.refused)
			}
			return
		}
		if err == nil && wrong != nil && hasBytes(&m.request) {
			return
		}
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%v, by protobuf %v", err, wrong)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(normal(decode(want)), normal(&m.request)); diff != "" {
			t.Error(diff)
		}
	})
}

// hasBytes reports whether a value is no text.
func hasBytes(r *Request) bool {
	return slices.ContainsFunc(r.Descriptors, func(d Descriptor) bool {
		return slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return !utf8.ValidString(e.Value) })
	})
}

func tooMany(m *rlsv3.RateLimitRequest) bool {
	many := len(m.GetDescriptors()) == 0 || len(m.GetDescriptors()) > rules.MaxDescriptors
	for _, d := range m.GetDescriptors() {
		many = many || len(d.GetEntries()) > rules.MaxEntries
	}
	return many
}

// normal is a request without the difference between nothing and an empty slice.
func normal(r *Request) *Request {
	for i := range r.Descriptors {
		if len(r.Descriptors[i].Entries) == 0 {
			r.Descriptors[i].Entries = nil
		}
	}
	return r
}

// TestMessagesAreCountedFirst: what has too much of something costs next to nothing.
func TestMessagesAreCountedFirst(t *testing.T) {
	entries := protowire.AppendBytes([]byte{0x12}, bytes.Repeat([]byte{0x0a, 0}, 60_000))
	for name, c := range map[string]struct {
		raw    []byte
		bounds rules.Bounds
		want   string
	}{
		"descriptors":       {bytes.Repeat([]byte{0x12, 0}, 131_056), rules.Bounds{}, "descriptors is 131056: want 1 … 512 descriptors"},
		"fewer descriptors": {bytes.Repeat([]byte{0x12, 0}, 65), rules.Bounds{Descriptors: 64}, "descriptors is 65: want 1 … 64 descriptors"},
		"entries":           {entries, rules.Bounds{}, "descriptors[0].entries is 60000: want at most 16 entries"},
	} {
		m := &message{bounds: c.bounds}
		var err error
		allocated := testing.AllocsPerRun(10, func() { err = m.unmarshal(c.raw) })
		var invalid *weir.InvalidError
		if err != nil || !errors.As(m.refused, &invalid) || !strings.Contains(invalid.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %s", name, err, m.refused, c.want)
		}
		if allocated > 20 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

// TestMessagesForget: what one message said is not in the next one.
func TestMessagesForget(t *testing.T) {
	t.Parallel()
	full := "\x0a\x01d\x18\x05\x12\x14\x0a\x06\x0a\x01a\x12\x01b\x12\x06\x08\x05\x10\x03\x1a\x00\x1a\x00 \x01"
	m := new(message)
	if err := m.unmarshal([]byte(full)); err != nil || m.refused != nil || m.request.Descriptors[0].Limit == nil {
		t.Fatal(err, m.refused, m.request)
	}
	m.reset()
	if err := m.unmarshal([]byte("\x12\x04\x12\x02\x10\x01")); err != nil || m.refused != nil {
		t.Fatal(err, m.refused)
	}
	want := &Request{Descriptors: []Descriptor{{Limit: &Override{Unit: 1, Multiplier: 1}}}}
	if diff := cmp.Diff(want, normal(&m.request)); diff != "" {
		t.Error(diff)
	}
}

// TestAppendAnswer holds the encoder against that of protobuf.
func TestAppendAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.Just(""), rapid.StringN(1, 300, 1000))
		a := &Answer{Over: rapid.Bool().Draw(t, "over")}
		for range rapid.IntRange(0, 5).Draw(t, "statuses") {
			s := Status{Over: rapid.Bool().Draw(t, "over"), Remaining: rapid.Uint32().Draw(t, "remaining")}
			if rapid.Bool().Draw(t, "limited") {
				s.Limit = &CurrentLimit{
					Name: text.Draw(t, "name"), Requests: rapid.Uint32().Draw(t, "requests"),
					Unit: Unit(rapid.IntRange(0, 7).Draw(t, "unit")), Multiplier: rapid.Uint32Range(0, 3).Draw(t, "multiplier"),
				}
				s.Reset = time.Duration(rapid.IntRange(0, 1<<20).Draw(t, "reset")) * time.Second
			}
			a.Statuses = append(a.Statuses, s)
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			a.Headers = append(a.Headers, Header{text.Draw(t, "header"), text.Draw(t, "value")})
		}
		if rapid.Bool().Draw(t, "metadata") {
			a.Metadata = map[string]any{"a": text.Draw(t, "metadata")}
		}
		m, err := encode(a)
		if err != nil {
			t.Fatal(err)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := appendAnswer([]byte("kept"), a)
		if err != nil || string(got) != "kept"+string(want) {
			t.Fatalf("got %x, %v, want %x", got, err, want)
		}
	})
}

// encode translates an answer into a message, field by field.
func encode(a *Answer) (*rlsv3.RateLimitResponse, error) {
	m := &rlsv3.RateLimitResponse{OverallCode: code(a.Over)}
	for _, s := range a.Statuses {
		status := &rlsv3.RateLimitResponse_DescriptorStatus{Code: code(s.Over), LimitRemaining: s.Remaining}
		if l := s.Limit; l != nil {
			status.DurationUntilReset = durationpb.New(s.Reset)
			status.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
				Name: l.Name, RequestsPerUnit: l.Requests, Unit: rlsv3.RateLimitResponse_RateLimit_Unit(l.Unit),
			}
			if l.Multiplier != 1 {
				status.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(l.Multiplier)
			}
		}
		m.Statuses = append(m.Statuses, status)
	}
	for _, h := range a.Headers {
		m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &corev3.HeaderValue{Key: h.Name, Value: h.Value})
	}
	if a.Metadata == nil {
		return m, nil
	}
	var err error
	m.DynamicMetadata, err = structpb.NewStruct(a.Metadata)
	return m, err
}

// decode translates a message into a request.
func decode(m *rlsv3.RateLimitRequest) *Request {
	req := &Request{Domain: m.GetDomain(), HitsAddend: m.GetHitsAddend()}
	for _, from := range m.GetDescriptors() {
		d := Descriptor{Limit: decodeLimit(from.GetLimit()), Refund: from.GetIsNegativeHits()}
		for _, e := range from.GetEntries() {
			d.Entries = append(d.Entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if addend := from.GetHitsAddend(); addend != nil {
			d.HitsAddend = &addend.Value
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

func decodeLimit(m *ratelimitv3.RateLimitDescriptor_RateLimitOverride) *Override {
	if m == nil {
		return nil
	}
	o := &Override{Requests: m.GetRequestsPerUnit(), Unit: Unit(m.GetUnit()), Multiplier: 1}
	if multiplier := m.GetUnitMultiplier(); multiplier != nil {
		o.Multiplier = multiplier.GetValue()
	}
	return o
}

// charged is a message that notes what decoding it is charged.
type charged struct {
	text  string
	bytes int64
}

func (c *charged) Take(bytes int64) error { c.bytes += bytes; return nil }
func (c *charged) Text() string           { return c.text }

// TestLargeMessageIsChargedOnce: the caller has reserved a message as a whole already, so
// decoding is charged for the parts, and for the copy of a small one.
func TestLargeMessageIsChargedOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 15_000} {
		asked := &rlsv3.RateLimitRequest{Domain: "shop"}
		for range 16 {
			asked.Descriptors = append(asked.Descriptors, &ratelimitv3.RateLimitDescriptor{
				Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "path", Value: strings.Repeat("x", size)}},
			})
		}
		raw, err := proto.Marshal(asked)
		if err != nil {
			t.Fatal(err)
		}
		c := &charged{text: string(raw)}
		m := &message{call: c}
		if err := m.unmarshal(raw); err != nil || len(m.request.Descriptors) != 16 {
			t.Fatal(err, m.refused)
		}
		if least, most := int64(min(len(raw), copiedBytes)+16*descriptorBytes), int64(16<<10); c.bytes < least || c.bytes > most {
			t.Errorf("%d bytes are charged %d, want %d to %d", len(raw), c.bytes, least, most)
		}
	}
}
