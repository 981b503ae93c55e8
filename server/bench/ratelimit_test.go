package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkRateLimit asks weir serve and envoyproxy/ratelimit, if it is installed, both with one rules
// file and a Redis of their own, for decisions over gRPC. It reports the CPU time of the server and of
// its Redis.
func BenchmarkRateLimit(b *testing.B) {
	type contestant struct {
		name   string
		redis  *server
		server listeners
	}
	contestants := []contestant{{name: "weir", redis: startServer(b)}, {name: "envoyproxy ratelimit", redis: startServer(b)}}
	contestants[0].server = startWeir(b, "--store", "redis://"+contestants[0].redis.Addr())
	contestants[1].server = startRatelimit(b, contestants[1].redis.Addr())
	granted, refused := demoMessage("granted", "u1"), demoMessage("refused", "u1")
	for _, connections := range []int{2, 16} {
		for _, w := range []struct {
			name    string
			message func(int) []byte
		}{
			{"one key", func(int) []byte { return granted }},
			{"100 000 keys", func(i int) []byte { return demoMessage("granted", fmt.Sprint("u", i*7919%100_000)) }},
			{"refused", func(int) []byte { return refused }},
		} {
			for _, c := range contestants {
				if c.server.pid == 0 {
					continue
				}
				b.Run(fmt.Sprintf("load=%d connections, 256 calls/work=%s/limiter=%s", connections, w.name, c.name), func(b *testing.B) {
					before := c.redis.spent(b)
					calls(b, c.server.pid, c.server.grpc, connections, 256/connections, w.message)
					b.ReportMetric(micros(c.redis.spent(b).cpu-before.cpu)/float64(b.N), "redis-µs/op")
				})
			}
		}
	}
}

// startRatelimit starts envoyproxy/ratelimit with its cache of refusals and its pipelines, which it
// does not have by default, and stops it with the benchmark.
func startRatelimit(b *testing.B, redis string) (l listeners) {
	b.Helper()
	program := installed(b, "bin", "service_cmd")
	if program == "" {
		return listeners{}
	}
	root := b.TempDir()
	rules := filepath.Join(root, "ratelimit", "config", "rules.yaml")
	if err := os.MkdirAll(filepath.Dir(rules), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(rules, []byte(rulesFile), 0o600); err != nil {
		b.Fatal(err)
	}
	var ports [3]string
	for i := range ports {
		_, ports[i], _ = net.SplitHostPort(testserver.FreeAddr(b))
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "USE_STATSD=false", "LOG_LEVEL=error",
		"LOCAL_CACHE_SIZE_IN_BYTES=10000000", "REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=8",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT="+ports[0], "GRPC_PORT="+ports[1], "DEBUG_PORT="+ports[2])
	testserver.Start(b, cmd)
	l.grpc, l.pid = "127.0.0.1:"+ports[1], cmd.Process.Pid
	await(b, l.grpc)
	return l
}
