package frames_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/server/internal/frames"
)

// TestDrain lets a call in flight finish, and one that the client sends before it
// knows; later ones are not served, and the connection ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{})
	w := p.wire(t)
	w.check(w.call(1, slow, 1))
	stopped := make(chan error)
	go func() { stopped <- p.Stop(within(t, 10*time.Second)) }()
	first := wanted[*http2.GoAwayFrame](w)
	if first.ErrCode != http2.ErrCodeNo || first.LastStreamID != 1<<31-1 {
		t.Errorf("first %v", first)
	}
	ping := wanted[*http2.PingFrame](w)
	w.check(w.call(3, slow, 1))
	w.check(w.WritePing(true, ping.Data))
	second := wanted[*http2.GoAwayFrame](w)
	if second.ErrCode != http2.ErrCodeNo || second.LastStreamID != 3 {
		t.Errorf("second %v", second)
	}
	w.check(w.call(5, slow, 1))
	if got := w.statuses(); got[1] != "0" || got[3] != "0" || len(got) != 2 {
		t.Errorf("statuses %v", got)
	}
	_ = w.nc.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// lateListener hands over its connections when it is closed.
type lateListener struct {
	net.Listener
	accepted, closed chan struct{}
	once             sync.Once
}

func (l *lateListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
		<-l.closed
	}
	return nc, err
}

func (l *lateListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// TestAcceptedAsItStops serves the call of a client whose connection was accepted in the moment
// in which the listener is closed. The client does not answer when it is sent away.
func TestAcceptedAsItStops(t *testing.T) {
	t.Parallel()
	server, err := frames.New(frames.Options{Methods: methods()})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lateListener{Listener: inner, accepted: make(chan struct{}, 1), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	p := &peer{server, inner.Addr().String()}
	w := p.bare(t)
	w.must(io.WriteString(w.nc, http2.ClientPreface))
	w.check(w.WriteSettings())
	w.check(w.call(1, echo, 1))
	<-l.accepted
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop(within(t, 10*time.Second)) }()
	if got := w.statuses(); got[1] != "0" {
		t.Errorf("statuses %v", got)
	}
	_ = w.nc.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, frames.ErrStopped) {
		t.Error(err)
	}
}

// statuses reads until the connection ends. It returns the grpc-status of every
// stream that was answered.
func (w *wire) statuses() map[uint32]string {
	w.Helper()
	all := map[uint32]string{}
	for {
		f, err := w.ReadFrame()
		if errors.Is(err, io.EOF) {
			return all
		}
		w.check(err)
		if f, ok := f.(*http2.HeadersFrame); ok && f.StreamEnded() {
			all[f.StreamID] = w.read(f.HeaderBlockFragment())["grpc-status"]
		}
	}
}

// TestDrainWhileShaking stops servers while a client shakes hands, which has already sent
// its first call. The server answers the call, or says by a GOAWAY that it did not serve it.
func TestDrainWhileShaking(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	secret := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
	for range 20 {
		p := serve(t, frames.Options{TLS: secret})
		w := p.bare(t)
		eventually(t, func() bool { return p.Stats().Connections == 1 })
		stopped := make(chan error)
		go func() { stopped <- p.Stop(within(t, 10*time.Second)) }()
		nc := tls.Client(w.nc, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
		if err := nc.Handshake(); err != nil {
			t.Fatal(err) // the server waits for it
		}
		sent := new(bytes.Buffer)
		w.nc, w.Framer = nc, http2.NewFramer(sent, nc)
		sent.WriteString(http2.ClientPreface)
		w.check(all(w.WriteSettings(), w.call(1, echo, 1)))
		w.must(nc.Write(sent.Bytes()))
		for known := false; !known; {
			f, err := w.ReadFrame()
			if err != nil {
				t.Fatalf("the client does not know what became of its call: %v", err)
			}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				known = f.StreamEnded()
			case *http2.GoAwayFrame:
				known = f.LastStreamID == 0
			}
		}
		_ = w.nc.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// TestStopCutsOff ends calls that do not end.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{})
	conn := p.dial(t, plaintext)
	waits, err := conn.NewStream(within(t, 10*time.Second), &grpc.StreamDesc{}, wait)
	if err == nil {
		err = errors.Join(waits.SendMsg(wrapperspb.Bytes(nil)), waits.CloseSend())
	}
	if err != nil {
		t.Fatal(err)
	}
	// The server reads a connection in order.
	if _, err := call(within(t, 10*time.Second), conn, echo, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop returned %v", err)
	}
	if err := waits.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// TestStopBeforeServe stops a server that never served, and one whose listener
// comes too late.
func TestStopBeforeServe(t *testing.T) {
	t.Parallel()
	s, err := frames.New(frames.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); !errors.Is(err, frames.ErrStopped) {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is open")
	}
}

// TestRestarts replaces a server fifty times under load: no call is lost.
func TestRestarts(t *testing.T) {
	t.Parallel()
	const restarts = 50
	begin := func() (*frames.Server, string) {
		s, err := frames.New(frames.Options{Methods: methods()})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Serve(l) }()
		return s, l.Addr().String()
	}
	server, addr := begin()
	var now atomic.Value
	now.Store(addr)
	conn, err := grpc.NewClient("passthrough:///server", plaintext, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", now.Load().(string))
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var calls sync.WaitGroup
	var answered atomic.Int64
	end := make(chan struct{})
	for i := range 16 {
		calls.Go(func() {
			message := bytes.Repeat([]byte{byte(i)}, 10*i)
			for {
				select {
				case <-end:
					return
				default:
				}
				if answer, err := call(within(t, time.Minute), conn, echo, message); err != nil || !bytes.Equal(answer, message) {
					t.Errorf("a call was lost: %v", err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range restarts {
		before := answered.Load()
		eventually(t, func() bool { return answered.Load() > before+16 || t.Failed() })
		next, addr := begin()
		now.Store(addr)
		if err := server.Stop(within(t, 30*time.Second)); err != nil {
			t.Error(err)
		}
		server = next
	}
	close(end)
	calls.Wait()
	_ = conn.Close()
	if err := server.Stop(within(t, 30*time.Second)); err != nil {
		t.Error(err)
	}
	t.Logf("%d calls, %d restarts", answered.Load(), restarts)
}

// TestAdmitHangs has a server whose Admit hangs: the timeouts of other connections hold, and
// its own one ends when the time to drain is over.
func TestAdmitHangs(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	entered := make(chan struct{})
	p := serve(t, frames.Options{HandshakeTimeout: 50 * time.Millisecond, Admit: func(*frames.Call) {
		entered <- struct{}{}
		<-hung
	}})
	w := p.wire(t)
	w.check(w.call(1, echo, 1))
	<-entered
	if _, err := p.bare(t).ReadFrame(); !errors.Is(err, io.EOF) {
		t.Errorf("a silent connection beside it: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(hung)
	eventually(t, func() bool { return p.Stats().Connections == 0 })
}
