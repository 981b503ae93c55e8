package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

// A respServer is a process that answers one command.
type respServer struct {
	name, address string
	pid           int
	command       string
}

// BenchmarkRESP sends commands in Redis's protocol, one at a time and 64 together, to weir serve
// on its store in memory and to a Redis that counts. It reports the CPU time of the server.
func BenchmarkRESP(b *testing.B) {
	for _, s := range []respServer{startWeir(b), startCounter(b)} {
		b.Run("limiter="+s.name, func(b *testing.B) {
			for _, load := range []struct{ connections, together int }{{8, 1}, {64, 1}, {4, 64}} {
				b.Run(fmt.Sprintf("connections=%d/pipeline=%d", load.connections, load.together), func(b *testing.B) {
					s.answer(b, load.connections, load.together)
				})
			}
		})
	}
}

func bulk(words ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(w), w)
	}
	return text.String()
}

// startWeir builds weir, serves, and stops it with the benchmark.
func startWeir(b *testing.B) respServer {
	b.Helper()
	program := filepath.Join(b.TempDir(), "weir")
	build := exec.Command("go", "build", "-o", program, "./cmd/weir")
	build.Dir = ".." // it is of another module, which the workspace of the repository completes
	build.Env = append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build weir: %v\n%s", err, out)
	}
	weir := exec.Command(program, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off", "--resp", "127.0.0.1:0", "--log-level", "warn")
	weir.Stderr = os.Stderr
	out, err := weir.StdoutPipe()
	if err == nil {
		err = weir.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = weir.Process.Signal(os.Interrupt)
		_ = weir.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, found := strings.CutPrefix(lines.Text(), "resp "); found {
			go io.Copy(io.Discard, out)
			return respServer{"weir", address, weir.Process.Pid, bulk("CL.THROTTLE", "user:42", "999999999", "1000000000", "3600")}
		}
	}
	b.Fatal("weir serve printed no address")
	return respServer{}
}

// startCounter starts a Redis that increments.
func startCounter(b *testing.B) respServer {
	b.Helper()
	r := testserver.StartRedis(b)
	return respServer{"redis-server INCR", r.Addr(), r.Pid(), bulk("INCR", "user:42")}
}

// answer sends b.N commands over connections, so many of them together.
func (s *respServer) answer(b *testing.B, connections, together int) {
	var conns []net.Conn
	for range connections {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	request := []byte(strings.Repeat(s.command, together))
	before, err := loadtest.CPUOf(s.pid)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var all sync.WaitGroup
	each := (b.N + connections*together - 1) / (connections * together)
	for _, conn := range conns {
		all.Go(func() {
			in := bufio.NewReader(conn)
			for range each {
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				for range together {
					if err := readReply(in); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	after, err := loadtest.CPUOf(s.pid)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(micros(after-before)/float64(each*connections*together), "server-µs/op")
}

// readReply reads a number, or an array of them.
func readReply(in *bufio.Reader) error {
	lines := 1
	for ; lines > 0; lines-- {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch {
		case bytes.Equal(line, []byte("*5\r\n")):
			lines += 5
		case line[0] != ':':
			return fmt.Errorf("answered %q", line)
		}
	}
	return nil
}
