package check

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// storeTimeout is what Weir gives its store where --store-timeout says nothing else.
const storeTimeout = 250 * time.Millisecond

// allowed is how many requests a minute the compose file's rules let an address
// make.
const allowed = 30

// bootstrap reads the Envoy configuration as Envoy does: nothing unknown in it,
// every extension's configuration of its type, every value in its range.
func bootstrap(t *testing.T) *bootstrapv3.Bootstrap {
	t.Helper()
	b := new(bootstrapv3.Bootstrap)
	envoyReads(t, read(t, filepath.Join(composeFolder, "envoy.yaml")), b)
	return b
}

// envoyReads reads YAML as Envoy does.
func envoyReads(t *testing.T, text []byte, into interface {
	proto.Message
	ValidateAll() error
},
) {
	t.Helper()
	json, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(json, into); err != nil {
		t.Fatal(err)
	}
	if err := into.ValidateAll(); err != nil {
		t.Fatal(err)
	}
}

// TestEnvoyPage reads the three pieces of configuration of docs/envoy.md as Envoy
// does.
func TestEnvoyPage(t *testing.T) {
	t.Parallel()
	text := block(t, "docs/envoy.md", "yaml", "clusters:")
	clusters, rest, found := strings.Cut(text, "http_filters:")
	filters, limits, also := strings.Cut(rest, "# in a route:")
	if !found || !also {
		t.Fatalf("want clusters, http_filters and a route in\n%s", text)
	}
	b, manager, action := new(bootstrapv3.Bootstrap), new(managerv3.HttpConnectionManager), new(routev3.RouteAction)
	envoyReads(t, []byte("static_resources:\n  "+strings.ReplaceAll(clusters, "\n", "\n  ")), b)
	envoyReads(t, []byte("stat_prefix: edge\nroute_config: {}\nhttp_filters:"+filters), manager)
	envoyReads(t, []byte("cluster: weir\n"+limits), action)
	filter := unpack[*ratelimitv3.RateLimit](t, manager.HttpFilters[0].GetTypedConfig())
	if name := filter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName; name != b.StaticResources.Clusters[0].Name {
		t.Errorf("the filter asks the cluster %q", name)
	}
	checkTimeout(t, filter)
	if n := len(edge{filter, action}.descriptors(t, "192.0.2.7")); n != 2 || filter.Domain != "edge" {
		t.Errorf("the route sends %d descriptors in the domain %s", n, filter.Domain)
	}
}

// TestEnvoyPairs reads the configurations of docs/envoy.md that report the end of requests
// as Envoy does. Their descriptors reach the rules beside them.
func TestEnvoyPairs(t *testing.T) {
	t.Parallel()
	blocks := pages.Mine(t, "docs/envoy.md")
	if len(blocks) != 2 {
		t.Fatalf("%d configurations", len(blocks))
	}
	for i, ends := range []int{1, 2} {
		b := new(bootstrapv3.Bootstrap)
		envoyReads(t, []byte(blocks[i].Text), b)
		manager := unpack[*managerv3.HttpConnectionManager](t, b.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig())
		var filter *ratelimitv3.RateLimit
		for _, f := range manager.HttpFilters {
			if f.Name == "envoy.filters.http.ratelimit" {
				filter = unpack[*ratelimitv3.RateLimit](t, f.GetTypedConfig())
			} else {
				unpack[interface {
					proto.Message
					ValidateAll() error
				}](t, f.GetTypedConfig())
			}
		}
		checkTimeout(t, filter)
		route := manager.GetRouteConfig().VirtualHosts[0].Routes[0]
		limits := unpack[*ratelimitv3.RateLimitPerRoute](t, route.TypedPerFilterConfig["envoy.filters.http.ratelimit"]).RateLimits
		if len(limits) != 1+ends || limits[0].ApplyOnStreamDone || !limits[ends].HitsAddend.IsNegativeHits {
			t.Errorf("limits: %v", limits)
		}
		for _, l := range limits[1:] {
			if !l.ApplyOnStreamDone || !proto.Equal(l.Actions[0], limits[0].Actions[0]) {
				t.Errorf("limit at the end: %v", l)
			}
			if ends == 2 && (l.Actions[1].GetGenericKey().DescriptorKey != "weir" || l.Actions[1].GetGenericKey().DescriptorValue != "settle") {
				t.Errorf("not settled: %v", l)
			}
		}
		if key := limits[0].Actions[0].GetRequestHeaders().DescriptorKey; key != "user" || filter.Domain != "edge" {
			t.Errorf("the domain %s with the key %s", filter.Domain, key)
		}
	}
}

// checkTimeout wants Envoy to wait longer than Weir does for its store, and no longer
// than a client notices.
func checkTimeout(t *testing.T, filter *ratelimitv3.RateLimit) {
	t.Helper()
	if got := filter.GetTimeout().AsDuration(); got <= storeTimeout || got > time.Second {
		t.Errorf("Envoy waits %v for Weir, want more than %v and at most 1s", got, storeTimeout)
	}
}

// unpack returns what is in an extension's configuration.
func unpack[M interface {
	ValidateAll() error
}](t *testing.T, config *anypb.Any) M {
	t.Helper()
	message, err := config.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	m, ok := message.(M)
	if !ok {
		t.Fatalf("%s is not of the type wanted", config.TypeUrl)
	}
	if err := m.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	return m
}

// An edge is what the Envoy configuration does with a request.
type edge struct {
	filter *ratelimitv3.RateLimit
	route  *routev3.RouteAction
}

func newEdge(t *testing.T, b *bootstrapv3.Bootstrap) edge {
	t.Helper()
	filters := b.StaticResources.Listeners[0].FilterChains[0].Filters
	manager := unpack[*managerv3.HttpConnectionManager](t, filters[0].GetTypedConfig())
	if len(manager.HttpFilters) != 2 || manager.HttpFilters[1].Name != "envoy.filters.http.router" {
		t.Fatalf("filters: %v", manager.HttpFilters)
	}
	filter := unpack[*ratelimitv3.RateLimit](t, manager.HttpFilters[0].GetTypedConfig())
	checkTimeout(t, filter)
	return edge{filter, manager.GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute()}
}

// TestEnvoyAddresses: every cluster that is named is there, and is a service of
// the compose file at a port that it opens.
func TestEnvoyAddresses(t *testing.T) {
	t.Parallel()
	b, project := bootstrap(t), compose(t)
	clusters := map[string]*clusterv3.Cluster{}
	for _, c := range b.StaticResources.Clusters {
		clusters[c.Name] = c
		address := c.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress()
		expose := service(t, project, address.Address).Expose
		if port := int(address.GetPortValue()); !slices.Contains(expose, decimal(port)) {
			t.Errorf("%s: port %d is none of %v", c.Name, port, expose)
		}
	}
	e := newEdge(t, b)
	weir := e.filter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName
	for _, name := range []string{weir, e.route.GetCluster()} {
		if clusters[name] == nil {
			t.Errorf("no cluster %q", name)
		}
	}
	if options := clusters[weir].TypedExtensionProtocolOptions; len(options) != 1 {
		t.Errorf("the cluster of a gRPC service has to speak HTTP/2: %v", options)
	}
	port := b.StaticResources.Listeners[0].Address.GetSocketAddress().GetPortValue()
	if got := service(t, project, "envoy").Ports[0].Target; got != port {
		t.Errorf("Envoy listens at %d, the file publishes %d", port, got)
	}
}

// TestEnvoyAsks asks the compose file's weir as Envoy does of its configuration.
func TestEnvoyAsks(t *testing.T) {
	t.Parallel()
	m := release(t)
	e := newEdge(t, bootstrap(t))
	s := serve(t, composed(t, m, compose(t)))
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request := &servicev3.RateLimitRequest{Domain: e.filter.Domain, Descriptors: e.descriptors(t, "192.0.2.7")}
	for i := range allowed + 5 {
		answer, err := servicev3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		want := servicev3.RateLimitResponse_OK
		if i >= allowed {
			want = servicev3.RateLimitResponse_OVER_LIMIT
		}
		if answer.OverallCode != want {
			t.Fatalf("call %d: %v, want %v", i+1, answer.OverallCode, want)
		}
		for j, status := range answer.Statuses {
			if status.CurrentLimit == nil {
				t.Fatalf("no rule for what Envoy sends: %v", request.Descriptors[j])
			}
		}
	}
	s.stop()
}

// descriptors are what the route's actions make of a request.
func (e edge) descriptors(t *testing.T, address string) []*descriptorv3.RateLimitDescriptor {
	t.Helper()
	var all []*descriptorv3.RateLimitDescriptor
	for _, limit := range e.route.RateLimits {
		d := new(descriptorv3.RateLimitDescriptor)
		for _, action := range limit.Actions {
			entry := new(descriptorv3.RateLimitDescriptor_Entry)
			masked := action.GetMaskedRemoteAddress()
			switch generic := action.GetGenericKey(); {
			case generic != nil:
				entry.Key, entry.Value = "generic_key", generic.DescriptorValue
			case masked != nil:
				if masked.V4PrefixMaskLen != nil || masked.GetV6PrefixMaskLen().GetValue() != 64 {
					t.Errorf("clients are counted by %v, want IPv4 by address and IPv6 by /64", masked)
				}
				entry.Key, entry.Value = "masked_remote_address", address+"/32"
			default:
				t.Fatalf("an action that the test does not know: %v", action)
			}
			d.Entries = append(d.Entries, entry)
		}
		all = append(all, d)
	}
	return all
}

// TestNginxConfiguration runs nginx with the compose file's configuration in front
// of the compose file's weir.
func TestNginxConfiguration(t *testing.T) {
	t.Parallel()
	m := release(t)
	nginx := testserver.Require(t, "nginx")
	project := compose(t)
	s := serve(t, composed(t, m, project))
	application := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer application.Close()
	dir, address := t.TempDir(), testserver.FreeAddr(t)
	if got := service(t, project, "nginx").Ports[0].Target; got != 8000 {
		t.Errorf("nginx listens at 8000, the file publishes %d", got)
	}
	text := string(read(t, filepath.Join(composeFolder, "nginx.conf")))
	for _, change := range [][2]string{
		{"listen 8000;", "listen " + address + ";"},
		{"server weir:8080;", "server " + s.http + ";"},
		{"server application:3000;", "server " + application.Listener.Addr().String() + ";"},
		{" /tmp/", " " + dir + "/"},
		{"/dev/stdout", "access.log"},
		// On a busy machine an answer may take longer, and a request that passes
		// unlimited would spoil the count.
		{"timeout 1s;", "timeout 10s;"},
		{"timeout    1s;", "timeout 10s;"},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("nginx.conf does not contain %q", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	conf := filepath.Join(dir, "nginx.conf")
	write(t, conf, text, 0o644)
	output(t, nginx, "-t", "-p", dir, "-c", conf, "-e", "stderr")
	startNginx(t, address, nginx, "-p", dir, "-c", conf, "-e", "error.log", "-g", "daemon off; master_process off;")
	got := map[int]int{}
	for range allowed + 5 {
		got[get(t, "http://"+address+"/")]++
	}
	if got[200] != allowed || got[429] != 5 {
		t.Errorf("answers %v, want %d times 200 and 5 times 429", got, allowed)
	}
	s.stop()
}

func startNginx(t *testing.T, address, program string, args ...string) {
	t.Helper()
	testserver.Start(t, exec.Command(program, args...))
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nginx does not listen at %s: %v", address, err)
		}
	}
}
