package xds_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a resource with a rule of so many a minute.
func one(domain string, n int) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: "user", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_MINUTE, RequestsPerUnit: uint32(n)},
	}}}
}

// TestFollows: rules come into force and are accepted, change, and go when the server
// removes them.
func TestFollows(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	s := subscribe(t, xds.Options{Server: m.address, Metadata: map[string]string{"zone": "a"}})
	s.until("subscribed", func() bool { return s.Status().Connected && len(m.last().GetTypeUrl()) > 0 })
	if first := m.last(); first.GetVersionInfo() != "" || first.GetNode().GetId() != node || first.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" || len(first.GetResourceNames()) > 0 {
		t.Errorf("the first request is %v", first)
	}
	if s.Status().Loaded || s.rules() != nil {
		t.Error("there are rules before the first snapshot")
	}
	m.publish(one("b", 5), one("a", 7))
	s.untilPaths("a/user 7/minute, b/user 5/minute")
	s.until("accepted", func() bool { return m.last().GetVersionInfo() == "1" && m.last().GetResponseNonce() != "" })
	if st := s.Status(); !st.Loaded || st.Version != "1" || st.Revision == "" || time.Since(st.At) > time.Minute || st.Rejected != nil {
		t.Errorf("status %+v", st)
	}
	m.publish(one("b", 6))
	s.untilPaths("b/user 6/minute")
	m.publish()
	s.untilPaths("")
	s.until("accepted", func() bool { return m.last().GetVersionInfo() == "3" })
	if set := s.rules(); len(set.Domains()) > 0 {
		t.Errorf("domains %v", set.Domains())
	}
	if n := m.nacks(); len(n) > 0 {
		t.Errorf("rejected: %v", n)
	}
}

// TestRejects: the server is told each mistake and its place, once and not in a storm;
// the rules in force stay until it is mended.
func TestRejects(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.publish(one("a", 1))
	s := subscribe(t, xds.Options{Server: m.address})
	s.untilPaths("a/user 1/minute")

	wrong := one("b", 2)
	wrong.Descriptors = append(wrong.Descriptors, &ratelimitv3.RateLimitDescriptor{
		Key: "user", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Key: "path", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: 9}}},
	})
	begin := time.Now()
	m.publish(one("a", 2), wrong)
	s.until("rejected", func() bool { return len(m.nacks()) > 0 })
	nack := m.nacks()[0]
	want := `xds:b descriptors[1]: key "user" without value again in the same list; want each pair once; xds:b descriptors[0] has it too
xds:b descriptors[1].descriptors[0].rate_limit.unit: unit is "9"; want one of second, minute, hour, day, week, month, year`
	if got := nack.GetErrorDetail().GetMessage(); got != want || nack.GetVersionInfo() != "1" {
		t.Errorf("version %s rejected with\n%s\nwant\n%s", nack.GetVersionInfo(), got, want)
	}
	if st := s.Status(); st.Rejected == nil || !st.Rejected.Current || st.Rejected.Version != "2" || st.Rejected.Err.Error() != want || st.Version != "1" {
		t.Errorf("status %+v", st)
	}
	s.until("rejected again", func() bool { return len(m.nacks()) > 1 })
	if took := time.Since(begin); took < 900*time.Millisecond || len(m.nacks()) > 2 {
		t.Errorf("%d rejections in %v", len(m.nacks()), took)
	}
	s.untilPaths("a/user 1/minute")
	m.publish(one("a", 3))
	s.untilPaths("a/user 3/minute")
	if st := s.Status(); st.Rejected == nil || st.Rejected.Current || st.Version != "3" {
		t.Errorf("status %+v", st)
	}
}

// TestServerGoes: the rules stay while the server is gone, and follow the next one,
// whose versions begin again.
func TestServerGoes(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	s := subscribe(t, xds.Options{Server: m.address})
	m.publish(one("a", 1))
	s.untilPaths("a/user 1/minute")
	m.stop()
	s.until("lost", func() bool { return !s.Status().Connected && s.Status().Err != nil })
	s.untilPaths("a/user 1/minute")
	m.start()
	s.until("connected", func() bool { return s.Status().Connected })
	// The same version with other content, and the same content once more.
	m.publish(one("a", 2))
	s.untilPaths("a/user 2/minute")
	m.publish(one("a", 2))
	s.until("accepted", func() bool { return m.last().GetVersionInfo() == "2" })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets != 2 {
		t.Errorf("%d sets were put in force, want one for each content", s.sets)
	}
}

// A script is a management server that sends what a test says.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	send     []*discoveryv3.DiscoveryResponse
	requests chan *discoveryv3.DiscoveryRequest
}

func (f *script) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for i := 0; ; i++ {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		f.requests <- request
		if i >= len(f.send) {
			continue
		}
		if err := stream.Send(f.send[i]); err != nil {
			return err
		}
	}
}

// TestBrokenSnapshots: bytes that are cut and resources of other types are rejected,
// each with its reason, and change nothing.
func TestBrokenSnapshots(t *testing.T) {
	t.Parallel()
	whole, err := proto.Marshal(one("a", 5))
	if err != nil {
		t.Fatal(err)
	}
	good := &anypb.Any{TypeUrl: xds.TypeURL, Value: whole}
	f := &script{requests: make(chan *discoveryv3.DiscoveryRequest, 10), send: []*discoveryv3.DiscoveryResponse{
		{TypeUrl: xds.TypeURL, VersionInfo: "1", Nonce: "1", Resources: []*anypb.Any{good}},
		{TypeUrl: xds.TypeURL, VersionInfo: "2", Nonce: "2", Resources: []*anypb.Any{good, {TypeUrl: xds.TypeURL, Value: whole[:len(whole)-3]}}},
		{TypeUrl: xds.TypeURL, VersionInfo: "3", Nonce: "3", Resources: []*anypb.Any{{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}}},
		{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", VersionInfo: "4", Nonce: "4"},
		{TypeUrl: xds.TypeURL, VersionInfo: "5", Nonce: "5"},
	}}
	m := &management{TB: t, address: "127.0.0.1:0"}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, f)
	listener := m.listen()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	s := subscribe(t, xds.Options{Server: m.address})
	for i, want := range []string{
		"",
		"",
		"xds:resources[1]: the bytes are not a message of this type: ",
		`xds:resources[0]: the type is "type.googleapis.com/envoy.config.cluster.v3.Cluster"; want ` + xds.TypeURL,
		`the type is "type.googleapis.com/envoy.config.cluster.v3.Cluster"; want ` + xds.TypeURL,
		"",
	} {
		request := <-f.requests
		version := []string{"", "1", "1", "1", "1", "5"}[i]
		if got := request.GetErrorDetail().GetMessage(); !strings.HasPrefix(got, want) || (got == "") != (want == "") || request.GetVersionInfo() != version {
			t.Errorf("request %d: version %q, %q; want %q, %q", i, request.GetVersionInfo(), got, version, want)
		}
		if version == "1" {
			s.untilPaths("a/user 5/minute")
		}
	}
	s.untilPaths("")
}

// TestCertificatesRotate: the server demands TLS 1.3 and a certificate, and both sides
// come to have others; while a file is wrong, the last good ones hold.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	old := issue(t, folder)
	m := manage(t, old.server(t))
	m.publish(one("a", 1))
	s := subscribe(t, xds.Options{Server: m.address, TLS: old.tls()})
	s.untilPaths("a/user 1/minute")

	key, err := os.ReadFile(old.key)
	if err != nil {
		t.Fatal(err)
	}
	m.stop()
	if err := os.WriteFile(old.key, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.publish(one("a", 2))
	s.untilPaths("a/user 2/minute")
	if err := os.WriteFile(old.key, key, 0o600); err != nil {
		t.Fatal(err)
	}

	m.stop()
	m.tls = issue(t, folder).server(t)
	m.start()
	m.publish(one("a", 3))
	s.untilPaths("a/user 3/minute")
}

// TestStrangers: a server of another authority, or for another name, is not believed.
func TestStrangers(t *testing.T) {
	t.Parallel()
	mine := issue(t, t.TempDir())
	m := manage(t, issue(t, t.TempDir()).server(t))
	m.publish(one("a", 1))
	s := subscribe(t, xds.Options{Server: m.address, TLS: mine.tls()})
	s.until("refused", func() bool {
		err := s.Status().Err
		return err != nil && strings.Contains(err.Error(), "unknown authority")
	})

	other := manage(t, mine.server(t))
	other.publish(one("a", 1))
	named := mine.tls()
	named.ServerName = "envoy-gateway"
	subscribe(t, xds.Options{Server: other.address, TLS: named}).untilPaths("a/user 1/minute")
	named = mine.tls()
	named.ServerName = "elsewhere"
	s = subscribe(t, xds.Options{Server: other.address, TLS: named})
	s.until("refused", func() bool {
		err := s.Status().Err
		return err != nil && strings.Contains(err.Error(), "valid for envoy-gateway, not elsewhere")
	})
}

// TestOverlay: the overlay's file changes rules, is read again when it changes, and holds
// while it is wrong.
func TestOverlay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("overlay: [{algorithm: gcra, burst: 3}]")
	m := manage(t, nil)
	m.publish(one("a", 10))
	s := subscribe(t, xds.Options{Server: m.address, Overlay: file})
	limit := func() string {
		if set := s.rules(); set != nil {
			return set.Rules()[0].Limits[0].Algorithm.String()
		}
		return ""
	}
	was := ""
	s.until("overlaid", func() bool { was = limit(); return strings.Contains(was, "gcra") })
	write("overlay: [{algorithm: grca}]")
	s.Reload()
	s.until("reported", func() bool {
		err := s.Status().Overlay
		return err != nil && strings.Contains(err.Error(), `did you mean "gcra"?`)
	})
	if limit() != was {
		t.Errorf("a wrong overlay made %s of %s", limit(), was)
	}
	write("overlay: [{algorithm: sliding_log}, {domain: b, algorithm: gcra}]")
	s.Reload()
	s.until("changed", func() bool { return strings.Contains(limit(), "sliding_log") })
	s.until("reported", func() bool {
		err := s.Status().Overlay
		return err != nil && strings.Contains(err.Error(), "overlay.yaml:1:37: the line fits no rule")
	})
}

// TestManyRules: one domain may have 20 000 rules.
func TestManyRules(t *testing.T) {
	t.Parallel()
	c := one("many", 1)
	for i := range 20_000 {
		c.Descriptors = append(c.Descriptors, &ratelimitv3.RateLimitDescriptor{
			Key: "route", Value: fmt.Sprintf("route-%d", i),
			Descriptors: []*ratelimitv3.RateLimitDescriptor{{Key: "rule-0-match-0", Value: "rule-0-match-0", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_HOUR, RequestsPerUnit: uint32(i)}}},
		})
	}
	m := manage(t, nil)
	m.publish(c)
	s := subscribe(t, xds.Options{Server: m.address})
	s.until("loaded", func() bool { return s.Status().Loaded })
	if n := len(s.rules().Rules()); n != 20_001 {
		t.Errorf("%d rules", n)
	}
	plan, err := s.rules().Plan(&rules.Request{Domain: "many", Cost: 1, Descriptors: [][]rules.Entry{{{Key: "route", Value: "route-19999"}, {Key: "rule-0-match-0", Value: "rule-0-match-0"}}}})
	if err != nil || len(plan.Applied) != 1 || plan.Applied[0].Limit.Count != 19_999 {
		t.Errorf("plan %+v, %v", plan, err)
	}
}

// TestTooLarge: a snapshot beyond the bound ends nothing, and is reported.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.publish(one(strings.Repeat("long", 200), 1))
	s := subscribe(t, xds.Options{Server: m.address, MaxMessageBytes: 500})
	s.until("reported", func() bool {
		err := s.Status().Err
		return err != nil && strings.Contains(err.Error(), "larger than max")
	})
	m.publish(one("short", 1))
	s.untilPaths("short/user 1/minute")
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]xds.Options{
		`rules xds is "envoy-gateway"`:        {Server: "envoy-gateway"},
		"rules xds backoff is -1s":            {Server: "h:1", Backoff: -time.Second},
		`rules xds tls ca is "/nowhere"`:      {Server: "h:1", TLS: &xds.TLS{CA: "/nowhere"}},
		`rules xds tls cert is "/nowhere"`:    {Server: "h:1", TLS: &xds.TLS{Cert: "/nowhere"}},
		"/nowhere: no such file or directory": {Server: "h:1", Overlay: "/nowhere"},
	} {
		if _, err := xds.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
