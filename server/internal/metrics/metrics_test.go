package metrics_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/rlqs"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
	"github.com/weirlimit/weir/server/internal/xds"
)

// fixture is a service behind metrics.
type fixture struct {
	*metrics.Metrics
	recorder *traffic.Recorder
	set      *rules.Set
	service  *rls.Service
}

func newFixture(tb testing.TB, text string) *fixture {
	tb.Helper()
	f := &fixture{set: rules.MustParse("test.yaml", text)}
	var err error
	if f.recorder, err = traffic.New(f.set, traffic.Options{}); err != nil {
		tb.Fatal(err)
	}
	f.Metrics = metrics.New(metrics.Options{Traffic: f.recorder, Envoyproxy: true})
	store := observe.Wrap(memengine.New(memengine.Options{}), observe.Options{Observer: f.Store()})
	f.service = rls.New(rls.Options{
		Rules: func() *rules.Set { return f.set }, Decided: f.Decided,
		Taker: observe.Wrap(store, observe.Options{Observer: f.FrontEnd("rls", true)}),
	})
	return f
}

// ask asks for a descriptor that is written key=value,key=value.
func (f *fixture) ask(tb testing.TB, domain, descriptor string, hits uint64) {
	tb.Helper()
	d := &ratelimitv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(hits)}
	for e := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	raw, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{d}})
	if err == nil {
		_, err = f.service.Answer(context.Background(), nil, raw, nil)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// scrape reads what Prometheus would.
func (f *fixture) scrape(tb testing.TB) map[string]*dto.MetricFamily {
	tb.Helper()
	recorder := httptest.NewRecorder()
	f.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(recorder.Body)
	if err != nil || recorder.Code != http.StatusOK {
		tb.Fatalf("%d, %v", recorder.Code, err)
	}
	return families
}

// counts are the counters of the families with a prefix, by name and labels, those
// of 0 left out.
func (f *fixture) counts(tb testing.TB, prefix string) map[string]float64 {
	tb.Helper()
	all := map[string]float64{}
	for name, family := range f.scrape(tb) {
		for _, m := range family.GetMetric() {
			if rest, found := strings.CutPrefix(name, prefix); found && m.GetCounter().GetValue() > 0 {
				all[rest+labels(m)] = m.GetCounter().GetValue()
			}
		}
	}
	return all
}

func labels(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.GetLabel() {
		if l.GetValue() != "" {
			pairs = append(pairs, l.GetName()+"="+l.GetValue())
		}
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

const rule = "    rate_limit: {requests_per_unit: 10, unit: hour}\n"

// TestEnvoyproxyCounts are figures that envoyproxy/ratelimit f2fb157 has shown
// through Prometheus: 13 single hits on a limit of 10.
func TestEnvoyproxyCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - key: k\n"+rule)
	for range 13 {
		f.ask(t, "d", "k=v", 1)
	}
	want := map[string]float64{
		"total_hits{domain=d,key1=k}": 13, "within_limit{domain=d,key1=k}": 10,
		"near_limit{domain=d,key1=k}": 2, "over_limit{domain=d,key1=k}": 3,
	}
	if diff := cmp.Diff(want, f.counts(t, "ratelimit_service_rate_limit_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEnvoyproxyNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ file, asked, want string }{
		"default":             {"  - key: k\n" + rule, "k=v", "key1=k"},
		"exact":               {"  - key: k\n    value: v\n" + rule, "k=v", "key1=k_v"},
		"wildcard":            {"  - key: k\n    value: v*\n" + rule, "k=v1", "key1=k_v*"},
		"value":               {"  - key: k\n    value_to_metric: true\n" + rule, "k=v", "key1=k_v"},
		"value of a wildcard": {"  - key: k\n    value: v*\n    value_to_metric: true\n" + rule, "k=v1", "key1=k_v1"},
		"shared":              {"  - key: k\n    value: v*\n    value_to_metric: true\n    share_threshold: true\n" + rule, "k=v1", "key1=k_v*"},
		"detailed":            {"  - key: k\n    detailed_metric: true\n" + rule, "k=v", "key1=k_v"},
		"nested":              {"  - key: a\n    descriptors:\n    - key: b\n      value: c\n  " + rule, "a=1,b=c", "key1=a,key2=b_c"},
		"nested, value above": {"  - key: a\n    value_to_metric: true\n    descriptors:\n    - key: b\n      value: c\n  " + rule, "a=1,b=c", "key1=a_1,key2=b_c"},
		"separators":          {"  - key: k\n    value_to_metric: true\n" + rule, "k=a:b|c-10.0.0.1", "key1=k_a_b_c-10_0_0_1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "domain: d\ndescriptors:\n"+tc.file)
			f.ask(t, "d", tc.asked, 1)
			got := slices.Collect(maps.Keys(f.counts(t, "ratelimit_service_rate_limit_total_hits")))
			if want := []string{"{domain=d," + tc.want + "}"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestEnvoyproxyShadow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - key: k\n    shadow_mode: true\n"+rule)
	for range 12 {
		f.ask(t, "d", "k=v", 1)
	}
	got := f.counts(t, "ratelimit_service_rate_limit_")
	if got["shadow_mode{domain=d,key1=k}"] != 2 || got["over_limit{domain=d,key1=k}"] != 2 {
		t.Errorf("got %v", got)
	}
}

func series(families map[string]*dto.MetricFamily) int {
	n := 0
	for name, family := range families {
		if strings.HasPrefix(name, "weir_") || strings.HasPrefix(name, "ratelimit_") {
			n += len(family.GetMetric())
		}
	}
	return n
}

// TestClientsMakeNoSeries sends what clients can choose.
func TestClientsMakeNoSeries(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {requests_per_unit: 1000, unit: minute, algorithm: gcra}\n  - key: k\n"+rule)
	f.ask(t, "d", "user=1", 1)
	f.ask(t, "d", "k=1", 1)
	before := series(f.scrape(t))
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		f.ask(t, "d", fmt.Sprintf("user=%x\x00", random.Uint64()), 1)
		if random.IntN(10) == 0 {
			f.ask(t, "d", fmt.Sprintf("k=%x", random.Uint64()), 1)
			f.ask(t, fmt.Sprint(random.Uint64()), fmt.Sprintf("%x=%x", random.Uint64(), random.Uint64()), 1)
		}
	}
	if after := series(f.scrape(t)); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

// TestNamedValuesAreBounded: values that a rule asks for have series of their own,
// but not without end.
func TestNamedValuesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - key: k\n    value_to_metric: true\n"+rule)
	for i := range 10_100 {
		f.ask(t, "d", fmt.Sprintf("k=%d", i), 1)
	}
	got := f.counts(t, "ratelimit_service_rate_limit_total_hits")
	if len(got) != 10_001 || got["{domain=d,key1=k}"] != 100 {
		t.Errorf("%d series, %v under the rule's own name", len(got), got["{domain=d,key1=k}"])
	}
}

func TestSeriesVanishWithTheirRules(t *testing.T) {
	t.Parallel()
	const first, second = "  - key: a\n" + rule, "  - key: b\n" + rule
	f := newFixture(t, "domain: d\ndescriptors:\n"+first+second)
	f.ask(t, "d", "a=1", 1)
	f.ask(t, "d", "b=1", 1)
	f.set = rules.MustParse("test.yaml", "domain: d\ndescriptors:\n"+second)
	f.recorder.Follow(f.set)
	f.Follow(f.set)
	f.ask(t, "d", "b=1", 1)
	for _, prefix := range []string{"weir_decisions_total", "ratelimit_service_rate_limit_total_hits"} {
		got := f.counts(t, prefix)
		if len(got) != 1 {
			t.Errorf("%s: %v", prefix, got)
		}
		for name, n := range got {
			if n != 2 {
				t.Errorf("%s%s is %v: what stays keeps its count", prefix, name, n)
			}
		}
	}
}

func TestErrorsAndCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - key: a\n"+rule)
	limit := f.set.Rules()[0].Limits[0].Limit
	for _, err := range []error{weir.ErrAmbiguous, &weir.InvalidError{}, fmt.Errorf("x")} {
		call := &observe.Call{Acts: []*weir.Act{{Charges: []weir.Charge{{Limit: limit}}, Err: err}}, Limits: []*weir.Limit{limit}}
		f.FrontEnd("http", true).Observe(call)
		f.Store().Observe(call)
	}
	answers := f.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), "/known")
	for _, path := range []string{"/known", "/a", "/b"} {
		answers.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	called := f.Method("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
	called.End(called.Begin(), status.Error(codes.Unavailable, ""))
	got := f.counts(t, "")
	for name, want := range map[string]float64{
		"weir_decision_errors_total{class=ambiguous,frontend=http}":                                                   1,
		"weir_decision_errors_total{class=invalid,frontend=http}":                                                     1,
		"weir_decision_errors_total{class=other,frontend=http}":                                                       1,
		"weir_store_errors_total{class=ambiguous}":                                                                    1,
		"weir_http_requests_total{code=418,path=/known}":                                                              1,
		"weir_http_requests_total{code=418,path=other}":                                                               2,
		"ratelimit_service_should_rate_limit_error{err_type=redis_error}":                                             1,
		"ratelimit_service_total_requests{grpc_method=ShouldRateLimit}":                                               1,
		"weir_grpc_calls_total{code=Unavailable,method=/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit}": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// watched are all sources that there can be.
func watched() metrics.Sources {
	return metrics.Sources{
		Config: func() metrics.Config {
			return metrics.Config{Revision: "0123456789abcdef", Loaded: time.Unix(1, 0), Successes: 1}
		},
		XDS:    func() xds.Status { return xds.Status{Connected: true} },
		Memory: func() memengine.Stats { return memengine.Stats{Keys: 3} },
		Redis:  func() metrics.Redis { return metrics.Redis{Foreign: 4} },
		Remote: func() remote.Stats {
			return remote.Stats{Calls: calls.Stats{Largest: 5, Unreachable: 1}}
		},
		RLQS:      func() rlqs.Stats { return rlqs.Stats{Leased: 14} },
		DenyCache: func() denycache.Stats { return denycache.Stats{Hits: 6} },
		Lease:     func() lease.Stats { return lease.Stats{Left: 7} },
		KeyLimits: func() []keylimit.Stats {
			return []keylimit.Stats{{KeyLimit: weir.KeyLimit{MaxKeys: 12, Overflow: "d/a;a#1"}, Keys: 10, Overflowed: 11}}
		},
		Overrides:    func() int { return 8 },
		RequestBytes: func() int64 { return 13 },
		Connections:  map[string]func() int{"http": func() int { return 9 }},
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors:\n  - key: a\n"+rule)
	f.Watch(watched())
	got := f.scrape(t)
	for name, want := range map[string]float64{
		"weir_config_last_success_timestamp_seconds": 1, "weir_config_last_load_successful": 1, "weir_memory_keys": 3,
		"weir_coalesce_largest_batch": 5, "weir_lease_left_units": 7, "weir_rlqs_leased_units": 14, "weir_overrides": 8, "weir_connections": 9, "weir_config_info": 1,
	} {
		if v := got[name].GetMetric()[0].GetGauge().GetValue(); v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	for name, want := range map[string]float64{"weir_redis_foreign_values_total": 4, "weir_deny_cache_hits_total": 6, "weir_config_load_successes_total": 1} {
		if v := got[name].GetMetric()[0].GetCounter().GetValue(); v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// BenchmarkFrontEnd is what a call costs the one who waits for it.
func BenchmarkFrontEnd(b *testing.B) {
	f := newFixture(b, "domain: d\ndescriptors:\n  - key: a\n"+rule)
	limit := f.set.Rules()[0].Limits[0].Limit
	act := &weir.Act{Charges: []weir.Charge{{Key: "d/a=1", Limit: limit, Cost: 1}}, Decisions: []weir.Decision{{Outcome: weir.Granted, Granted: 1, Source: acts.SourceStore}}}
	call := &observe.Call{Acts: []*weir.Act{act}, Limits: []*weir.Limit{limit}, Took: time.Microsecond}
	for name, observer := range map[string]observe.Observer{"front-end": f.FrontEnd("http", true), "store": f.Store(), "traffic alone": f.recorder} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				observer.Observe(call)
			}
		})
	}
}

// TestCallersAreBounded: however many names a file of callers has had, there is a bound on
// the series.
func TestCallersAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: d\ndescriptors: []\n")
	count := f.CallerRequests("http")
	for i := range 3000 {
		count(fmt.Sprintf("caller-%d", i), callers.Admitted)
	}
	series := f.scrape(t)["weir_caller_requests_total"].GetMetric()
	total := 0.0
	for _, m := range series {
		total += m.GetCounter().GetValue()
	}
	if len(series) > 1025 || total != 3000 {
		t.Errorf("%d series, %v requests", len(series), total)
	}
}
