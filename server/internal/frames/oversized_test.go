package frames_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/server/internal/frames"
)

// TestOversizedReplies: a message that is too large gets the reply of its method, however it
// comes, is not handled, and is counted.
func TestOversizedReplies(t *testing.T) {
	t.Parallel()
	reply := message(3)[5:]
	p := serve(t, frames.Options{MaxMessage: 1000, Oversized: map[string][]byte{echo: reply}})
	conn := p.dial(t, plaintext)
	for name, options := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(grpcgzip.Name)}} {
		for _, size := range []int{1001, 70_000, 1 << 20} {
			before := p.Stats().Limited["message"]
			answer, err := call(within(t, 10*time.Second), conn, echo, bytes.Repeat([]byte{1}, size), options...)
			if err != nil || !bytes.Equal(answer, []byte{9, 9, 9}) {
				t.Errorf("%s, %d bytes: %v, %v", name, size, answer, err)
			}
			if got := p.Stats().Limited["message"]; got != before+1 {
				t.Errorf("%s, %d bytes: counted %d times", name, size, got-before)
			}
			if _, err = call(within(t, 10*time.Second), conn, large, bytes.Repeat([]byte{1}, size), options...); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s, %d bytes, a method without a reply: %v", name, size, err)
			}
		}
	}
	if answer, err := call(within(t, 10*time.Second), conn, echo, []byte("fits")); err != nil || string(answer) != "fits" {
		t.Errorf("%q, %v", answer, err)
	}
}

// TestOversizedCallsKeepTheConnection: a proxy sends the calls of many clients on one
// connection. One client's oversized calls must not end it.
func TestOversizedCallsKeepTheConnection(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{MaxMessage: 1000, Oversized: map[string][]byte{echo: {}}}).wire(t)
	w.check(w.WriteWindowUpdate(0, 1<<30))
	const batch, calls = 100, 15_000 // more than the patience for frames that are no calls
	for i := uint32(0); i < calls; i += batch {
		for j := range uint32(batch) {
			w.check(w.call(id(i+j), echo, 1001))
		}
		for j := range uint32(batch) {
			if status := w.answered(id(i + j)); status != "0" {
				t.Fatalf("call %d: status %q", i+j, status)
			}
		}
	}
	w.check(w.call(id(calls), echo, 10))
	if status := w.answered(id(calls)); status != "0" {
		t.Errorf("status %q", status)
	}
}
