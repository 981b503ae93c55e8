package promises

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

const version = "this tree"

// ours are the ways to use Weir.
func ours() []Limiter {
	return []Limiter{
		{Name: "Weir, library, memory", Version: version, IDs: true, Open: weirLibrary(weir.GCRA)},
		{Name: "Weir, library, Redis", Version: version, Redis: true, IDs: true, Open: weirLibrary(weir.GCRA)},
		{Name: "Weir, library, Redis, `sliding_log`", Version: version, Family: Sliding, Redis: true, IDs: true, Open: weirLibrary(weir.SlidingLog)},
		{Name: "Weir, HTTP, Redis", Version: version, Redis: true, IDs: true, Open: weirHTTP},
		{Name: "Weir, `CL.THROTTLE`, Redis", Version: version, Redis: true, IDs: true, Open: weirRESP},
	}
}

func limitOf(a weir.Algorithm, s Setting) weir.Limit {
	l := weir.Limit{Algorithm: a, Count: int64(s.Count), Period: s.Period}
	if a == weir.GCRA {
		l.Burst = int64(s.Burst)
	}
	return l
}

func weirLibrary(a weir.Algorithm) func(testing.TB, Setting, func(string) string) Target {
	return func(t testing.TB, s Setting, _ func(string) string) Target {
		var store weir.Taker = memstore.New(memstore.Options{})
		if s.Redis != "" {
			client := redis.NewClient(&redis.Options{Addr: s.Redis})
			inRedis, err := redisstore.New(client, redisstore.Options{
				OnOutage: func(*weir.Limit) redisstore.Policy { return redisstore.Local },
			})
			if err != nil {
				t.Fatal(err)
			}
			store = inRedis
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_ = inRedis.Stop(ctx)
				_ = client.Close()
			})
		}
		var limiter *weir.Limiter
		change := func(s Setting) {
			var err error
			if limiter, err = weir.NewLimiter(store, "api", limitOf(a, s)); err != nil {
				t.Fatal(err)
			}
		}
		change(s)
		return &library{change: change, take: func(key string, cost int, id string) Answer {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			var d weir.Decision
			var err error
			if id == "" {
				d, err = limiter.AllowN(ctx, key, int64(cost))
			} else {
				d, err = limiter.AllowOnce(ctx, key, int64(cost), id)
			}
			if err != nil {
				return failed(err)
			}
			return Answer{Granted: d.Allowed(), Retry: d.RetryAfter}
		}}
	}
}

// programs is the folder of the server, for TestMain to remove.
var programs string

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "promises")
	if err != nil {
		return "", err
	}
	programs = dir
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "weir")
	cmd := exec.Command("go", "build", "-o", program, "./server/cmd/weir")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS=", "GOWORK="+filepath.Join(root, "go.work"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// serve starts a server and returns it with the addresses of its listeners and its rules file.
func serve(t testing.TB, s Setting) (p *testserver.Process, listeners map[string]string, rules string) {
	t.Helper()
	program, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	rules = filepath.Join(t.TempDir(), "rules.yaml")
	writeRules(t, rules, s)
	store := "memory"
	if s.Redis != "" {
		store = "redis://" + s.Redis + "/0"
	}
	p = testserver.Start(t, exec.Command(program, "serve", "--config", rules, "--store", store,
		"--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "off"))
	listeners = map[string]string{}
	for len(listeners) < 3 {
		line, open := <-p.Lines
		name, address, found := strings.Cut(line, " ")
		if !open {
			t.Fatalf("the server ended: %s", p.Stderr)
		}
		if found {
			listeners[name] = address
		}
	}
	testserver.Eventually(t, "the server is ready", func() bool {
		r, err := http.Get("http://" + listeners["http"] + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return p, listeners, rules
}

func writeRules(t testing.TB, file string, s Setting) {
	t.Helper()
	text := fmt.Sprintf("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {algorithm: gcra, requests_per_unit: %d, period: %v, burst: %d}\n", s.Count, s.Period, s.Burst)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func weirHTTP(t testing.TB, s Setting, redirect func(string) string) Target {
	p, listeners, rules := serve(t, s)
	url := "http://" + redirect(listeners["http"]) + "/v1/take"
	ask := func(key string, cost int, id string) Answer {
		name, _ := json.Marshal(key)
		body := fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":%s}]}],"cost":%d`, name, cost)
		if id != "" {
			body += `,"id":"` + id + `"`
		}
		status, _, text, err := post(url, body+"}")
		if err != nil {
			return failed(err)
		}
		var answer struct {
			Allowed bool `json:"allowed"`
			Limits  []struct {
				RetryAfter *float64 `json:"retry_after_ms"`
			} `json:"limits"`
		}
		if err := json.Unmarshal(text, &answer); err != nil || len(answer.Limits) == 0 || status != 200 && status != 429 {
			return failed(fmt.Errorf("%d %s", status, text))
		}
		wait := time.Duration(-1)
		if ms := answer.Limits[0].RetryAfter; ms != nil {
			wait = time.Duration(*ms * 1e6)
		}
		return Answer{Granted: answer.Allowed, Retry: wait}
	}
	return &library{take: ask, change: func(s Setting) {
		const line = "are in force"
		before := strings.Count(p.Stderr.String(), line)
		writeRules(t, rules, s)
		testserver.Eventually(t, "the new rules are in force", func() bool { return strings.Count(p.Stderr.String(), line) > before })
	}}
}

// client repeats nothing by itself.
var client = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func post(url, body string) (status int, h http.Header, text []byte, err error) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.GetBody = nil
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, text, err
}

// respClient repeats nothing by itself.
func respClient(t testing.TB, address string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: address, Protocol: 2, MaxRetries: -1, DisableIdentity: true, ReadTimeout: 10 * time.Second, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// throttle asks with CL.THROTTLE.
func throttle(c *redis.Client, s Setting, key string, cost int, id string) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	command := []any{"CL.THROTTLE", key, s.Burst - 1, s.Count, int(s.Period / time.Second), cost}
	if id != "" {
		command = append(command, "ID", id)
	}
	n, err := c.Do(ctx, command...).Int64Slice()
	if err != nil || len(n) < 5 {
		return failed(fmt.Errorf("%v: %w", n, err))
	}
	return Answer{Granted: n[0] == 0, Retry: time.Duration(n[3]) * time.Second}
}

func weirRESP(t testing.TB, s Setting, redirect func(string) string) Target {
	_, listeners, _ := serve(t, s)
	c := respClient(t, redirect(listeners["resp"]))
	return &library{change: func(n Setting) { s = n }, take: func(key string, cost int, id string) Answer {
		return throttle(c, s, key, cost, id)
	}}
}
