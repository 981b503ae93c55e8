package metrics

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// maxNamed bounds the statistics with requested values in their names. Further values
// are counted under the rule's own name.
const maxNamed = 10_000

// envoyproxy counts as envoyproxy/ratelimit does, under the names that its mapping
// for Prometheus gives.
type envoyproxy struct {
	ratio    float32
	errors   *prometheus.CounterVec
	requests *prometheus.CounterVec
	times    *prometheus.HistogramVec

	mu    sync.RWMutex
	stats map[statName]*stat
	named int // of them have requested values
}

type statName struct{ domain, key1, key2 string }

// stat is the statistics of one name.
type stat struct {
	rule   string // its path; empty for limits that came with requests
	named  bool
	counts [stats]atomic.Uint64
}

const (
	totalHits = iota
	withinLimit
	nearLimit
	overLimit
	overWithLocalCache
	shadowMode
	stats
)

var statDescs = func() (descs [stats]*prometheus.Desc) {
	for i, s := range [stats][2]string{
		{"total_hits", "hits of all requests."},
		{"within_limit", "hits that were within the limit."},
		{"near_limit", "hits that were near the limit."},
		{"over_limit", "hits that were over the limit."},
		{"over_limit_with_local_cache", "hits that were refused without asking Redis."},
		{"shadow_mode", "hits that were over the limit of a rule in shadow mode."},
	} {
		descs[i] = prometheus.NewDesc("ratelimit_service_rate_limit_"+s[0], "envoyproxy/ratelimit: "+s[1], []string{"domain", "key1", "key2"}, nil)
	}
	return descs
}()

func newEnvoyproxy(ratio float64) *envoyproxy {
	return &envoyproxy{
		ratio:    float32(cmp.Or(ratio, traffic.DefaultNearLimitRatio)),
		errors:   counters("ratelimit_service_should_rate_limit_error", "envoyproxy/ratelimit: calls without a decision.", "err_type"),
		requests: counters("ratelimit_service_total_requests", "envoyproxy/ratelimit: gRPC calls.", "grpc_method"),
		times: prometheus.NewHistogramVec(
			timed("ratelimit_service_response_time_seconds", "envoyproxy/ratelimit: how long gRPC calls took."), []string{"grpc_method"}),
		stats: map[statName]*stat{},
	}
}

// collect reads the statistics.
func (e *envoyproxy) collect(to chan<- prometheus.Metric) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for name, s := range e.stats {
		for i := range s.counts {
			send(to, statDescs[i], prometheus.CounterValue, float64(s.counts[i].Load()), name.domain, name.key1, name.key2)
		}
	}
}

// called counts a gRPC call.
func (e *envoyproxy) called(method string, code codes.Code, took time.Duration) {
	e.requests.WithLabelValues(method).Inc()
	e.times.WithLabelValues(method).Observe(took.Seconds())
	if kind := errorTypes[code]; kind != "" && method == "ShouldRateLimit" {
		e.errors.WithLabelValues(kind).Inc()
	}
}

// Decided counts a request of Envoy's rate limit service, once its plan was taken,
// where envoyproxy/ratelimit's metrics are wanted.
func (m *Metrics) Decided(req *rules.Request, plan *rules.Plan) {
	if m.envoy == nil {
		return
	}
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act == nil || a.Rule.OnTrial || !a.Chosen() || a.Act.Kind != acts.KindTake || a.Act.Err != nil {
			continue
		}
		hits := req.Cost
		if req.Each != nil {
			hits = req.Each[a.Descriptor].Cost
		}
		s := m.envoy.stat(req.Domain, a.Rule, req.Descriptors[a.Descriptor])
		s.count(a, max(0, hits), m.envoy.ratio)
	}
}

// Follow removes the series of rules and domains that new rules no longer have. It must
// not be called by several goroutines at once.
func (m *Metrics) Follow(set *rules.Set) {
	for _, domain := range m.domains {
		if !slices.Contains(set.Domains(), domain) {
			m.unmatched.DeleteLabelValues(domain, "true")
		}
	}
	m.domains = set.Domains()
	if m.envoy == nil {
		return
	}
	paths := map[string]bool{"": true}
	for _, r := range set.Rules() {
		paths[r.Path] = true
	}
	e := m.envoy
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, s := range e.stats {
		if !paths[s.rule] {
			delete(e.stats, name)
			if s.named {
				e.named--
			}
		}
	}
}

// stat returns the statistics that a request counts for.
func (e *envoyproxy) stat(domain string, r *rules.Rule, asked []rules.Entry) *stat {
	name, named := nameOf(domain, r, asked)
	e.mu.RLock()
	s, full := e.stats[name], e.named >= maxNamed
	e.mu.RUnlock()
	if s != nil {
		return s
	}
	if named && full {
		name, named = nameOf(domain, r, r.Entries)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s = e.stats[name]; s == nil {
		s = &stat{rule: r.Path, named: named}
		// A part of a request would keep all of it.
		e.stats[statName{strings.Clone(name.domain), strings.Clone(name.key1), strings.Clone(name.key2)}] = s
		if named {
			e.named++
		}
	}
	return s
}

// count counts hits. The remaining units show how many were counted before them. For
// hits that are refused together that is unknown, and all count as over the limit.
func (s *stat) count(a *rules.Applied, hits int64, ratio float32) {
	d := &a.Act.Decisions[a.Charge]
	add := func(stat int, n int64) { s.counts[stat].Add(uint64(max(0, n))) }
	add(totalHits, hits)
	if d.Outcome != weir.Refused {
		most := a.Limit.Capacity()
		near, after := int64(float32(most)*ratio), most-d.Remaining
		add(withinLimit, hits)
		add(nearLimit, min(hits, after-near))
		return
	}
	add(overLimit, hits)
	if d.Source == acts.SourceDenyCache {
		add(overWithLocalCache, hits)
	}
	if a.Rule.Shadow {
		add(shadowMode, hits)
	}
}

// nameOf returns the name of a rule's statistics for a descriptor, and whether it holds
// values of the request. Levels beyond the second are left out.
func nameOf(domain string, r *rules.Rule, asked []rules.Entry) (name statName, named bool) {
	parts := [2]string{}
	for i := range min(len(asked), len(parts)) {
		part, brought := level(r, asked[i], i)
		parts[i], named = cleaned(part), named || brought
	}
	return statName{cleaned(domain), parts[0], parts[1]}, named
}

// level returns the name of one level of a rule, and whether it holds requested values.
func level(r *rules.Rule, asked rules.Entry, i int) (name string, brought bool) {
	if i >= len(r.Entries) {
		// The limit came with the request.
		return join(asked), true
	}
	file := r.Entries[i]
	exact := file.Value != "" && !strings.Contains(file.Key+file.Value, "*")
	switch {
	case exact || r.Levels[i].ShareThreshold:
	case r.DetailedMetric || r.Levels[i].ValueToMetric:
		return join(rules.Entry{Key: asked.Key, Value: asked.Value}), asked != file
	}
	return join(file), false
}

func join(e rules.Entry) string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "_" + e.Value
}

var (
	address    = regexp.MustCompile(`\d{1,3}(\.\d{1,3}){3}`)
	separators = strings.NewReplacer(":", "_", "|", "_")
)

// maxPart is the length of the longest part of a name: clients choose requested values.
const maxPart = 1 << 10

// cleaned returns a part of a name without the bytes that separate parts elsewhere.
func cleaned(part string) string {
	part = text(part[:min(len(part), maxPart)])
	if strings.IndexByte(part, '.') >= 0 {
		part = address.ReplaceAllStringFunc(part, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	}
	return separators.Replace(part)
}
