package bench

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// rulesFile has one limit that no run exhausts, and one that is exhausted at once.
const rulesFile = `domain: demo
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 1000000000, unit: hour}
  - key: spent
    rate_limit: {requests_per_unit: 1, unit: day}
`

// token is what callers show to the server that wants one.
const token = "0123456789abcdef0123456789abcdef"

// BenchmarkListeners asks weir serve, on its store in memory, for decisions on one key through each
// listener, a Redis to count, and throttlecrab, if it is installed, for decisions. It reports the
// CPU time of the server.
func BenchmarkListeners(b *testing.B) {
	counter := testserver.StartRedis(b)
	weir, crab := startWeir(b), startThrottlecrab(b)
	ample, tight := []string{"999999999", "1000000000", "3600"}, []string{"0", "1", "86400"}
	for _, load := range []struct{ connections, together int }{{4, 64}, {64, 1}, {8, 1}} {
		for _, c := range []struct {
			limiter, work, address, command string
			pid                             int
		}{
			{"weir", "granted", weir.resp, bulk(append([]string{"CL.THROTTLE", "user:42"}, ample...)...), weir.pid},
			{"throttlecrab", "granted", crab.resp, bulk("THROTTLE", "user:42", "999999", "100000000", "60"), crab.pid},
			{"INCR of Redis", "granted", counter.Addr(), bulk("INCR", "user:42"), counter.Pid()},
			{"weir", "refused", weir.resp, bulk(append([]string{"CL.THROTTLE", "spent:42"}, tight...)...), weir.pid},
		} {
			if c.pid == 0 {
				continue
			}
			b.Run(door("RESP", fmt.Sprintf("%d connections, %d together", load.connections, load.together), c.work, c.limiter), func(b *testing.B) {
				command(b, c.pid, c.address, c.command, load.connections, load.together)
			})
		}
	}
	for _, work := range []string{"granted", "refused"} {
		same := demoMessage(work, "u1")
		b.Run(door("gRPC", "2 connections, 256 calls", work, "weir"), func(b *testing.B) {
			calls(b, weir.pid, weir.grpc, 2, 128, func(int) []byte { return same })
		})
		b.Run(door("gRPC", "2 connections, 256 calls, none like another", work, "weir"), func(b *testing.B) {
			calls(b, weir.pid, weir.grpc, 2, 128, func(i int) []byte { return numbered(demoMessage(work, "u1"), i) })
		})
	}
	benchmarkHTTP(b, weir, crab)
}

// door names a benchmark of a listener.
func door(listener, load, work, limiter string) string {
	return fmt.Sprintf("listener=%s/load=%s/work=%s/limiter=%s", listener, load, work, limiter)
}

// demoMessage returns a call about a user of the domain demo, or about one whose limit is spent,
// behind the five bytes that gRPC puts before a message.
func demoMessage(work, value string) []byte {
	key := map[string]string{"granted": "user", "refused": "spent"}[work]
	entry := field(field(nil, 1, key), 2, value)
	m := field(field(nil, 1, "demo"), 2, string(field(nil, 1, string(entry))))
	return append([]byte{0, 0, 0, 0, byte(len(m))}, m...)
}

// field appends a field of text to a message of protocol buffers.
func field(m []byte, number byte, text string) []byte {
	return append(append(m, number<<3|2, byte(len(text))), text...)
}

// numbered makes a message another one, by a field that has no meaning.
func numbered(m []byte, i int) []byte {
	m = binary.LittleEndian.AppendUint32(append(m, 15<<3|5), uint32(i))
	m[4] = byte(len(m) - 5)
	return m
}

// benchmarkHTTP asks for decisions over HTTP/1.1, in turns.
func benchmarkHTTP(b *testing.B, weir, crab listeners) {
	secret := filepath.Join(b.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
		b.Fatal(err)
	}
	guarded := startWeir(b, "--http-token-file", secret)
	authorization := []string{"-H", "Authorization: Bearer " + token}
	get, act := "/v1/auth?domain=demo&", `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"u1"}]}]}`
	for _, connections := range []string{"64", "8"} {
		for _, c := range []struct {
			listener, work, limiter string
			server                  listeners
			path                    string
			body                    string // of a POST; empty: GET
			fields                  []string
		}{
			{"HTTP GET", "granted", "weir", weir, get + "user=u1", "", nil},
			{"HTTP GET", "refused", "weir", weir, get + "spent=u1", "", nil},
			{"HTTP GET, a token", "granted", "weir", guarded, get + "user=u1", "", authorization},
			{"HTTP POST", "granted", "weir", weir, "/v1/take", act, nil},
			{"HTTP POST", "granted", "throttlecrab", crab, "/throttle", `{"key":"user:42","max_burst":999999,"count_per_period":100000000,"period":60}`, nil},
			{"HTTP POST, a token", "granted", "weir", guarded, "/v1/take", act, authorization},
		} {
			if c.server.pid == 0 {
				continue
			}
			args := append([]string{"--h1", "-c", connections, "http://" + c.server.http + c.path}, c.fields...)
			if c.body != "" {
				body := filepath.Join(b.TempDir(), "act")
				if err := os.WriteFile(body, []byte(c.body), 0o600); err != nil {
					b.Fatal(err)
				}
				args = append(args, "-d", body, "-H", "content-type: application/json")
			}
			b.Run(door(c.listener, connections+" connections", c.work, c.limiter), func(b *testing.B) { h2load(b, c.server.pid, args...) })
		}
	}
}

// installed returns where scripts/promises.sh installs a program, or nothing if it is not there.
func installed(b *testing.B, path ...string) string {
	b.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(append([]string{cache, "weir", "promises"}, path...)...)
	if _, err := os.Stat(program); err != nil {
		b.Log("left out: ", err)
		return ""
	}
	return program
}

// startThrottlecrab starts throttlecrab, and stops it with the benchmark. Without it, the listeners
// have no process.
func startThrottlecrab(b *testing.B) (l listeners) {
	b.Helper()
	program := installed(b, "crab", "bin", "throttlecrab-server")
	if program == "" {
		return listeners{}
	}
	l.http, l.resp = testserver.FreeAddr(b), testserver.FreeAddr(b)
	httpHost, httpPort, _ := net.SplitHostPort(l.http)
	respHost, respPort, _ := net.SplitHostPort(l.resp)
	crab := exec.Command(program, "--http", "--http-host", httpHost, "--http-port", httpPort,
		"--redis", "--redis-host", respHost, "--redis-port", respPort, "--store", "adaptive", "--log-level", "error")
	testserver.Start(b, crab)
	l.pid = crab.Process.Pid
	await(b, l.http, l.resp)
	return l
}

// await waits until something listens at the addresses.
func await(b *testing.B, addresses ...string) {
	for _, address := range addresses {
		for {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
				break
			}
			if b.Context().Err() != nil {
				b.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// spent runs work of b.N decisions and reports what it costs a process.
func spent(b *testing.B, pid int, work func()) {
	before, err := cpuOf(pid)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	work()
	b.StopTimer()
	after, err := cpuOf(pid)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(micros(after-before)/float64(b.N), "server-µs/op")
}

// h2load makes b.N requests with the program of that name.
func h2load(b *testing.B, pid int, args ...string) {
	program, err := exec.LookPath("h2load")
	if err != nil {
		b.Skip(err)
	}
	args = append([]string{"-n", strconv.Itoa(max(b.N, 64))}, args...)
	spent(b, pid, func() {
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil || !bytes.Contains(out, []byte(" 0 errored, 0 timeout")) {
			b.Fatalf("h2load: %v\n%s", err, out)
		}
	})
}

func bulk(words ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(w), w)
	}
	return text.String()
}

// listeners are the addresses of a process.
type listeners struct {
	http, grpc, resp string
	pid              int
}

// startWeir builds weir, serves, and stops it with the benchmark.
func startWeir(b *testing.B, flags ...string) listeners { return startWeirBy(b, rulesFile, flags...) }

// startWeirBy is startWeir by other rules.
func startWeirBy(b *testing.B, text string, flags ...string) (l listeners) {
	b.Helper()
	program, rules := filepath.Join(b.TempDir(), "weir"), filepath.Join(b.TempDir(), "rules.yaml")
	build := exec.Command("go", "build", "-o", program, "./cmd/weir")
	build.Dir = ".." // it is of another module, which the workspace of the repository completes
	build.Env = append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build weir: %v\n%s", err, out)
	}
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	weir := exec.Command(program, append([]string{
		"serve", "--config", rules, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--admin", "off", "--log-level", "warn",
	}, flags...)...)
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
	l.pid = weir.Process.Pid
	addresses := map[string]*string{"http": &l.http, "grpc": &l.grpc, "resp": &l.resp}
	lines := bufio.NewScanner(out)
	for (l.http == "" || l.grpc == "" || l.resp == "") && lines.Scan() {
		if name, address, _ := strings.Cut(lines.Text(), " "); addresses[name] != nil {
			*addresses[name] = address
		}
	}
	if l.http == "" || l.grpc == "" || l.resp == "" {
		b.Fatalf("weir serve printed no addresses: %+v", l)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return l
}

// over shares b.N calls among connections, each of which use gets in a goroutine of its own.
func over(b *testing.B, pid int, address string, connections int, use func(conn net.Conn, n int) error) {
	var conns []net.Conn
	for range connections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	spent(b, pid, func() {
		var all sync.WaitGroup
		for c, conn := range conns {
			all.Go(func() {
				if err := use(conn, (b.N+c)/connections); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// command sends b.N commands over connections, so many of them together.
func command(b *testing.B, pid int, address, text string, connections, together int) {
	over(b, pid, address, connections, func(conn net.Conn, left int) error {
		in := bufio.NewReader(conn)
		for ; left > 0; left -= together {
			n := min(left, together)
			if _, err := io.WriteString(conn, strings.Repeat(text, n)); err != nil {
				return err
			}
			for range n {
				if err := readReply(in); err != nil {
					return err
				}
			}
		}
		return nil
	})
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
