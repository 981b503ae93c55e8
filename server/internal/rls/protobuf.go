package rls

import (
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func code(over bool) rlsv3.RateLimitResponse_Code {
	if over {
		return rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return rlsv3.RateLimitResponse_OK
}

// appendAnswer appends an answer, encoded as protobuf would, to b. The error says that
// metadata does not fit into a message.
func appendAnswer(b []byte, a *Answer) ([]byte, error) {
	b = appendNumber(b, 1, uint64(code(a.Over)))
	for i := range a.Statuses {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = appendSized(b, func(b []byte) []byte { return a.Statuses[i].append(b) })
	}
	for _, h := range a.Headers {
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = appendSized(b, func(b []byte) []byte { return appendText(appendText(b, 1, h.Name), 2, h.Value) })
	}
	if a.Metadata == nil {
		return b, nil
	}
	metadata, err := structpb.NewStruct(a.Metadata)
	if err != nil {
		return nil, err
	}
	encoded, err := proto.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	return protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), encoded), nil
}

func (s *Status) append(b []byte) []byte {
	b = appendNumber(b, 1, uint64(code(s.Over)))
	if l := s.Limit; l != nil {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = appendSized(b, l.append)
	}
	b = appendNumber(b, 3, uint64(s.Remaining))
	if s.Limit == nil {
		return b
	}
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return appendSized(b, func(b []byte) []byte { return appendNumber(b, 1, uint64(s.Reset/time.Second)) })
}

func (l *CurrentLimit) append(b []byte) []byte {
	b = appendNumber(b, 1, uint64(l.Requests))
	b = appendNumber(b, 2, uint64(l.Unit))
	b = appendText(b, 3, l.Name)
	if l.Multiplier == 1 {
		return b
	}
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return appendSized(b, func(b []byte) []byte { return appendNumber(b, 1, uint64(l.Multiplier)) })
}

// appendNumber appends a field that is a number, unless it is 0.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// appendText appends a field that is a text, unless it is empty.
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// appendSized appends what inner appends, after its length.
func appendSized(b []byte, inner func([]byte) []byte) []byte {
	from := len(b)
	b = inner(append(b, 0))
	n := len(b) - from - 1
	if n < 1<<7 {
		b[from] = byte(n)
		return b
	}
	// The length takes more than one byte.
	more := protowire.SizeVarint(uint64(n)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[from+1+more:], b[from+1:from+1+n])
	protowire.AppendVarint(b[:from], uint64(n))
	return b
}
