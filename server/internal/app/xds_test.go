package app

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/server/internal/xds"
)

// gateway is a management server of rules.
type gateway struct {
	*testing.T
	address string
	cache   cachev3.SnapshotCache
	server  *grpc.Server
	version int
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{T: t, address: listener.Addr().String(), cache: cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil), server: grpc.NewServer()}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g.server, serverv3.NewServer(t.Context(), g.cache, nil))
	go func() { _ = g.server.Serve(listener) }()
	t.Cleanup(g.server.Stop)
	return g
}

// publish sends a rule of so many a day for users of the domain shop; none for 0.
func (g *gateway) publish(n int, unit ratelimitv3.RateLimitUnit) {
	g.Helper()
	g.version++
	resources := map[resourcev3.Type][]types.Resource{resourcev3.RateLimitConfigType: nil}
	if n > 0 {
		resources[resourcev3.RateLimitConfigType] = []types.Resource{&ratelimitv3.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{Key: "user", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: unit, RequestsPerUnit: uint32(n)}},
		}}}
	}
	snapshot, err := cachev3.NewSnapshot(fmt.Sprint(g.version), resources)
	if err == nil {
		err = g.cache.SetSnapshot(g.Context(), "n", snapshot)
	}
	if err != nil {
		g.Fatal(err)
	}
}

func (g *gateway) options(optional bool) XDSOptions {
	return XDSOptions{Optional: optional, Options: xds.Options{Server: g.address, Node: "n", Backoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond}}
}

// fetch returns the status and the body of a path of the HTTP listener, and its headers.
func (r *reloading) fetch(path string) (string, http.Header) {
	r.Helper()
	resp, text := send(r.T, r.app, "http", "GET", path, "")
	return fmt.Sprint(resp.StatusCode, " ", text), resp.Header
}

// decide asks as Envoy would.
func (r *reloading) decide() string {
	r.Helper()
	status, text := posted(r.T, r.app, "/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"u"}]}]}`)
	return fmt.Sprint(status, " ", strings.ReplaceAll(text, " ", ""))
}

// TestRulesOverXDS follows a server from before its first rules to after the loss of its
// management server.
func TestRulesOverXDS(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := serveOptions(t, Options{XDS: g.options(true), Metrics: MetricsOptions{Address: "127.0.0.1:0", Path: "/stats/prometheus"}, Telemetry: TelemetryOptions{EnvoyproxyMetrics: true}})
	expect := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	health, _ := r.fetch("/healthcheck")
	expect("health before the first rules", health, "200 OK")
	r.until("connected", func() bool { return strings.Contains(r.ready(), "has not sent any") })
	expect("readiness before the first rules", r.ready(), "503")
	expect("a request before the first rules", r.decide(), "503")
	_, err := rateLimit(t.Context(), dialGRPC(t, r.app), "shop", descriptor("user", "u"))
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "no rate limit configuration loaded" {
		t.Errorf("a gRPC call before the first rules: %v", err)
	}

	g.publish(5, ratelimitv3.RateLimitUnit_DAY)
	r.untilLimit(5)
	expect("a request", r.decide(), `"requestsPerUnit":5`)
	expect("readiness", r.ready(), `{"name":"rules","ok":true,"detail":"version 1 of `+g.address+", 0s old")
	text, header := r.fetch("/rlconfig")
	expect("rlconfig", text, "shop.user: unit=DAY requests_per_unit=5")
	if header.Get("Weir-Rules-Version") != "1" || header.Get("Weir-Rules-Source") != "xds:"+g.address || header.Get("Weir-Rules-Age") == "" || header.Get("Weir-Rules-Rejected") != "" {
		t.Errorf("headers %v", header)
	}
	_, loaded := send(t, r.app, "metrics", "GET", "/stats/prometheus", "")
	if other, _ := send(t, r.app, "metrics", "GET", "/healthz", ""); other.StatusCode != http.StatusNotFound {
		t.Errorf("another path of the metrics' listener: %s", other.Status)
	}
	for _, line := range []string{
		"weir_xds_connected 1", "weir_xds_rejected 0", "weir_xds_accepted_total 1", "weir_config_rules 1",
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="user",key2=""}`,
	} {
		expect("metrics", loaded, "\n"+line)
	}

	g.publish(6, 99)
	r.until("rejected", func() bool {
		return strings.Contains(r.ready(), `xds:shop descriptors[0].rate_limit.unit: unit is \"99\"`)
	})
	expect("readiness with wrong rules", r.ready(), "200")
	expect("limit with wrong rules", r.limit(), "5")
	_, header = r.fetch("/rlconfig")
	expect("rejected version", header.Get("Weir-Rules-Rejected"), "2")

	g.publish(0, 0)
	r.until("no rules", func() bool {
		return strings.HasPrefix(r.decide(), `200 {"overallCode":"OK","statuses":[{"code":"OK"}]}`)
	})
	expect("readiness after a rejection", r.ready(), "version 2 was rejected")
	g.publish(7, ratelimitv3.RateLimitUnit_DAY)
	r.untilLimit(7)

	g.server.Stop()
	r.until("lost", func() bool { return strings.Contains(r.ready(), "no stream to "+g.address) })
	expect("readiness without the management server", r.ready(), "200")
	expect("limit without the management server", r.limit(), "7")
	health, _ = r.fetch("/healthcheck")
	expect("health without the management server", health, "200")
}

// TestWaitsForRules: unless rules are optional, health checks fail before the first ones.
func TestWaitsForRules(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := serveOptions(t, Options{XDS: g.options(false)})
	if health, _ := r.fetch("/healthcheck"); !strings.HasPrefix(health, "500") {
		t.Errorf("health %s", health)
	}
	g.publish(0, 0)
	r.until("healthy", func() bool { health, _ := r.fetch("/healthcheck"); return health == "200 OK" })
}

func TestOneSourceOfRules(t *testing.T) {
	t.Parallel()
	wantInvalid(t, "two sources", Options{Config: "rules.yaml", XDS: XDSOptions{Options: xds.Options{Server: "h:1"}}}, "rules xds", "")
	wantInvalid(t, "no path", Options{Metrics: MetricsOptions{Address: "127.0.0.1:0", Path: "metrics"}}, "metrics path", `is "metrics"`)
}
