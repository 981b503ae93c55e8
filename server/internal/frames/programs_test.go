package frames_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/frames"
)

const nginxConf = `
daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors info;
events {}
http {
  access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi; client_max_body_size 10m;
  upstream weir { server %[2]s; keepalive 4; }
  server { listen unix:%[1]s/socket http2; location / { grpc_pass grpc://weir; } }
}
`

const haproxyConf = `
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend front
  bind unix@%[1]s/socket proto h2
  default_backend weir
backend weir
  server weir %[2]s proto h2
`

// TestProxies calls through nginx and haproxy.
func TestProxies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		conf string
		args []string
	}{
		"nginx":   {nginxConf, []string{"-p", "%s", "-c", "%s/conf"}},
		"haproxy": {haproxyConf, []string{"-f", "%s/conf", "-db"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := testserver.Require(t, name)
			budget := admission.NewBudget(64 << 20)
			p := serve(t, frames.Options{Hold: holds(budget)})
			dir, err := os.MkdirTemp("", "frames")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.WriteFile(filepath.Join(dir, "conf"), fmt.Appendf(nil, tc.conf, dir, p.addr), 0o600); err != nil {
				t.Fatal(err)
			}
			args := make([]string, len(tc.args))
			for i, arg := range tc.args {
				args[i] = strings.ReplaceAll(arg, "%s", dir)
			}
			testserver.Start(t, exec.Command(program, args...))
			testProxy(t, filepath.Join(dir, "socket"))
		})
	}
}

func testProxy(t *testing.T, socket string) {
	// The file is there a moment before the program listens.
	eventually(t, func() bool {
		nc, err := net.Dial("unix", socket)
		if err == nil {
			_ = nc.Close()
		}
		return err == nil
	})
	conn, err := grpc.NewClient("unix:"+socket, plaintext)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, size := range []int{0, 1, 1000, 20_000, 200_000} {
		message := bytes.Repeat([]byte{3}, size)
		answer, err := call(within(t, 10*time.Second), conn, echo, message)
		if err != nil || !bytes.Equal(answer, message) {
			t.Errorf("%d bytes: %d bytes came back, and %v", size, len(answer), err)
		}
	}
	if _, err := call(within(t, 10*time.Second), conn, reject, nil); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != awkward {
		t.Error(err)
	}
	message := bytes.Repeat([]byte{3}, 20_000)
	ctx := metadata.AppendToOutgoingContext(within(t, 10*time.Second), "x-large", strings.Repeat("a", 4000))
	if answer, err := call(ctx, conn, echo, message, grpc.UseCompressor(grpcgzip.Name)); err != nil || !bytes.Equal(answer, message) {
		t.Errorf("gzip: %d bytes came back, and %v", len(answer), err)
	}
	testDeadline(t, conn)
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := call(ctx, conn, wait, nil); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	stream := begin(t, within(t, 10*time.Second), conn, chat)
	for _, size := range []int{0, 1000, 200_000} {
		stream.send(make([]byte, size))
		stream.wants(make([]byte, size))
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	stream.ends(codes.OK, "")
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			for range 20 {
				if _, err := call(within(t, 10*time.Second), conn, echo, []byte("a")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
	testLarge(t, conn)
}

// prefixed is an empty BytesValue, and one of a byte, as gRPC sends messages.
const prefixed = "\x00\x00\x00\x00\x03\x0a\x01a"

// TestCurl speaks HTTP/2 with prior knowledge, gRPC and otherwise.
func TestCurl(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "curl")
	p := serve(t, frames.Options{})
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(prefixed), 0o600); err != nil {
		t.Fatal(err)
	}
	grpcType := []string{"-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@" + body}
	compressed := filepath.Join(t.TempDir(), "compressed")
	if err := os.WriteFile(compressed, pack(zipped(message(5000)[5:])), 0o600); err != nil {
		t.Fatal(err)
	}
	zippedType := append(slices.Clone(grpcType[:len(grpcType)-1]), "@"+compressed)
	for name, tc := range map[string]struct {
		path string
		args []string
		want []string
	}{
		"GET":        {"/", nil, []string{"HTTP/2 405", "allow: POST", "grpc-status: 12", "gRPC calls are POST requests\n"}},
		"HEAD":       {"/", []string{"--head"}, []string{"HTTP/2 405"}},
		"other type": {echo, []string{"-d", strings.Repeat("a", 100_000)}, []string{"HTTP/2 415", "grpc-status: 3", "the content-type of gRPC calls is application/grpc\n"}},
		"call":       {echo, grpcType, []string{"HTTP/2 200", "grpc-status: 0", prefixed}},
		"failure":    {reject, grpcType, []string{"HTTP/2 200", "grpc-status: 9", "grpc-message: 50 %25 of %C3%84", "x-note: rejected"}},
		"gzip":       {echo, append([]string{"-H", "grpc-encoding: gzip"}, zippedType...), []string{"HTTP/2 200", "grpc-encoding: gzip", "grpc-status: 0"}},
		"deadline":   {wait, append([]string{"-H", "grpc-timeout: 50m"}, grpcType...), []string{"HTTP/2 200", "grpc-status: 4"}},
		"stream":     {chat, append([]string{"-H", "x-large: " + strings.Repeat("a", 4000)}, grpcType...), []string{"HTTP/2 200", "grpc-status: 0", prefixed}},
		"unknown":    {"/test.Unary/Unknown", grpcType, []string{"HTTP/2 200", "grpc-status: 12"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--http2-prior-knowledge", "-s", "-S", "-i", "-m", "10", "http://" + p.addr + tc.path}, tc.args...)
			out, err := exec.Command(program, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q lacks %q", out, want)
				}
			}
		})
	}
}

// TestNghttp2 calls with the programs of nghttp2.
func TestNghttp2(t *testing.T) {
	t.Parallel()
	p := serve(t, frames.Options{})
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(prefixed), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-H", "content-type: application/grpc", "-H", "te: trailers", "-d", body}
	for _, tc := range []struct {
		program, method string
		args            []string
		want            []string
	}{
		{"h2load", echo, []string{"-n", "20000", "-c", "4", "-m", "100"}, []string{"20000 succeeded, 0 failed, 0 errored", "status codes: 20000 2xx"}},
		{"h2load", chat, []string{"-n", "5000", "-c", "4", "-m", "16"}, []string{"5000 succeeded, 0 failed, 0 errored", "status codes: 5000 2xx"}},
		{"nghttp", echo, []string{"-v", "-m", "10", "-w", "1"}, []string{":status: 200", "grpc-status: 0"}},
		{"nghttp", chat, []string{"-v", "-m", "10", "-w", "1"}, []string{":status: 200", "grpc-status: 0"}},
		{"nghttp", wait, []string{"-v", "-H", "grpc-timeout: 50m"}, []string{":status: 200", "grpc-status: 4"}},
	} {
		t.Run(tc.program+tc.method, func(t *testing.T) {
			t.Parallel()
			path := testserver.Require(t, tc.program)
			out, err := exec.Command(path, append(append(tc.args, args...), "http://"+p.addr+tc.method)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("lacks %q: %s", want, out)
				}
			}
		})
	}
}

// TestNode sends large messages at once with Node's HTTP/2, which grpc-js uses.
func TestNode(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "node")
	p := serve(t, frames.Options{Hold: holds(admission.NewBudget(64 << 20))})
	for _, calls := range []string{"16", "64"} {
		out, err := exec.CommandContext(within(t, time.Minute), program, "testdata/large.js", "http://"+p.addr, echo, calls, "250000").CombinedOutput()
		if err != nil || string(out) != calls+" answered\n" {
			t.Errorf("%v: %s", err, out)
		}
	}
}
