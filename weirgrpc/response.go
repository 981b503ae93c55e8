package weirgrpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Response is what became of a call: what [Options.Charge] goes by.
type Response struct {
	Method string // the full one
	// Code is that of the status: Unknown where the handler panicked.
	Code codes.Code
	// Messages is how many messages the handler has sent.
	Messages int64
	// Bytes is how long those are that are Protocol Buffers, before compression.
	Bytes int64

	charged bool // message by message
}

// count adds a message that was sent.
func (r *Response) count(message any) {
	r.Messages++
	if m, ok := message.(proto.Message); ok {
		r.Bytes += int64(proto.Size(m))
	}
}

// metered is a stream whose messages are counted as they go out, or charged as
// they come in.
type metered struct {
	grpc.ServerStream
	door *door
	sent Response
}

// SendMsg sends a message and counts it.
func (s *metered) SendMsg(message any) error {
	err := s.ServerStream.SendMsg(message)
	if err == nil && s.door.Charge != nil {
		s.sent.count(message)
	}
	return err
}

// RecvMsg receives a message and charges it.
func (s *metered) RecvMsg(message any) error {
	err := s.ServerStream.RecvMsg(message)
	if err != nil || !s.door.PerMessage {
		return err
	}
	return s.door.receive(s.Context(), s.sent.Method, message)
}
