package e2e

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sinkVariable makes the test program serve as a sink.
const sinkVariable = "WEIR_TEST_SINK"

// startSink starts a process that refuses every HTTP request and gRPC call and does
// nothing else.
func startSink(t *testing.T) *weir {
	t.Helper()
	return listening(start(t, []string{sinkVariable + "=1"}, os.Args[0]), false)
}

// serveSink serves as a sink until the process is ended.
func serveSink() int {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		slog.Error(err.Error())
		return 1
	}
	rpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		slog.Error(err.Error())
		return 1
	}
	fmt.Printf("http %s\ngrpc %s\n", web.Addr(), rpc.Addr())
	calls := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.InvalidArgument, "") }))
	requests := &http.Server{
		ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > messageBytes {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, messageBytes))
			w.WriteHeader(http.StatusTooManyRequests)
		}),
	}
	go func() { _ = requests.Serve(web) }()
	_ = calls.Serve(rpc)
	return 0
}
