package admission_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/server/internal/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take that is to happen at all.
const patience = 20 * time.Second

// A fixture is a server of health checks behind a gate.
type fixture struct {
	t      *testing.T
	addr   string
	budget *admission.Budget

	mu       sync.Mutex
	rejected map[admission.Reason]int
}

func serve(t *testing.T, o admission.GateOptions) *fixture {
	t.Helper()
	f := &fixture{t: t, budget: o.Budget, rejected: map[admission.Reason]int{}}
	if f.budget == nil {
		f.budget = admission.NewBudget(32 << 20)
	}
	o.Budget, o.MessageBytes = f.budget, 256<<10
	o.Rejected = func(r admission.Reason) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rejected[r]++
	}
	gate := admission.NewGate(o)
	server := grpc.NewServer(append(gate.ServerOptions(), grpc.WaitForHandlers(true), grpc.UnaryInterceptor(gate.Unary), grpc.StreamInterceptor(gate.Stream))...)
	server.RegisterService(admission.Early(&healthv1.Health_ServiceDesc), health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(gate.Listener(listener)) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if held := f.budget.Held(); held != 0 {
			t.Errorf("%d bytes are held for nobody", held)
		}
	})
	f.addr = listener.Addr().String()
	return f
}

func (f *fixture) count(r admission.Reason) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rejected[r]
}

func (f *fixture) dial() healthv1.HealthClient {
	f.t.Helper()
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return healthv1.NewHealthClient(conn)
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

// raw speaks HTTP/2 by hand.
type raw struct {
	*http2.Framer
	conn   net.Conn
	header []byte
}

func (f *fixture) raw(method string) *raw {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			f.t.Fatal(err)
		}
	}
	r := &raw{http2.NewFramer(conn, conn), conn, header.Bytes()}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		f.t.Fatal(err)
	}
	if err := r.WriteSettings(); err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (r *raw) begin(stream uint32, data []byte) error {
	err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.header, EndHeaders: true})
	for len(data) > 0 && err == nil {
		n := min(len(data), 16<<10)
		err, data = r.WriteData(stream, false, data[:n]), data[n:]
	}
	return err
}

// ended reports whether the server closes the connection.
func (r *raw) ended() bool {
	_, err := io.Copy(io.Discard, r.conn)
	var late net.Error
	return !errors.As(err, &late) || !late.Timeout()
}

// TestCallsHoldNothingAfterwards: calls that are answered, that fail and whose method
// does not exist give everything back, on one connection that stays open.
func TestCallsHoldNothingAfterwards(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Watches: 10})
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthv1.NewHealthClient(conn)
	for range 200 {
		for service, want := range map[string]codes.Code{"": codes.OK, "none": codes.NotFound} {
			if _, err := client.Check(f.ctx(), &healthv1.HealthCheckRequest{Service: service}); status.Code(err) != want {
				t.Fatalf("%q: %v", service, err)
			}
		}
		if err := conn.Invoke(f.ctx(), "/none/None", &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{}); status.Code(err) != codes.Unimplemented {
			t.Fatal(err)
		}
		if err := conn.Invoke(f.ctx(), "/none/None", &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{}, grpc.UseCompressor("identity")); err == nil {
			t.Fatal("answered")
		}
	}
	// The last call's bytes are given back when the connection is read again.
	if held := f.budget.Held(); held > 16<<10 {
		t.Errorf("%d bytes are held after the last call", held)
	}
}

// TestWhatIsReadIsCharged: a connection that sends messages without an end is closed
// when it holds too much, and others are served all the while.
func TestWhatIsReadIsCharged(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Budget: admission.NewBudget(1 << 20), Watches: 10})
	r := f.raw("/grpc.health.v1.Health/Check")
	part := append([]byte{0, 0, 3, 0xff, 0xff}, make([]byte, 60<<10)...)
	ended := make(chan bool, 1)
	go func() { ended <- r.ended() }()
	client := f.dial()
	for stream := uint32(1); stream < 200; stream += 2 {
		if err := r.begin(stream, part); err != nil {
			break // closed
		}
		if _, err := client.Check(f.ctx(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatalf("another client: %v", err)
		}
		if held := f.budget.Held(); held > 1<<20+64<<10 {
			t.Fatalf("%d bytes are held", held)
		}
	}
	if !<-ended {
		t.Error("the connection was not closed")
	}
	if f.count(admission.Memory) == 0 {
		t.Error("nobody was told")
	}
}

// TestFloodsEndTheConnection: one whose calls are given up before their messages come.
func TestFloodsEndTheConnection(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Watches: 10})
	r := f.raw("/grpc.health.v1.Health/Check")
	ended := make(chan bool, 1)
	go func() { ended <- r.ended() }()
	for stream := uint32(1); stream < 20_000; stream += 2 {
		err := r.begin(stream, nil)
		if err == nil {
			err = r.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		if err != nil {
			break // closed
		}
	}
	if !<-ended || f.count(admission.Flood) != 1 {
		t.Errorf("%d floods were ended", f.count(admission.Flood))
	}
}

// TestSlowMessagesEndTheConnection: a message that stops arriving, whatever its
// connection does besides.
func TestSlowMessagesEndTheConnection(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Watches: 10, Timeout: 50 * time.Millisecond})
	r := f.raw("/grpc.health.v1.Health/Check")
	if err := r.begin(1, []byte{0, 0, 0, 0, 5}); err != nil {
		t.Fatal(err)
	}
	if !r.ended() || f.count(admission.Slow) != 1 {
		t.Errorf("ended, %d times slow", f.count(admission.Slow))
	}
}

// TestGoodConnectionsAreNotSlow: one that is used now and then stays open.
func TestGoodConnectionsAreNotSlow(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Watches: 10, Timeout: 2 * time.Second})
	client := f.dial()
	watch, err := client.Watch(f.ctx(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
		if _, err := client.Check(f.ctx(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := watch.CloseSend(); err != nil || f.count(admission.Slow) > 0 {
		t.Error(err, f.count(admission.Slow))
	}
}

// TestWatchesAreBounded: of one connection, and of all; there is room again when one
// ends.
func TestWatchesAreBounded(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Watches: 20})
	open := func(client healthv1.HealthClient) (codes.Code, context.CancelFunc) {
		ctx, cancel := context.WithCancel(f.ctx())
		stream, err := client.Watch(ctx, &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return status.Code(err), cancel
	}
	first, second := f.dial(), f.dial()
	var cancel context.CancelFunc
	for i := range 17 {
		code, end := open(first)
		if want := map[bool]codes.Code{true: codes.OK, false: codes.ResourceExhausted}[i < 16]; code != want {
			t.Errorf("watch %d of a connection: %v, want %v", i+1, code, want)
		}
		if i == 0 {
			cancel = end
		}
	}
	for i := range 5 {
		code, _ := open(second)
		if want := map[bool]codes.Code{true: codes.OK, false: codes.ResourceExhausted}[i < 4]; code != want {
			t.Errorf("watch %d in all: %v, want %v", i+17, code, want)
		}
	}
	if f.count(admission.Watches) != 2 {
		t.Errorf("%d were rejected", f.count(admission.Watches))
	}
	cancel()
	for deadline := time.Now().Add(patience); ; {
		if code, _ := open(second); code == codes.OK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("there was no room again")
		}
	}
}

// TestStreamsAreCharged: calls in flight hold something, so that they are bounded.
func TestStreamsAreCharged(t *testing.T) {
	t.Parallel()
	f := serve(t, admission.GateOptions{Budget: admission.NewBudget(256 << 10), Watches: 100})
	stream, err := f.dial().Watch(f.ctx(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if held := f.budget.Held(); held < 64<<10 {
		t.Errorf("a watch holds %d bytes", held)
	}
}
