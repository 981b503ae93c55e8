package resp

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/memstore"
)

// BenchmarkThrottle answers pipelines without a network, on the memory store.
func BenchmarkThrottle(b *testing.B) {
	for name, depth := range map[string]int{"alone": 1, "pipeline of 64": 64} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, Options{Taker: memstore.New(memstore.Options{})})
			c := newSession(s, nopConn{})
			input := strings.Repeat(lines("*5 $11 CL.THROTTLE $6 user42 $2 99 $6 100000 $2 60"), depth)
			b.ReportAllocs()
			for n := 0; n < b.N; n += depth {
				c.makeRoom()
				c.in = append(c.in, input...)
				c.answer()
				c.flush()
			}
		})
	}
}
