package testserver

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Free ports lie below those that a kernel hands to outgoing connections, so that a server that
// stopped finds its port free again. Those of Redis are apart, with those of cluster buses, 10000
// above them.
const (
	firstPort, lastPort   = 10_000, 21_999
	firstOther, lastOther = 22_000, 31_999
)

// given are the addresses of FreeAddr, some of which are listened at only later.
var given sync.Map

// FreeAddr returns an address, host and port, at which nobody listens and which no other test of
// the process was given.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t, firstOther, lastOther)))
		if _, taken := given.LoadOrStore(addr, t); !taken {
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// freePort returns a free port of a range.
func freePort(t testing.TB, first, last int) int {
	t.Helper()
	for range 100 {
		port := first + rand.IntN(last-first+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("no free port in %d … %d", first, last)
	return 0
}
