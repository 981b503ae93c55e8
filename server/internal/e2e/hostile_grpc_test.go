package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	resets  = 50_000
	streams = 1000 // that a connection may have at once
)

// TestHostileDescriptors asks what is outside the contract of Envoy's service.
func TestHostileDescriptors(t *testing.T) {
	s := besiege(t)
	client := rlsv3.NewRateLimitServiceClient(dialEnvoy(t, s.weir))
	victim := envoy("victim", "1")
	long, longer := strings.Repeat("x", 1025), strings.Repeat("x", 16<<10+1)
	many := func(n int) []*ratelimitv3.RateLimitDescriptor { return repeat(n, victim) }
	after := func(d *ratelimitv3.RateLimitDescriptor) []*ratelimitv3.RateLimitDescriptor {
		return []*ratelimitv3.RateLimitDescriptor{victim, d}
	}
	for name, c := range map[string]struct {
		domain      string
		descriptors []*ratelimitv3.RateLimitDescriptor
		code        codes.Code
		field       string
	}{
		"no domain":           {"", many(1), codes.InvalidArgument, "domain"},
		"no descriptors":      {"hostile", nil, codes.InvalidArgument, "descriptors"},
		"513 descriptors":     {"hostile", many(513), codes.InvalidArgument, "descriptors"},
		"10 000 descriptors":  {"hostile", many(10_000), codes.InvalidArgument, "descriptors"},
		"17 entries":          {"hostile", after(envoy(repeat(34, "victim")...)), codes.InvalidArgument, "descriptors[1].entries"},
		"a value too long":    {"hostile", after(envoy("victim", longer)), codes.InvalidArgument, "descriptors[1].entries[0].value"},
		"a key too long":      {"hostile", after(envoy(long, "1")), codes.InvalidArgument, "descriptors[1].entries[0].key"},
		"a value of 1 MB":     {"hostile", after(envoy("victim", strings.Repeat("x", 1<<20))), codes.ResourceExhausted, ""},
		"a wrong unit":        {"hostile", after(overriding(envoy("victim", "1"), 5, typev3.RateLimitUnit(99))), codes.InvalidArgument, "descriptors[1].limit.unit"},
		"no unit":             {"hostile", after(overriding(envoy("victim", "1"), 5, 0)), codes.InvalidArgument, "descriptors[1].limit.unit"},
		"a huge addend":       {"hostile", []*ratelimitv3.RateLimitDescriptor{charging(envoy("victim", "1"), 1<<63)}, codes.OK, ""}, // over the limit
		"a huge refund":       {"hostile", []*ratelimitv3.RateLimitDescriptor{refunding(envoy("victim", "1"), 1<<63)}, codes.InvalidArgument, "descriptors[0].hits_addend"},
		"a refund of nothing": {"hostile", []*ratelimitv3.RateLimitDescriptor{refunding(envoy("victim", "1"), 1000)}, codes.OK, ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		m, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: c.domain, Descriptors: c.descriptors})
		cancel()
		if got := status.Convert(err); got.Code() != c.code || c.field != "" && !strings.HasPrefix(got.Message(), c.field+" is ") || len(got.Message()) > 1000 {
			t.Errorf("%s: got %v %.200v, want %v about %q", name, m, err, c.code, c.field)
		}
	}
	s.uncharged()
}

// TestHostileMessages sends what is no message, under names that are no method.
func TestHostileMessages(t *testing.T) {
	s := besiege(t)
	conn := dialEnvoy(t, s.weir)
	nested := []byte{}
	for range 10_000 {
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nested)
	}
	for name, c := range map[string]struct {
		method  string
		unknown []byte
		header  int
		code    codes.Code
	}{
		"no method":     {method: "/envoy.service.ratelimit.v3.RateLimitService/Free", code: codes.Unimplemented},
		"no service":    {method: "/Free/ShouldRateLimit", code: codes.Unimplemented},
		"no message":    {method: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, unknown: []byte{0x0a, 0xff, 0xff}, code: codes.Internal},
		"nesting":       {method: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, unknown: nested, code: codes.Internal},
		"large headers": {method: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, header: 1 << 20, code: codes.Internal},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if c.header > 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-large", strings.Repeat("x", c.header))
		}
		m := new(emptypb.Empty)
		m.ProtoReflect().SetUnknown(c.unknown)
		err := conn.Invoke(ctx, c.method, m, new(emptypb.Empty))
		cancel()
		if got := status.Code(err); got != c.code && (c.code != codes.Internal || got == codes.OK) {
			t.Errorf("%s: got %v, want %v", name, err, c.code)
		}
	}
	s.uncharged()
}

// A framer speaks HTTP/2 as no well-behaved client does.
type framer struct {
	*http2.Framer
	conn   net.Conn
	header bytes.Buffer
	next   uint32 // stream
}

func newFramer(t *testing.T, s *siege, window uint32, more ...[2]string) *framer {
	t.Helper()
	f := &framer{conn: connect(t, s.grpc), next: 1}
	f.Framer = http2.NewFramer(f.conn, f.conn)
	if _, err := io.WriteString(f.conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	encoder := hpack.NewEncoder(&f.header)
	for _, field := range append([][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", rlsv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "weir"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	}, more...) {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// open begins a call.
func (f *framer) open(endHeaders bool) (stream uint32, err error) {
	stream, f.next = f.next, f.next+2
	return stream, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.header.Bytes(), EndHeaders: endHeaders})
}

// watch reads what the server says until it hangs up, and calls f for each frame.
func (f *framer) watch(seen func(http2.Frame)) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			seen(frame)
		}
	}()
	return ended
}

// TestHostileResets opens 50 000 calls and resets each at once.
func TestHostileResets(t *testing.T) {
	s := besiege(t)
	s.during(func() { s.reset(resets) })
	s.uncharged()
}

// reset opens so many calls and resets each at once.
func (s *siege) reset(calls int) {
	for sent := 0; sent < calls; {
		f := newFramer(s.t, s, 65535)
		f.watch(func(http2.Frame) {})
		for sent < calls {
			stream, err := f.open(true)
			if err == nil {
				err = f.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
			if sent++; err != nil {
				break // hung up on: the next connection goes on
			}
		}
		f.conn.Close()
	}
}

// TestHostileContinuation begins headers that never end.
func TestHostileContinuation(t *testing.T) {
	s := besiege(t)
	s.during(func() {
		f := newFramer(t, s, 65535)
		ended := f.watch(func(http2.Frame) {})
		stream, err := f.open(false)
		fragment := bytes.Repeat([]byte{0, 1, 'a', 1, 'b'}, 1000) // fields a: b
		for n := 0; err == nil && n < 1<<30; n += len(fragment) {
			err = f.WriteContinuation(stream, false, fragment)
		}
		if err == nil {
			t.Error("1 GiB of headers were taken")
		}
		<-ended
	})
}

// TestHostileUnread makes more calls than a connection may have, on each of a few
// connections, and takes no answer.
func TestHostileUnread(t *testing.T) {
	s := besiege(t)
	question, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "hostile", Descriptors: []*ratelimitv3.RateLimitDescriptor{envoy("free", "2")}})
	if err != nil {
		t.Fatal(err)
	}
	message := append([]byte{0, 0, 0, 0, byte(len(question))}, question...)
	s.during(func() {
		var unread sync.WaitGroup
		for range 4 {
			f := newFramer(t, s, 0)
			unread.Go(func() {
				if err := f.ignore(message); err != nil {
					t.Error(err)
				}
			})
		}
		unread.Wait()
	})
}

// ignore opens calls until the server refuses them, or hangs up.
func (f *framer) ignore(message []byte) error {
	defer f.conn.Close()
	refused := make(chan struct{})
	var once sync.Once
	ended := f.watch(func(frame http2.Frame) {
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.ErrCode == http2.ErrCodeRefusedStream {
			once.Do(func() { close(refused) })
		}
	})
	var err error
	for n := 0; err == nil && n < 3*streams; n++ {
		var stream uint32
		if stream, err = f.open(true); err == nil {
			err = f.WriteData(stream, true, message)
		}
	}
	select {
	case <-refused:
		return nil
	case <-ended:
		return nil
	case <-time.After(patience):
		return errors.Join(errors.New("more calls at once than there may be were neither refused nor ended"), err)
	}
}

// TestHostileSilence connects and says nothing, or not all of a greeting: the
// server hangs up.
func TestHostileSilence(t *testing.T) {
	s := besiege(t)
	s.during(func() {
		var silent sync.WaitGroup
		for i := range 200 {
			conn := connect(t, s.grpc)
			silent.Go(func() {
				_, _ = io.WriteString(conn, http2.ClientPreface[:i%(len(http2.ClientPreface)+1)])
				if _, ended := hungUp(conn); !ended {
					t.Errorf("%d bytes of a greeting were kept for %v", i%(len(http2.ClientPreface)+1), patience)
				}
			})
		}
		silent.Wait()
	})
}
