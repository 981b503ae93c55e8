package frames_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/server/internal/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Methods that the server under test has. Their messages are google.protobuf.BytesValue.
const (
	echo   = "/test.Unary/Echo"   // answers with the message
	count  = "/test.Unary/Count"  // answers with the message's size
	later  = "/test.Unary/Later"  // is left to Options.Gather, if there is one
	wait   = "/test.Unary/Wait"   // fails when its context ends, with what that says
	reject = "/test.Unary/Reject" // fails with the code 9, a text and a trailer
	detail = "/test.Unary/Detail" // fails with details
	crash  = "/test.Unary/Crash"  // panics
	slow   = "/test.Unary/Slow"   // answers with the message after 100 ms
	large  = "/test.Unary/Large"  // answers with 60 KB that are no message
	silent = "/test.Unary/Silent" // does not answer
)

// Streams that the server under test has, of the same messages.
const (
	chat  = "/test.Stream/Chat"  // answers each message with itself, and fails with the code 9 after the message "fail"
	once  = "/test.Stream/Once"  // answers one message, and waits until its context ends
	deaf  = "/test.Stream/Deaf"  // receives nothing, and waits until its context ends
	acks  = "/test.Stream/Acks"  // answers each message twice, again once the client has read it, and parts after "part"
	sink  = "/test.Stream/Sink"  // receives all messages
	burst = "/test.Stream/Burst" // sends a hundred messages of 60 KB
	fall  = "/test.Stream/Fall"  // panics after a message
)

const awkward = "50 % of ÄÖÜ\n"

func methods() map[string]frames.Handler {
	return map[string]frames.Handler{
		echo:  func(c *frames.Call) { c.Reply(append(c.Buffer(), c.Message()...)) },
		count: func(c *frames.Call) { c.Reply(binary.AppendUvarint([]byte{0x0a, 3}, uint64(len(c.Message())))) },
		later: func(c *frames.Call) {
			if !c.Later() {
				c.Reply(append(c.Buffer(), c.Message()...))
			}
		},
		wait: func(c *frames.Call) {
			c.Yield()
			<-c.Context().Done()
			err := c.Context().Err()
			c.Fail(map[error]uint32{context.Canceled: 1, context.DeadlineExceeded: 4}[err], err.Error())
		},
		reject: func(c *frames.Call) {
			c.SetTrailer("x-note", "rejected")
			c.Fail(9, awkward)
		},
		// The details are google.rpc.Status{Code: 9, Message: "a"}.
		detail: func(c *frames.Call) { c.FailWith(9, "b", []byte{8, 9, 18, 1, 'a'}) },
		crash:  func(*frames.Call) { panic("a test") },
		slow: func(c *frames.Call) {
			c.Yield()
			time.Sleep(100 * time.Millisecond)
			c.Reply(c.Message())
		},
		large:  func(c *frames.Call) { c.Reply(make([]byte, 60_000)) },
		silent: func(*frames.Call) {},
	}
}

func streams() map[string]frames.StreamHandler {
	return map[string]frames.StreamHandler{
		chat: func(s *frames.Stream) {
			for {
				m, err := s.Recv()
				if err == nil {
					err = s.Send(m)
				}
				switch failed := new(frames.Failure); {
				case errors.Is(err, io.EOF):
					return
				case errors.As(err, &failed):
					s.Fail(failed.Code, failed.Text)
					return
				case bytes.HasSuffix(m, []byte("fail")):
					s.SetTrailer("x-note", "rejected")
					s.Fail(9, awkward)
					return
				}
			}
		},
		once: func(s *frames.Stream) {
			m, err := s.Recv()
			if err == nil && s.Send(m) == nil {
				<-s.Context().Done()
			}
			s.Fail(map[error]uint32{context.Canceled: 1, context.DeadlineExceeded: 4}[s.Context().Err()], "ended")
		},
		deaf: func(s *frames.Stream) { <-s.Context().Done() },
		acks: func(s *frames.Stream) {
			for {
				m, err := s.Recv()
				if failed := new(frames.Failure); errors.As(err, &failed) {
					s.Fail(failed.Code, failed.Text)
				}
				if err != nil || s.Send(m) != nil {
					return
				}
				if bytes.HasSuffix(m, []byte("part")) {
					go s.Part()
					continue
				}
				s.Acknowledged() // the next one replaces it
				select {
				case <-s.Acknowledged():
					_ = s.Send(m)
				case <-s.Context().Done():
				}
			}
		},
		sink: func(s *frames.Stream) {
			for err := error(nil); err == nil; _, err = s.Recv() {
			}
		},
		burst: func(s *frames.Stream) {
			for range 100 {
				if err := s.Send(message(60_000)[5:]); err != nil {
					s.Fail(1, err.Error())
					return
				}
			}
		},
		fall: func(s *frames.Stream) {
			_ = s.Send(nil)
			panic("a test")
		},
	}
}

// A peer is a server under test.
type peer struct {
	*frames.Server
	addr string
}

// serve serves until the test ends. The options' Methods and Streams are added.
func serve(t testing.TB, o frames.Options) *peer {
	t.Helper()
	o.Methods, o.Streams = methods(), streams()
	server, err := frames.New(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(small{listener}) }()
	p := &peer{server, listener.Addr().String()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, frames.ErrStopped) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return p
}

// dial connects with grpc-go.
func (p *peer) dial(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call calls a method with bytes and returns the answer's.
func call(ctx context.Context, conn grpc.ClientConnInterface, method string, message []byte, options ...grpc.CallOption) ([]byte, error) {
	answer := new(wrapperspb.BytesValue)
	err := conn.Invoke(ctx, method, wrapperspb.Bytes(message), answer, options...)
	return answer.Value, err
}

// within bounds a test's context.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// certificate is one for 127.0.0.1 that signs itself, for servers and clients.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}
