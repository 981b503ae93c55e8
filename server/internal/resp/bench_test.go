package resp

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/engine/memengine"
)

// BenchmarkThrottle answers pipelines without a network, on the memory store.
func BenchmarkThrottle(b *testing.B) {
	benchmark(b, bulks("CL.THROTTLE", "user42", "99", "100000", "60"))
}

// BenchmarkTake is BenchmarkThrottle for the limits of WEIR.TAKE.
func BenchmarkTake(b *testing.B) {
	b.Run("one limit", func(b *testing.B) { benchmark(b, bulks("WEIR.TAKE", "user42", "100000/min")) })
	b.Run("two limits", func(b *testing.B) {
		benchmark(b, bulks("WEIR.TAKE", "user42", "100000/min", "AND", "user42", "1000000/day"))
	})
}

func benchmark(b *testing.B, command string) {
	for name, depth := range map[string]int{"alone": 1, "pipeline of 64": 64} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, Options{Taker: memengine.New(memengine.Options{})})
			c := newSession(s, nopConn{})
			input := strings.Repeat(command, depth)
			b.ReportAllocs()
			for n := 0; n < b.N; n += depth {
				c.room()
				c.in = append(c.in, input...)
				c.answer()
				c.flush()
			}
		})
	}
}

// BenchmarkDistinctLimits has each command bring along another one of so many limits.
func BenchmarkDistinctLimits(b *testing.B) {
	for _, n := range []int{1, 1000, 20_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := newSession(newServer(b, Options{Taker: memengine.New(memengine.Options{})}), nopConn{})
			commands := make([]string, n)
			for i := range commands {
				commands[i] = bulks("WEIR.TAKE", "user42", strconv.Itoa(100_000+i)+"/min")
			}
			i := 0
			for b.Loop() {
				c.room()
				c.in = append(c.in, commands[i%n]...)
				c.answer()
				c.flush()
				i++
			}
		})
	}
}

// BenchmarkConnection asks without a pipeline, with held reads as connections of the system have
// them and with ordinary ones. The client's part is in the figures, too.
func BenchmarkConnection(b *testing.B) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"held":     plain,
		"ordinary": func(c net.Conn) net.Conn { return struct{ net.Conn }{c} },
	} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, Options{Taker: memengine.New(memengine.Options{})})
			address := listen(b, s, wrap)
			command := []byte(bulks("CL.THROTTLE", "user42", "99", "100000", "60"))
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				answer := make([]byte, 256)
				for pb.Next() {
					_, err := conn.Write(command)
					if err == nil {
						_, err = conn.Read(answer)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
