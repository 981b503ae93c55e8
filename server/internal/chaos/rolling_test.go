package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // clients that heed it
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

const (
	mayTakeToEnd = 10 * time.Second
	mayLeave     = 5 // goroutines more than at the start
)

// A scale is how much TestRollingRestart does.
type scale struct {
	rpcs, calls float64 // a second, over gRPC and over HTTP
	restarts    int
	drain       time.Duration
}

func rolling() scale {
	if *full {
		return scale{2000, 500, 20, time.Second}
	}
	return scale{200, 50, 2, 300 * time.Millisecond}
}

// TestRollingRestart restarts two instances in turn, as a deployment does, while
// clients over gRPC that heed health, and over HTTP through nginx, ask at a steady
// rate. None of their requests fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	size := rolling()
	store := testserver.StartRedis(t)
	var fleet [2]*instance
	for i := range fleet {
		fleet[i] = serve(t, store.URL(), "--drain-delay", size.drain.String())
	}
	conn := dialFleet(t, fleet[0].grpc, fleet[1].grpc)
	client := newClient(t)
	nginx, url := startNginx(t, program, fleet[0].http, fleet[1].http)
	base := fleet[0].profile(t)
	files := fleet[0].files()

	ctx, enough := context.WithCancel(t.Context())
	heard := new(answered)
	loads := []*load{
		{Load: loadtest.Load{Ask: asksRPC(t, conn, heard), Rate: size.rpcs}},
		{Load: loadtest.Load{Ask: asksHTTP(t, client, url), Rate: size.calls}},
	}
	var running sync.WaitGroup
	for _, l := range loads {
		running.Go(func() { l.run(ctx, t) })
	}
	slowest := restart(t, fleet[:], heard, size.restarts)
	enough()
	running.Wait()

	r := row{
		fault:   fmt.Sprintf("SIGTERM, %d restarts of 2 instances at %.0f + %.0f requests/s", size.restarts, size.rpcs, size.calls),
		promise: "no failed request, exit within 10 s",
	}
	for _, l := range loads {
		r.measured += fmt.Sprintf("%d of %d failed, ", l.report.Failed, l.report.Requests())
		if l.report.Failed > 0 || l.report.Granted == 0 {
			r.fail(t, "%d failed, %d granted", l.report.Failed, l.report.Granted)
		}
	}
	r.measured += fmt.Sprintf("slowest exit %v", slowest.Round(time.Millisecond))
	if slowest > mayTakeToEnd {
		r.fail(t, "an exit took %v", slowest)
	}
	report(r)
	_ = conn.Close()
	client.CloseIdleConnections()
	nginx.Stop(syscall.SIGTERM) // it keeps connections
	fleet[0].restsAt(t, base, files)
}

// restart ends and starts the instances in turn, each once callers hear from the one
// before again, and returns how long the slowest took to end.
func restart(t *testing.T, fleet []*instance, heard *answered, times int) time.Duration {
	t.Helper()
	slowest := time.Duration(0)
	for n := range times {
		i := fleet[n%len(fleet)]
		time.Sleep(lead)
		slowest = max(slowest, i.Stop(syscall.SIGTERM))
		if code := i.Cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d\n%s", code, i.Stderr)
		}
		i.start(t)
		before := heard.from(i.grpc)
		i.until("callers hear from it", func() bool { return heard.from(i.grpc) > before })
	}
	return slowest
}

// restsAt demands that an instance gives back what it used under load. It has been
// started again since its goroutines and descriptors were counted, and keeps its
// connections to Redis.
func (i *instance) restsAt(t *testing.T, goroutines, files int) {
	t.Helper()
	const connections = 64 // to Redis, at most
	nowFiles, nowGoroutines := 0, 0
	i.until("at rest", func() bool {
		nowGoroutines, nowFiles = i.profile(t), i.files()
		return nowGoroutines <= goroutines+mayLeave && nowFiles <= files+connections
	})
	report(row{
		fault: "rest after load", promise: fmt.Sprintf("at most %d goroutines more, no descriptors but those of the pool", mayLeave),
		measured: fmt.Sprintf("goroutines %d, then %d; descriptors %d, then %d", goroutines, nowGoroutines, files, nowFiles),
	})
}

var total = regexp.MustCompile(`goroutine profile: total (\d+)`)

// profile is how many goroutines an instance has.
func (i *instance) profile(t *testing.T) int {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	_, body, err := get(t.Context(), client, "http://"+i.admin+"/debug/pprof/goroutine?debug=1")
	found := total.FindSubmatch(body)
	if err != nil || found == nil {
		t.Fatalf("profile: %v %s", err, body)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A load runs until it is told that it is enough.
type load struct {
	loadtest.Load
	report loadtest.Report
}

func (l *load) run(ctx context.Context, t *testing.T) {
	l.Duration, l.Callers = time.Hour, 64
	var err error
	if l.report, err = l.Run(ctx); err != nil {
		t.Error(err)
	}
}

// answered counts the answers of each instance.
type answered struct {
	mu    sync.Mutex
	count map[string]int
}

func (a *answered) from(address string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[address]
}

func (a *answered) note(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == nil {
		a.count = map[string]int{}
	}
	a.count[address]++
}

// asksRPC asks as Envoy does. What is on its way is waited for also at the end.
func asksRPC(t *testing.T, conn *grpc.ClientConn, heard *answered) func(context.Context, int) loadtest.Outcome {
	service := rlsv3.NewRateLimitServiceClient(conn)
	return func(_ context.Context, i int) loadtest.Outcome {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var who peer.Peer
		m, err := service.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
			Domain: "chaos", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
				Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "open", Value: strconv.Itoa(i % 100)}},
			}},
		}, grpc.Peer(&who))
		if err != nil || m.GetOverallCode() != rlsv3.RateLimitResponse_OK {
			t.Logf("rpc %d: %v %v", i, m, err)
			return loadtest.Failed
		}
		heard.note(who.Addr.String())
		return loadtest.Granted
	}
}

func asksHTTP(t *testing.T, client *http.Client, url string) func(context.Context, int) loadtest.Outcome {
	return func(_ context.Context, i int) loadtest.Outcome {
		status, body, err := get(context.Background(), client, fmt.Sprintf("%s/v1/auth?domain=chaos&open=%d", url, i%100))
		if err != nil || status != http.StatusNoContent {
			t.Logf("call %d: %d %s %v", i, status, body, err)
			return loadtest.Failed
		}
		return loadtest.Granted
	}
}

// dialFleet connects to all instances; calls go round those that are healthy.
func dialFleet(t *testing.T, addresses ...string) *grpc.ClientConn {
	t.Helper()
	fleet := manual.NewBuilderWithScheme("fleet")
	var state resolver.State
	for _, a := range addresses {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	fleet.InitialState(state)
	conn, err := grpc.NewClient("fleet:///weir", grpc.WithResolvers(fleet), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":"ratelimit"}}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const nginxConf = `pid nginx.pid;
error_log error.log warn;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  upstream weir {
    server %s max_fails=0;
    server %s max_fails=0;
    keepalive 32;
  }
  server {
    listen %s;
    location / {
      proxy_pass http://weir;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
}
`

// startNginx runs nginx before two instances and returns it and its URL.
func startNginx(t *testing.T, program, first, second string) (*process, string) {
	t.Helper()
	prefix, addr := t.TempDir(), testserver.FreeAddr(t)
	path := filepath.Join(prefix, "nginx.conf")
	if err := os.WriteFile(path, fmt.Appendf(nil, nginxConf, first, second, addr), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, program, "-p", prefix, "-c", path, "-e", "error.log", "-g", "daemon off;")
	client := newClient(t)
	p.until("nginx answers", func() bool {
		_, _, err := get(t.Context(), client, "http://"+addr+"/healthz")
		return err == nil
	})
	return p, "http://" + addr
}
