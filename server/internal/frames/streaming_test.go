package frames_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/frames"
)

// A talk is a stream of grpc-go's client.
type talk struct {
	testing.TB
	grpc.ClientStream
}

func begin(t testing.TB, ctx context.Context, conn *grpc.ClientConn, method string, options ...grpc.CallOption) *talk {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, options...)
	if err != nil {
		t.Fatal(err)
	}
	return &talk{t, stream}
}

func (s *talk) send(message []byte) {
	s.Helper()
	if err := s.SendMsg(wrapperspb.Bytes(message)); err != nil {
		s.Fatal(err)
	}
}

func (s *talk) recv() ([]byte, error) {
	m := new(wrapperspb.BytesValue)
	err := s.RecvMsg(m)
	return m.Value, err
}

func (s *talk) wants(want []byte) {
	s.Helper()
	if got, err := s.recv(); err != nil || !bytes.Equal(got, want) {
		s.Fatalf("%d bytes of %d, and %v", len(got), len(want), err)
	}
}

func (s *talk) ends(want codes.Code, text string) {
	s.Helper()
	_, err := s.recv()
	if want == codes.OK && errors.Is(err, io.EOF) {
		return
	}
	if status.Code(err) != want || !strings.Contains(status.Convert(err).Message(), text) {
		s.Errorf("ended with %v, want %v %q", err, want, text)
	}
}

// testStreams calls every kind of stream.
func testStreams(t *testing.T, conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	defer cancel()
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(grpcgzip.Name)}} {
		s := begin(t, ctx, conn, chat, options...)
		for _, size := range []int{0, 1, 16_000, 70_000, 256<<10 - 4, 5} {
			message := bytes.Repeat([]byte{7}, size)
			s.send(message)
			s.wants(message)
		}
		// Many at once, and then the end.
		for i := range 100 {
			s.send([]byte{byte(i)})
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			s.wants([]byte{byte(i)})
		}
		s.ends(codes.OK, "")
	}
	s := begin(t, ctx, conn, chat)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	s.ends(codes.OK, "")
	s = begin(t, ctx, conn, chat)
	s.send([]byte("fail"))
	s.wants([]byte("fail"))
	s.ends(codes.FailedPrecondition, awkward)
	if note := s.Trailer().Get("x-note"); len(note) != 1 || note[0] != "rejected" {
		t.Errorf("trailer %v", s.Trailer())
	}
	for name, size := range map[string]int{"first": 0, "later": 1} {
		s = begin(t, ctx, conn, chat)
		for range size {
			s.send(nil)
			s.wants(nil)
		}
		s.send(make([]byte, 256<<10))
		t.Log(name)
		s.ends(codes.ResourceExhausted, "at most 262144 are taken")
	}
	s = begin(t, ctx, conn, fall)
	s.send(nil)
	s.wants(nil)
	s.ends(codes.Internal, "the log says why")
	// One that nobody serves is told so although it does not end.
	s = begin(t, ctx, conn, "/test.Stream/Unknown")
	s.send(nil)
	s.ends(codes.Unimplemented, "unknown method")
	s = begin(t, ctx, conn, burst)
	s.send(nil)
	for range 100 {
		s.wants(bytes.Repeat([]byte{9}, 60_000))
	}
	s.ends(codes.OK, "")
	brief, end := context.WithTimeout(ctx, 500*time.Millisecond)
	defer end()
	s = begin(t, brief, conn, once)
	s.send(nil)
	if _, err := s.recv(); err == nil { // a busy machine may be too late for it
		s.ends(codes.DeadlineExceeded, "")
	} else if status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	s = begin(t, ctx, conn, once)
	s.send(nil)
	s.wants(nil)
	cancel()
	s.ends(codes.Canceled, "")
}

// TestStreamDeadline: a handler that waits for a message learns that the deadline has passed, also
// if the client does not end the call.
func TestStreamDeadline(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{}).wire(t)
	w.check(all(w.head(1, chat, "grpc-timeout", "50m"), w.WriteData(1, false, message(1))))
	if status := w.answered(1); status != "4" {
		t.Errorf("status %s", status)
	}
}

// TestStreamsAreShared: one connection cannot keep all others from having streams open, and calls
// need none.
func TestStreamsAreShared(t *testing.T) {
	t.Parallel()
	limited := make(chan frames.Reason, 1000)
	p := serve(t, frames.Options{MaxOpen: 100, Limited: func(why frames.Reason) { limited <- why }})
	w := p.wire(t)
	for i := range uint32(900) {
		w.check(all(w.head(id(i), deaf), w.WriteData(id(i), false, message(1))))
	}
	for range 850 {
		if why := <-limited; why != frames.ReasonWatches {
			t.Fatalf("limited by %v", why)
		}
	}
	if n := p.Stats().Open; n != 50 {
		t.Errorf("%d are open", n)
	}
	conn := p.dial(t, plaintext)
	for range 16 {
		s := begin(t, within(t, 10*time.Second), conn, chat)
		s.send(nil)
		s.wants(nil)
	}
	if _, err := call(within(t, 10*time.Second), conn, echo, nil, grpc.UseCompressor(grpcgzip.Name)); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedStreams: streams whose first message does not come take no slot of those that do,
// however many there are.
func TestUnfinishedStreams(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{MaxOpen: 20})
	for range 10 {
		w := p.wire(t)
		for i := range uint32(100) {
			w.check(all(w.head(id(i), chat, "grpc-encoding", "gzip"), w.WriteData(id(i), false, message(100)[:50])))
		}
		w.quietBut()
	}
	s := begin(t, within(t, 10*time.Second), p.dial(t, plaintext), chat)
	s.send(nil)
	s.wants(nil)
}

// TestStreamsAreCharged: streams that are open, messages that were not received and those that
// were not taken are charged to the budget, which has all of it back in the end.
func TestStreamsAreCharged(t *testing.T) {
	t.Parallel()
	budget := admission.NewBudget(32 << 20)
	p := serve(t, frames.Options{Hold: holds(budget)})
	for method, least := range map[string]int64{deaf: 100 * (8<<10 + 10_000), burst: 100 * 2 * 60_000} {
		w := p.wire(t)
		for i := range uint32(100) {
			w.check(all(w.head(id(i), method), w.WriteData(id(i), false, message(10_000))))
		}
		eventually(t, func() bool { return budget.Held() > least })
		_ = w.nc.Close()
		eventually(t, func() bool { return budget.Held() == 0 && p.Stats().Open == 0 })
	}
	conn := p.dial(t, plaintext)
	s := begin(t, within(t, time.Minute), conn, chat, grpc.UseCompressor(grpcgzip.Name))
	for range 50 {
		s.send(make([]byte, 200_000))
		s.wants(make([]byte, 200_000))
	}
	if held := budget.Held(); held > 1<<20 {
		t.Errorf("%d bytes are held for one message", held)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	s.ends(codes.OK, "")
	eventually(t, func() bool { return budget.Held() == 0 })
	// There is no room for the messages of all.
	small := admission.NewBudget(256 << 10)
	w := serve(t, frames.Options{Hold: holds(small)}).wire(t)
	w.check(all(w.head(1, burst), w.WriteData(1, false, message(1))))
	for i := uint32(1); i < 8; i++ {
		w.check(all(w.head(id(i), burst), w.WriteData(id(i), false, message(1))))
	}
	failed := false
	for !failed {
		if f := wanted[*http2.HeadersFrame](w); f.StreamEnded() {
			failed = true
		} else {
			w.read(f.HeaderBlockFragment())
		}
	}
	if held := small.Held(); held > 256<<10 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestStreamWhileDraining: a stream that is open keeps its connection until it ends.
func TestStreamWhileDraining(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{})
	s := begin(t, within(t, 20*time.Second), p.dial(t, plaintext), chat)
	s.send(nil)
	s.wants(nil)
	stopped := make(chan error)
	go func() { stopped <- p.Stop(within(t, 20*time.Second)) }()
	eventually(t, func() bool {
		s.send([]byte("a"))
		s.wants([]byte("a"))
		select {
		case err := <-stopped:
			t.Fatalf("stopped with %v", err)
		default:
		}
		return true
	})
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	s.ends(codes.OK, "")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestAcknowledged: a PING follows the last byte of the message, and only its acknowledgement counts.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{}).wire(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	w.check(all(w.head(1, acks), w.WriteData(1, false, message(100))))
	w.data(1, 10)
	w.quiet()
	size := len(message(100))
	w.check(w.WriteWindowUpdate(1, uint32(2*size)))
	w.data(1, size-10)
	ping := wanted[*http2.PingFrame](w)
	for _, other := range [][8]byte{{}, [8]byte([]byte("farewell"))} {
		w.check(w.WritePing(true, other))
	}
	w.quiet()
	w.check(w.WritePing(true, ping.Data))
	w.data(1, size)
	// It counts once, and not for a call that is over.
	w.check(all(w.WritePing(true, ping.Data), w.WriteData(1, false, message(1))))
	w.data(1, len(message(1)))
	ping = wanted[*http2.PingFrame](w)
	w.check(all(w.WriteRSTStream(1, http2.ErrCodeCancel), w.WritePing(true, ping.Data)))
	w.quiet()
}

// TestStreamMessages: a stream may have a bound of its own for its messages, compressed or not.
func TestStreamMessages(t *testing.T) {
	t.Parallel()
	const size = 900_000
	p := serve(t, frames.Options{StreamMessages: map[string]int{chat: 1 << 20}})
	conn := p.dial(t, plaintext)
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(grpcgzip.Name)}} {
		for method, code := range map[string]codes.Code{chat: codes.OK, acks: codes.ResourceExhausted} {
			s := begin(t, within(t, 20*time.Second), conn, method, options...)
			message := bytes.Repeat([]byte{7}, size)
			_ = s.SendMsg(wrapperspb.Bytes(message))
			switch {
			case method == chat:
				s.wants(message)
				_ = s.CloseSend()
				s.ends(code, "")
			case method == acks:
				s.ends(code, "")
			}
		}
		s := begin(t, within(t, 20*time.Second), conn, chat, options...)
		_ = s.SendMsg(wrapperspb.Bytes(make([]byte, 2<<20)))
		s.ends(codes.ResourceExhausted, "at most 1048576")
	}
}

// TestPart ends the handlers of streams whose clients have nothing to say.
func TestPart(t *testing.T) {
	t.Parallel()
	s := begin(t, within(t, 20*time.Second), serve(t, frames.Options{}).dial(t, plaintext), acks)
	s.send([]byte("a"))
	s.wants([]byte("a"))
	s.wants([]byte("a"))
	s.send([]byte("part"))
	s.wants([]byte("part"))
	s.ends(codes.Unavailable, "the server stops")
}

// TestStreamsAreAdmitted like calls.
func TestStreamsAreAdmitted(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{MessageTimeout: 100 * time.Millisecond, Admit: func(c *frames.Call) {
		if c.Header("authorization") != "Bearer a" {
			c.Fail(16, "a token is needed")
		}
	}})
	conn := p.dial(t, plaintext)
	s := begin(t, within(t, 10*time.Second), conn, chat)
	s.send(nil)
	s.ends(codes.Unauthenticated, "a token is needed")
	s = begin(t, metadata.AppendToOutgoingContext(within(t, 10*time.Second), "authorization", "Bearer a"), conn, chat)
	s.send(nil)
	s.wants(nil)
}

// TestManyStreams has many streams at once on a few connections.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{Direct: true})
	var talks sync.WaitGroup
	for range 4 {
		conn := p.dial(t, plaintext)
		for i := range 100 {
			talks.Go(func() {
				s := begin(t, within(t, 60*time.Second), conn, chat)
				for n := range 20 {
					message := bytes.Repeat([]byte{byte(i)}, i*n*10)
					if err := s.SendMsg(wrapperspb.Bytes(message)); err != nil {
						t.Error(err)
						return
					}
					if got, err := s.recv(); err != nil || !bytes.Equal(got, message) {
						t.Errorf("%d bytes of %d, and %v", len(got), len(message), err)
						return
					}
				}
				_ = s.CloseSend()
				s.ends(codes.OK, "")
			})
		}
	}
	talks.Wait()
	eventually(t, func() bool { return p.Stats().Open == 0 })
}
