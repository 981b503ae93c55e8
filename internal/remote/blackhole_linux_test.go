package remote_test

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/remote"
)

// hole returns an address at which connections are neither made nor refused: its
// queue is full.
func hole(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// BenchmarkBlackHole asks a store to which no connection can be made and reports
// the longest call.
func BenchmarkBlackHole(b *testing.B) {
	taker := wrap(b, overRedis(b, hole(b)), remote.Options{})
	limit := weir.PerDay(1_000_000_000).MustCompile()
	longest := time.Duration(0)
	for b.Loop() {
		began := time.Now()
		if a := take(taker, weir.Charge{Key: "k", Limit: limit, Cost: 1}); !a.Allowed() {
			b.Fatalf("%+v, %v", a.Decisions, a.Err)
		}
		longest = max(longest, time.Since(began))
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}
