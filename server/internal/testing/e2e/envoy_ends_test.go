package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	configv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// rulesFile writes rules to a file.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// connections limits new connections of TCP.
const connections = `
static_resources:
  listeners:
    - name: edge
      address: {socket_address: {address: 0.0.0.0, port_value: 8001}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.ratelimit
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit
                stat_prefix: edge
                domain: edge
                timeout: 5s
                descriptors: [{entries: [{key: listener, value: edge}]}]
                rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: weir}}}
            - name: envoy.filters.network.tcp_proxy
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
                stat_prefix: edge
                cluster: application
  clusters:
    - name: weir
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment: {cluster_name: weir, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: WEIR}}}]}]}
    - name: application
      type: STATIC
      load_assignment: {cluster_name: application, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: APPLICATION}}}]}]}
`

// TestEnvoyTCP limits connections by the filter of TCP.
func TestEnvoyTCP(t *testing.T) {
	t.Parallel()
	w := serve(t, rulesFile(t, "domain: edge\ndescriptors:\n  - {key: listener, rate_limit: {unit: year, requests_per_unit: 3}}\n"), "memory")
	b := newBackend(t)
	e := startEnvoy(t, connections, "WEIR}", socket(w.grpc)+"}", "APPLICATION}", socket(b.addr)+"}")
	passed := 0
	for range 8 {
		conn, err := net.Dial("tcp", e.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n")
		if text, _ := io.ReadAll(conn); strings.HasPrefix(string(text), "HTTP/1.1 200") {
			passed++
		}
		conn.Close()
	}
	if passed != 3 {
		t.Errorf("%d of 8 connections pass, want 3", passed)
	}
	if n := e.stat("ratelimit.edge.over_limit"); n != 5 {
		t.Errorf("Envoy counts %d connections over the limit", n)
	}
}

// TestEnvoyRoutes has limits of the virtual host and of the route: a request charges both.
func TestEnvoyRoutes(t *testing.T) {
	t.Parallel()
	w := serve(t, rulesFile(t, "domain: edge\ndescriptors:\n  - {key: masked_remote_address, rate_limit: {unit: year, requests_per_unit: 5}}\n  - {key: generic_key, value: checkout, rate_limit: {unit: year, requests_per_unit: 3}}\n"), "memory")
	b := newBackend(t)
	config := assembled(t, `
                        - match: {prefix: /both}
                          route:
                            cluster: application
                            include_vh_rate_limits: true
                            rate_limits: [{actions: [{generic_key: {descriptor_value: checkout}}]}]
                        - match: {prefix: /host}
                          route: {cluster: application, include_vh_rate_limits: true}
`)
	e := startEnvoy(t, config, "domains: [\"*\"]\n", "domains: [\"*\"]\n                      rate_limits: [{actions: [{masked_remote_address: {}}]}]\n",
		at("weir", 8081), "socket_address: "+socket(w.grpc), at("application", 8080), "socket_address: "+socket(b.addr))
	if n := e.passes("/host"); n != 5 {
		t.Errorf("the virtual host lets %d of 8 pass, want 5", n)
	}
	if n := e.passes("/both"); n != 0 {
		t.Errorf("%d of 8 pass although the virtual host's limit is spent", n)
	}
	e.wantDecided()
}

// TestEnvoyLeft: the end of a request that its client leaves is charged as one without an answer,
// and slots of an Envoy that was killed are free when their period ends.
func TestEnvoyLeft(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	w := serve(t, rulesFile(t, strings.Replace(envoyPage(t, "# 100 000 tokens a minute"), "unit: minute", "unit: year", 1)), "memory")
	e := startEnvoy(t, envoyPage(t, "tokens:estimate"), at("weir", 8081), "socket_address: "+socket(w.grpc), at("model", 8080), "socket_address: "+socket(b.addr))
	leave := func(e *edge, more ...string) (left func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var client sync.WaitGroup
		client.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.addr+"/", nil)
			req.Header.Set("X-User-Id", "a")
			for _, line := range more {
				name, value, _ := strings.Cut(line, ": ")
				req.Header.Set(name, value)
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		})
		return func() { cancel(); client.Wait() }
	}
	release := b.block()
	defer release()
	left := leave(e, "X-Use: 40")
	testserver.Eventually(t, "the request runs", func() bool { return b.running.Load() == 1 })
	left()
	testserver.Eventually(t, "the backend knows", func() bool { return b.running.Load() == 0 })
	release()
	if status, _ := e.send("/", "X-User-Id: a", "X-Use: 500"); status != http.StatusOK {
		t.Errorf("the next one: %d", status)
	}
	// Nobody said what the first one has used: its estimate stays.
	testserver.Eventually(t, "the next one is settled", func() bool { return w.remaining(t, "user", "a") == 100_000-1500-500 })

	release = b.block()
	defer release()
	slots := serve(t, rulesFile(t, "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {requests_per_unit: 3, period: 5s, algorithm: concurrency}}\n"), "memory")
	config := envoyPage(t, "hits_addend: {number: 1, is_negative_hits: true}")
	start := func() *edge {
		return startEnvoy(t, config, at("weir", 8081), "socket_address: "+socket(slots.grpc), at("application", 8080), "socket_address: "+socket(b.addr))
	}
	e = start()
	var all []func()
	for range 3 {
		all = append(all, leave(e))
	}
	testserver.Eventually(t, "all slots were taken", func() bool { return b.running.Load() == 3 })
	e.Stop(syscall.SIGKILL)
	for _, left := range all {
		left()
	}
	testserver.Eventually(t, "the slots are free", func() bool { return slots.remaining(t, "user", "a") == 3 })
	release()
	if status, _ := start().send("/", "X-User-Id: a"); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}

// TestEnvoyOverlay: a management server, as Envoy Gateway has one, sends rules, and an overlay their
// algorithm.
func TestEnvoyOverlay(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cache, management := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil), grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(management, serverv3.NewServer(t.Context(), cache, nil))
	go func() { _ = management.Serve(listener) }()
	t.Cleanup(management.Stop)
	snapshot, err := cachev3.NewSnapshot("1", map[resourcev3.Type][]types.Resource{resourcev3.RateLimitConfigType: {&configv3.RateLimitConfig{
		Name: "edge", Domain: "edge", Descriptors: []*configv3.RateLimitDescriptor{{
			Key: "generic_key", Value: "checkout", RateLimit: &configv3.RateLimitPolicy{Unit: configv3.RateLimitUnit_YEAR, RequestsPerUnit: 100},
		}},
	}}})
	if err == nil {
		err = cache.SetSnapshot(t.Context(), "weir", snapshot)
	}
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	if err := os.WriteFile(overlay, []byte("overlay:\n  - {domain: edge, unit: year, algorithm: gcra, burst: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := listening(start(t, nil, binary(t), "serve", "--rules-xds", listener.Addr().String(), "--rules-xds-node", "weir", "--rules-overlay", overlay,
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"), false)
	testserver.Eventually(t, "the rules have arrived", func() bool {
		resp, err := http.Get(w.url() + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	b := newBackend(t)
	e := startEnvoy(t, assembled(t, ""), at("weir", 8081), "socket_address: "+socket(w.grpc), at("application", 8080), "socket_address: "+socket(b.addr))
	if n := e.passes("/"); n != 3 {
		t.Errorf("%d of 8 pass, want the overlay's burst of 3", n)
	}
	e.wantDecided()
}

// TestHungStoreReleasesCalls: calls that are in flight when Redis hangs are answered by their policy
// long before their deadlines.
func TestHungStoreReleasesCalls(t *testing.T) {
	t.Parallel()
	const calls = 20
	store := testserver.StartRedis(t)
	w := listening(start(t, nil, binary(t), "serve", "--config", rulesFile(t, "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: day, requests_per_unit: 1000, algorithm: gcra, on_store_failure: deny}}\n"),
		"--store", store.URL(), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"), false)
	client := rlsv3.NewRateLimitServiceClient(dialEnvoy(t, w))
	ask := func(user string) (took time.Duration, over bool, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		from := time.Now()
		answer, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{envoy("user", user)}})
		return time.Since(from), answer.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT, err
	}
	testserver.Eventually(t, "Redis decides", func() bool {
		_, over, err := ask("a")
		return err == nil && !over
	})
	store.Pause()
	var all sync.WaitGroup
	var mu sync.Mutex
	longest := time.Duration(0)
	for i := range calls {
		all.Go(func() {
			took, over, err := ask(fmt.Sprint(i))
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, took)
			if err != nil || !over {
				t.Errorf("over %v, %v", over, err)
			}
		})
	}
	all.Wait()
	t.Logf("the longest of %d calls took %v", calls, longest)
	if longest > time.Minute {
		t.Errorf("a call waited %v, half of its time", longest)
	}
	if *envoyRuns && longest > 450*time.Millisecond {
		t.Errorf("a call took %v, want at most 450 ms", longest)
	}
}
