package frames_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/server/internal/frames"
)

var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

// TestGRPCGo calls every kind of method with grpc-go's client, in plain text, over
// TLS and with a client certificate.
func TestGRPCGo(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	secret := func(auth tls.ClientAuthType) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: auth, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	}
	for name, tc := range map[string]struct {
		server *tls.Config
		client credentials.TransportCredentials
		direct bool
	}{
		"plain":         {nil, insecure.NewCredentials(), false},
		"plain, direct": {nil, insecure.NewCredentials(), true},
		"TLS":           {secret(tls.NoClientCert), credentials.NewTLS(&tls.Config{RootCAs: pool}), false},
		"mTLS, direct": {
			secret(tls.RequireAndVerifyClientCert),
			credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, frames.Options{TLS: tc.server, Direct: tc.direct})
			conn := p.dial(t, grpc.WithTransportCredentials(tc.client))
			t.Run("echo", func(t *testing.T) { testEcho(t, conn) })
			t.Run("failures", func(t *testing.T) { testFailures(t, conn) })
			t.Run("deadline", func(t *testing.T) { testDeadline(t, conn) })
			t.Run("streams", func(t *testing.T) { testStreams(t, conn) })
			// A stream that its client has cancelled takes its slot until its handler returns.
			eventually(t, func() bool { return p.Stats().Open == 0 })
			t.Run("many", func(t *testing.T) { testMany(t, conn) })
		})
	}
}

func testEcho(t *testing.T, conn *grpc.ClientConn) {
	// The last one is as large as a message may be: its tag and length take 4 bytes.
	for _, size := range []int{0, 1, 100, 16000, 16384, 65535, 70000, 256<<10 - 4} {
		message := bytes.Repeat([]byte{7}, size)
		for range 3 {
			answer, err := call(within(t, 10*time.Second), conn, echo, message)
			if err != nil || !bytes.Equal(answer, message) {
				t.Fatalf("%d bytes: %d bytes came back, and %v", size, len(answer), err)
			}
		}
	}
}

func testFailures(t *testing.T, conn *grpc.ClientConn) {
	for _, tc := range []struct {
		method string
		size   int
		code   codes.Code
		text   string
	}{
		{reject, 0, codes.FailedPrecondition, awkward},
		{detail, 0, codes.FailedPrecondition, "a"},
		{crash, 0, codes.Internal, "the call failed; the log says why"},
		{silent, 0, codes.Internal, "the handler did not answer"},
		{"/test.Unary/Unknown", 0, codes.Unimplemented, "unknown method /test.Unary/Unknown"},
		{echo, 256 << 10, codes.ResourceExhausted, "a message of 262148 bytes: at most 262144 are taken"},
		{echo, 900 << 10, codes.ResourceExhausted, "at most 262144 are taken"},
	} {
		var trailer metadata.MD
		_, err := call(within(t, 10*time.Second), conn, tc.method, make([]byte, tc.size), grpc.Trailer(&trailer))
		s := status.Convert(err)
		if s.Code() != tc.code || !strings.Contains(s.Message(), tc.text) {
			t.Errorf("%s, %d bytes: %v", tc.method, tc.size, err)
		}
		if note := trailer.Get("x-note"); tc.method == reject && (len(note) != 1 || note[0] != "rejected") {
			t.Errorf("trailer %v", trailer)
		}
	}
}

func testDeadline(t *testing.T, conn *grpc.ClientConn) {
	begin := time.Now()
	_, err := call(within(t, 30*time.Millisecond), conn, wait, nil)
	if status.Code(err) != codes.DeadlineExceeded || time.Since(begin) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// testMany has a thousand calls in flight, several times.
func testMany(t *testing.T, conn *grpc.ClientConn) {
	var calls sync.WaitGroup
	for i := range 1000 {
		calls.Go(func() {
			message := bytes.Repeat([]byte{byte(i)}, i)
			for range 5 {
				if answer, err := call(within(t, 30*time.Second), conn, slow, message); err != nil || !bytes.Equal(answer, message) {
					t.Errorf("%d bytes: %d bytes came back, and %v", i, len(answer), err)
				}
			}
		})
	}
	calls.Wait()
}

func TestClientWithoutCertificate(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	p := serve(t, frames.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	}})
	conn := p.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))
	if _, err := call(within(t, 10*time.Second), conn, echo, nil); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// TestCancel sees the handler's context end when the client cancels, and when its
// connection closes.
func TestCancel(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{})
	for name, end := range map[string]func(context.CancelFunc, *grpc.ClientConn){
		"call":       func(cancel context.CancelFunc, _ *grpc.ClientConn) { cancel() },
		"connection": func(_ context.CancelFunc, conn *grpc.ClientConn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			conn := p.dial(t, plaintext)
			if _, err := call(within(t, 10*time.Second), conn, echo, nil); err != nil {
				t.Fatal(err)
			}
			before := p.Stats().Calls
			ctx, cancel := context.WithCancel(within(t, 10*time.Second))
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{}, wait)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(stream.SendMsg(&wrapperspb.BytesValue{}), stream.CloseSend()); err != nil {
				t.Fatal(err)
			}
			// The server has read the stream once it answers a later call.
			if _, err := call(ctx, conn, echo, nil); err != nil {
				t.Fatal(err)
			}
			end(cancel, conn)
			if err := stream.RecvMsg(&wrapperspb.BytesValue{}); status.Code(err) != codes.Canceled {
				t.Error(err)
			}
			eventually(t, func() bool { return p.Stats().Calls > before+1 })
			cancel()
		})
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it never came so far")
		}
	}
}

// TestMetadata sends as much metadata as the server takes, and much more.
func TestMetadata(t *testing.T) {
	t.Parallel()
	conn := serve(t, frames.Options{MaxHeaderList: 16 << 10}).dial(t, plaintext)
	for size, want := range map[int]codes.Code{15 << 10: codes.OK, 17 << 10: codes.Internal, 16 << 20: codes.Internal} {
		ctx := metadata.AppendToOutgoingContext(within(t, 10*time.Second), "x-large", strings.Repeat("a", size))
		// The client itself knows better than to send what it was told is too much.
		if _, err := call(ctx, conn, echo, []byte("a")); status.Code(err) != want {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := call(within(t, 10*time.Second), conn, echo, []byte("a")); err != nil {
		t.Error(err)
	}
}

// TestAdmit refuses calls before their message.
func TestAdmit(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{Admit: func(c *frames.Call) {
		if c.Header("authorization") != "Bearer a" {
			c.Fail(16, "a token is needed")
		}
	}})
	conn := p.dial(t, plaintext)
	for range 100 {
		if _, err := call(within(t, 10*time.Second), conn, echo, make([]byte, 100_000)); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(within(t, 10*time.Second), "authorization", "Bearer a")
	if _, err := call(ctx, conn, echo, make([]byte, 100_000)); err != nil {
		t.Error(err)
	}
}
