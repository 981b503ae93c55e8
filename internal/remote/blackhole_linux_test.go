package remote_test

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
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

// TestBlackHole: a store to which no connection can be made is soon called no more.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	taker := wrap(t, overRedis(t, hole(t)), remote.Options{})
	const calls = 200
	for range calls {
		a := take(taker, weir.Charge{Key: "k", Limit: weir.PerDay(1_000_000).MustCompile(), Cost: 1})
		if !a.Allowed() || a.Decisions[0].Source != acts.SourceFallback {
			t.Fatalf("%+v, %v", a.Decisions, a.Err)
		}
	}
	if s := taker.Stats().Calls; s.Outages != 1 || s.Batches > calls/10 {
		t.Errorf("%d outages, %d calls of the store", s.Outages, s.Batches)
	}
}
