package e2e

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// gatewayProgram is what "make gateway" builds.
var gatewayProgram = flag.String("gateway", "", "the program envoy-gateway, for TestGatewayProgram")

// gatewayPorts are those of the program, which cannot be changed: rules, metrics.
var gatewayPorts = []string{"18001", "19001"}

const gatewayConfig = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: [DIR/resources]}}
    infrastructure:
      type: Host
      host: {configHome: DIR/config, dataHome: DIR/data, stateHome: DIR/state, runtimeDir: DIR/runtime}
rateLimit: {backend: {type: Redis, redis: {url: "redis://REDIS"}}}
extensionApis: {enableBackend: true}
`

const gatewayRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: default}
spec: {gatewayClassName: eg, listeners: [{name: http, protocol: HTTP, port: 8888}]}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: application, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: 3000}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: default}
spec:
  parentRefs: [{name: eg}]
  hostnames: [www.example.com]
  rules:
    - backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: application}]
      matches: [{path: {type: PathPrefix, value: /}}]
`

const gatewayPolicy = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: limits, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}]
  rateLimit:
    type: Global
    global:
      rules:
        - clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]
          limit: {requests: %d, unit: Day}
`

// An envoyGateway is the program, which takes its resources from a folder.
type envoyGateway struct {
	t       *testing.T
	dir     string
	process *process
	weir    *weir
	users   int
}

// TestGatewayProgram runs Envoy Gateway itself, without Kubernetes and without Envoy: a
// BackendTrafficPolicy is applied, changed and removed, and the gateway starts again.
// Weir, which runs as the gateway would start it, enforces each state.
func TestGatewayProgram(t *testing.T) {
	if *gatewayProgram == "" {
		t.Skip("needs Envoy Gateway: make gateway builds it")
	}
	for _, port := range gatewayPorts {
		listener, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Skipf("Envoy Gateway needs the port %s: %v", port, err)
		}
		listener.Close()
	}
	redis := testserver.StartRedis(t)
	g := &envoyGateway{t: t, dir: t.TempDir()}
	g.write("config.yaml", strings.NewReplacer("DIR", g.dir, "REDIS", redis.Addr()).Replace(gatewayConfig))
	g.write("resources/route.yaml", gatewayRoute)
	out, err := exec.Command(*gatewayProgram, "certgen", "--local", "--config-home", filepath.Join(g.dir, "config")).CombinedOutput()
	if err != nil {
		t.Fatalf("certgen: %v\n%s", err, out)
	}
	certs := filepath.Join(g.dir, "config", "certs", "envoy-rate-limit")
	g.weir = listening(start(t, []string{
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:18001", "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + filepath.Join(certs, "tls.crt"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + filepath.Join(certs, "tls.key"),
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + filepath.Join(certs, "ca.crt"), "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=100ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=1s", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(),
	}, binary(t), "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store-timeout", "10s"), false)

	g.start()
	g.apply(3)
	g.enforces(3)
	g.apply(5)
	g.enforces(5)
	if err := os.Remove(filepath.Join(g.dir, "resources", "policy.yaml")); err != nil {
		t.Fatal(err)
	}
	g.inForce("")
	g.enforces(-1)
	g.apply(2)
	g.enforces(2)
	g.process.Stop(syscall.SIGTERM)
	g.enforces(2)
	g.start()
	g.apply(4)
	g.enforces(4)
}

// write writes a file of the gateway's, at once.
func (g *envoyGateway) write(name, text string) {
	g.t.Helper()
	next, path := filepath.Join(g.dir, "next"), filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		g.t.Fatal(err)
	}
}

// start starts the gateway. It looks for Envoy where nobody listens, and goes on without.
func (g *envoyGateway) start() {
	g.t.Helper()
	g.process = start(g.t, []string{"HTTPS_PROXY=http://127.0.0.1:9", "HTTP_PROXY=http://127.0.0.1:9"},
		*gatewayProgram, "server", "--config-path", filepath.Join(g.dir, "config.yaml"))
}

// apply limits each user to so many requests a day, and waits until that is in force.
func (g *envoyGateway) apply(requests int) {
	g.t.Helper()
	g.write("resources/policy.yaml", fmt.Sprintf(gatewayPolicy, requests))
	g.inForce(fmt.Sprintf("rule-0-match-0: unit=DAY requests_per_unit=%d,", requests))
}

// inForce waits until Weir has the only rule that is wanted; empty: none.
func (g *envoyGateway) inForce(rule string) {
	g.t.Helper()
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		resp, err := http.Get(g.weir.url() + "/rlconfig")
		if err != nil {
			g.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			g.t.Fatal(err)
		}
		last = string(text)
		if resp.StatusCode == http.StatusOK && (rule == "" && last == "" || rule != "" && strings.Contains(last, rule) && strings.Count(last, "\n") == 1) {
			return
		}
	}
	g.t.Fatalf("not in force within a minute: %q; the rules are %q", rule, last)
}

// enforces wants a new user to have so many requests a day; -1: any number.
func (g *envoyGateway) enforces(requests int) {
	g.t.Helper()
	g.users++
	const route = "httproute/default/shop/rule/0/match/0/www_example_com"
	client := rlsv3.NewRateLimitServiceClient(dialEnvoy(g.t, g.weir))
	for i := range 7 {
		got, err := client.ShouldRateLimit(g.t.Context(), &rlsv3.RateLimitRequest{
			Domain:      "default/eg/http",
			Descriptors: []*ratelimitv3.RateLimitDescriptor{envoy(route, route, "rule-0-match-0", fmt.Sprint("user ", g.users))},
		})
		want := rlsv3.RateLimitResponse_OK
		if requests >= 0 && i >= requests {
			want = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		if err != nil || got.GetOverallCode() != want {
			g.t.Errorf("request %d of %d: %v %v", i+1, requests, got, err)
		}
	}
}
