package promises

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// moduleVersion returns the version of a module in go.mod.
func moduleVersion(path string) string {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[len(f)-2] == path && strings.HasPrefix(f[len(f)-1], "v") {
			return f[len(f)-1]
		}
		if f := strings.Fields(line); len(f) > 1 && f[0] == path {
			return f[1]
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// Peers returns the limiters that scripts/promises.sh has installed into a folder, and names those
// that are missing there.
func Peers(folder string) (found []Limiter, missing []string) {
	found = goLibraries()
	add := func(l Limiter, needs ...string) {
		for _, path := range needs {
			if _, err := os.Stat(filepath.Join(folder, path)); err != nil {
				missing = append(missing, l.Name)
				return
			}
		}
		found = append(found, l)
	}
	python, node := filepath.Join(folder, "python/bin/python"), filepath.Join(folder, "node")
	limits := func(kind string) func(testing.TB, Setting, func(string) string) Target {
		return child(func(s Setting) *exec.Cmd {
			return exec.Command(python, "testdata/child.py", kind, s.Redis, strconv.Itoa(s.Count), strconv.Itoa(int(s.Period/time.Second)))
		})
	}
	add(Limiter{Name: "rate-limiter-flexible, Redis", Version: "11.4.0", Family: Window, Redis: true, Open: child(func(s Setting) *exec.Cmd {
		cmd := exec.Command("node", "testdata/child.js", s.Redis, strconv.Itoa(s.Count), strconv.Itoa(int(s.Period/time.Second)))
		cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(node, "node_modules"))
		return cmd
	})}, "node/node_modules/rate-limiter-flexible")
	add(Limiter{Name: "limits, fixed window, Redis", Version: "5.8.0", Family: Window, Redis: true, Open: limits("fixed")}, "python/bin/python")
	add(Limiter{Name: "limits, moving window, Redis", Version: "5.8.0", Family: Sliding, Redis: true, Open: limits("moving")}, "python/bin/python")
	add(Limiter{Name: "envoyproxy/ratelimit", Version: "3fb702589d36 (2026-01)", Family: Window, Redis: true, WholeSeconds: true, Open: envoyproxy(filepath.Join(folder, "bin/service_cmd"))}, "bin/service_cmd")
	add(Limiter{Name: "throttlecrab", Version: "0.4.40", Open: throttlecrab(filepath.Join(folder, "crab/bin/throttlecrab-server"))}, "crab/bin/throttlecrab-server")
	cell := filepath.Join(folder, "cell/release/libredis_cell.so")
	add(Limiter{Name: "redis-cell", Version: "0.2.2", Redis: true, RedisArgs: []string{"--loadmodule", cell}, Open: redisCell}, "cell/release/libredis_cell.so")
	limitador := func(storage string) func(testing.TB, Setting, func(string) string) Target {
		return child(func(s Setting) *exec.Cmd {
			return exec.Command(filepath.Join(folder, "limitador/release/child"), storage, s.Redis, strconv.Itoa(s.Count), strconv.Itoa(int(s.Period/time.Second)))
		})
	}
	add(Limiter{Name: "Limitador, memory", Version: "0.14.0", Family: Window, Open: limitador("memory")}, "limitador/release/child")
	add(Limiter{Name: "Limitador, Redis", Version: "0.14.0", Family: Window, Redis: true, Open: limitador("redis")}, "limitador/release/child")
	add(Limiter{Name: "Limitador, Redis behind its cache", Version: "0.14.0", Family: Window, Redis: true, Cached: true, Open: limitador("cached")}, "limitador/release/child")
	add(Limiter{Name: "gubernator, token bucket", Version: "2.21.0", Family: Window, Open: gubernator(filepath.Join(folder, "bin/gubernator"), "TOKEN_BUCKET")}, "bin/gubernator")
	add(Limiter{Name: "gubernator, leaky bucket", Version: "2.21.0", Open: gubernator(filepath.Join(folder, "bin/gubernator"), "LEAKY_BUCKET")}, "bin/gubernator")
	java := filepath.Join(folder, "bucket4j")
	add(Limiter{Name: "bucket4j, Redis", Version: "8.19.0", Redis: true, Open: child(func(s Setting) *exec.Cmd {
		return exec.Command("java", "-cp", java+":"+filepath.Join(java, "jars/*"), "Child", s.Redis, strconv.Itoa(s.Count), strconv.Itoa(s.Burst), strconv.Itoa(int(s.Period/time.Second)))
	})}, "bucket4j/Child.class")
	return found, missing
}

// A process is a limiter in another language that answers lines: "ID KEY COST" with "ID granted MS",
// "ID refused MS" or "ID error TEXT". KEY is in base64.
type process struct {
	in      io.Writer
	mu      sync.Mutex
	waiting map[string]chan string
	last    atomic.Int64
}

func child(command func(Setting) *exec.Cmd) func(testing.TB, Setting, func(string) string) Target {
	return func(t testing.TB, s Setting, _ func(string) string) Target {
		cmd := command(s)
		testserver.DieWithParent(cmd)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
		p := &process{in: in, waiting: map[string]chan string{}}
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatalf("%v: it ended", cmd)
		}
		go func() {
			for lines.Scan() {
				id, rest, _ := strings.Cut(lines.Text(), " ")
				p.mu.Lock()
				if w := p.waiting[id]; w != nil {
					w <- rest
				}
				delete(p.waiting, id)
				p.mu.Unlock()
			}
		}()
		return &library{take: p.take}
	}
}

func (p *process) take(key string, cost int, _ string) Answer {
	id := strconv.FormatInt(p.last.Add(1), 10)
	reply := make(chan string, 1)
	p.mu.Lock()
	p.waiting[id] = reply
	_, err := fmt.Fprintf(p.in, "%s %s %d\n", id, base64.StdEncoding.EncodeToString([]byte(key)), cost)
	p.mu.Unlock()
	if err != nil {
		return failed(err)
	}
	select {
	case text := <-reply:
		outcome, rest, _ := strings.Cut(text, " ")
		if outcome == "error" {
			return failed(errors.New(rest))
		}
		ms, _ := strconv.ParseFloat(rest, 64)
		return Answer{Granted: outcome == "granted", Retry: time.Duration(ms * 1e6)}
	case <-time.After(time.Minute):
		return failed(errors.New("no answer in a minute"))
	}
}

// listening returns once something accepts connections at an address.
func listening(t testing.TB, address string) {
	testserver.Eventually(t, "something listens at "+address, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func envoyproxy(program string) func(testing.TB, Setting, func(string) string) Target {
	return func(t testing.TB, s Setting, redirect func(string) string) Target {
		root := t.TempDir()
		rules := func(s Setting) {
			unit := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", day: "day"}[s.Period]
			text := fmt.Sprintf("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: %s, requests_per_unit: %d}\n", unit, s.Count)
			if err := errors.Join(os.MkdirAll(filepath.Join(root, "ratelimit/config"), 0o700), os.WriteFile(filepath.Join(root, "ratelimit/config/rules.yaml"), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		rules(s)
		cmd := exec.Command(program)
		address := testserver.FreeAddr(t)
		host, port, _ := net.SplitHostPort(address)
		_, other, _ := net.SplitHostPort(testserver.FreeAddr(t))
		_, third, _ := net.SplitHostPort(testserver.FreeAddr(t))
		cmd.Env = append(os.Environ(), "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+s.Redis,
			"USE_STATSD=false", "LOG_LEVEL=error", "HOST="+host, "PORT="+port, "GRPC_HOST="+host, "GRPC_PORT="+other, "DEBUG_HOST="+host, "DEBUG_PORT="+third)
		testserver.Start(t, cmd)
		listening(t, address)
		url := "http://" + redirect(address) + "/json"
		return &library{change: func(s Setting) { rules(s); time.Sleep(3 * time.Second) }, take: func(key string, cost int, _ string) Answer {
			name, _ := json.Marshal(key)
			status, _, text, err := post(url, fmt.Sprintf(`{"domain":"d","hitsAddend":%d,"descriptors":[{"entries":[{"key":"k","value":%s}]}]}`, cost, name))
			if err != nil {
				return failed(err)
			}
			var answer struct {
				Statuses []struct {
					DurationUntilReset string `json:"durationUntilReset"`
				} `json:"statuses"`
			}
			if err := json.Unmarshal(text, &answer); err != nil || status != 200 && status != 429 {
				return failed(fmt.Errorf("%d %s", status, text))
			}
			a := Answer{Granted: status == 200, Retry: -1}
			if len(answer.Statuses) > 0 {
				if d, err := time.ParseDuration(answer.Statuses[0].DurationUntilReset); err == nil {
					a.Retry = d
				}
			}
			return a
		}}
	}
}

func throttlecrab(program string) func(testing.TB, Setting, func(string) string) Target {
	return func(t testing.TB, s Setting, redirect func(string) string) Target {
		address := testserver.FreeAddr(t)
		host, port, _ := net.SplitHostPort(address)
		testserver.Start(t, exec.Command(program, "--redis", "--redis-host", host, "--redis-port", port, "--log-level", "error"))
		listening(t, address)
		c := respClient(t, redirect(address))
		return &library{change: func(n Setting) { s = n }, take: func(key string, cost int, _ string) Answer {
			n, err := c.Do(background, "THROTTLE", key, s.Burst, s.Count, int(s.Period/time.Second), cost).Int64Slice()
			if err != nil || len(n) < 5 {
				return failed(fmt.Errorf("%v: %w", n, err))
			}
			return Answer{Granted: n[0] == 1, Retry: time.Duration(n[4]) * time.Second}
		}}
	}
}

// redisCell is a module of Redis: its users send the command to Redis.
func redisCell(t testing.TB, s Setting, _ func(string) string) Target {
	c := respClient(t, s.Redis)
	return &library{change: func(n Setting) { s = n }, take: func(key string, cost int, _ string) Answer {
		return throttle(c, s, key, cost, "")
	}}
}

func gubernator(program, algorithm string) func(testing.TB, Setting, func(string) string) Target {
	return func(t testing.TB, s Setting, redirect func(string) string) Target {
		address, other, members := testserver.FreeAddr(t), testserver.FreeAddr(t), testserver.FreeAddr(t)
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "GUBER_HTTP_ADDRESS="+address, "GUBER_GRPC_ADDRESS="+other, "GUBER_ADVERTISE_ADDRESS="+other,
			"GUBER_MEMBERLIST_ADDRESS="+members, "GUBER_MEMBERLIST_BIND_ADDRESS="+members, "GUBER_MEMBERLIST_KNOWN_NODES="+members, "GUBER_LOG_LEVEL=error", "OTEL_TRACES_EXPORTER=none")
		testserver.Start(t, cmd)
		listening(t, address)
		url := "http://" + redirect(address) + "/v1/GetRateLimits"
		take := func(key string, cost int, _ string) Answer {
			name, _ := json.Marshal(key)
			burst := 0
			if algorithm == "LEAKY_BUCKET" {
				burst = s.Burst
			}
			status, _, text, err := post(url, fmt.Sprintf(`{"requests":[{"name":"n","uniqueKey":%s,"hits":"%d","limit":"%d","duration":"%d","algorithm":%q,"burst":"%d"}]}`,
				name, cost, s.Count, s.Period.Milliseconds(), algorithm, burst))
			if err != nil {
				return failed(err)
			}
			var answer struct {
				Responses []struct {
					Status, Error string
					Reset         string `json:"reset_time"`
				}
			}
			if err := json.Unmarshal(text, &answer); err != nil || status != 200 || len(answer.Responses) != 1 || answer.Responses[0].Error != "" {
				return failed(fmt.Errorf("%d %s", status, text))
			}
			r := answer.Responses[0]
			a := Answer{Granted: r.Status != "OVER_LIMIT", Retry: -1}
			if ms, err := strconv.ParseInt(r.Reset, 10, 64); err == nil {
				a.Retry = time.Until(time.UnixMilli(ms))
			}
			return a
		}
		testserver.Eventually(t, "gubernator knows that it is alone", func() bool { return take("another", 0, "").Err == nil })
		return &library{change: func(n Setting) { s = n }, take: take}
	}
}
