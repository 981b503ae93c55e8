package frames_test

import (
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/server/internal/frames"
)

// BenchmarkIdle reports the memory of a connection that has had a call, clients' side
// in plain text included: go test -bench Idle -benchtime 10000x. With TLS the clients'
// side has about half of it.
func BenchmarkIdle(b *testing.B) {
	cert, pool := certificate(b)
	secret := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": secret} {
		b.Run(name, func(b *testing.B) {
			p := serve(b, frames.Options{TLS: config})
			before := memory()
			for range b.N {
				nc, err := net.Dial("tcp", p.addr)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = nc.Close() })
				if config != nil {
					nc = tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
				}
				idle(b, nc)
			}
			time.Sleep(10 * time.Second) // until connections give their buffers back
			b.ReportMetric(float64(memory()-before)/float64(b.N), "B/conn")
		})
	}
}

// idle calls once.
func idle(b *testing.B, nc net.Conn) {
	w := &wire{TB: b, nc: nc, Framer: http2.NewFramer(nc, nc)}
	w.must(io.WriteString(nc, http2.ClientPreface))
	w.check(w.WriteSettings())
	w.check(w.WriteSettingsAck())
	block := append([]byte{0x83, 0x86, 0x04, byte(len(echo))}, echo...)
	block = append(append(block, 0x0f, 0x10, 16), "application/grpc"...)
	w.check(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true}))
	w.check(w.WriteData(1, true, message(1)))
	for {
		if f, ok := w.next().(*http2.HeadersFrame); ok && f.StreamEnded() {
			return
		}
	}
}

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkCall calls through grpc-go's client, which costs more than the server.
func BenchmarkCall(b *testing.B) {
	conn := serve(b, frames.Options{}).dial(b, plaintext)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := call(b.Context(), conn, echo, []byte("a")); err != nil {
				b.Error(err)
			}
		}
	})
}
