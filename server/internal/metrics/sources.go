package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/layer/lease"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/server/internal/rlqs"
	"github.com/weirlimit/weir/server/internal/traffic"
	"github.com/weirlimit/weir/server/internal/xds"
)

// Sources read the state of the server's parts. A nil source is a part that does not exist.
type Sources struct {
	Config    func() Config
	XDS       func() xds.Status
	Memory    func() memengine.Stats
	Redis     func() Redis
	DenyCache func() denycache.Stats
	Lease     func() lease.Stats
	KeyLimits func() []keylimit.Stats
	Remote    func() remote.Stats
	RLQS      func() rlqs.Stats
	// Overrides returns the number of keys that have limits of their own.
	Overrides func() int
	// RequestBytes returns the bytes held by requests that are being received.
	RequestBytes func() int64
	// Connections returns, for each front end, the number of open connections.
	Connections map[string]func() int
}

// Config describes the rules in force.
type Config struct {
	// Revision is a digest of the files; empty without files.
	Revision string
	// Loaded is when the rules came into force.
	Loaded time.Time
	// Stale reports whether the files have changed since and are wrong.
	Stale bool
	// Successes and Failures count the loads of files, including the first.
	Successes, Failures int64
	Domains, Rules      int
}

// Redis is the state of the connections to Redis.
type Redis struct {
	redis.PoolStats
	// Foreign is the number of values of other programs found under the store's keys.
	Foreign int64
}

// A figure is one metric of a source.
type figure[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*S) float64
}

func counter[S any](name, help string, of func(*S) float64) figure[S] {
	return figure[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

func gauge[S any](name, help string, of func(*S) float64) figure[S] {
	return figure[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

// A collector reads metrics when they are gathered.
type collector struct {
	descs   []*prometheus.Desc
	collect func(to chan<- prometheus.Metric)
}

// Describe names the metrics.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect reads them.
func (c *collector) Collect(to chan<- prometheus.Metric) { c.collect(to) }

// send sends one value. Its labels are made valid.
func send(to chan<- prometheus.Metric, desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = text(label)
	}
	to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
}

// Watch adds the metrics of the sources. Call it once, before metrics are gathered.
func (m *Metrics) Watch(s Sources) {
	watch(m, s.Config, configFigures)
	watch(m, s.XDS, xdsFigures)
	watch(m, s.Memory, memoryFigures)
	watch(m, s.Redis, redisFigures)
	watch(m, s.DenyCache, denyCacheFigures)
	watch(m, s.Lease, leaseFigures)
	watch(m, s.Remote, remoteFigures)
	watch(m, s.RLQS, rlqsFigures)
	watch(m, s.Overrides, overrideFigures)
	if s.KeyLimits != nil {
		m.registry.MustRegister(ofKeys(s.KeyLimits))
	}
	if s.Config != nil {
		m.registry.MustRegister(revision(s.Config))
	}
	if m.envoy != nil {
		watch(m, s.Config, envoyConfigFigures)
	}
	watch(m, s.RequestBytes, requestFigures)
	for name, open := range s.Connections {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_connections", Help: "Connections of clients that are open.", ConstLabels: prometheus.Labels{"frontend": name},
		}, func() float64 { return float64(open()) }))
	}
}

func watch[S any](m *Metrics, read func() S, figures []figure[S]) {
	if read == nil {
		return
	}
	c := &collector{collect: func(to chan<- prometheus.Metric) {
		s := read()
		for _, f := range figures {
			send(to, f.desc, f.kind, f.of(&s))
		}
	}}
	for _, f := range figures {
		c.descs = append(c.descs, f.desc)
	}
	m.registry.MustRegister(c)
}

var xdsFigures = []figure[xds.Status]{
	gauge("weir_xds_connected", "1 while a stream to the management server is open.", func(x *xds.Status) float64 { return number(x.Connected) }),
	gauge("weir_xds_rejected", "1 while the last snapshot is rejected and the one before is in force.", func(x *xds.Status) float64 { return number(x.Stale()) }),
	gauge("weir_xds_last_accepted_timestamp_seconds", "Time at which the last snapshot was accepted; 0 before the first.", func(x *xds.Status) float64 {
		if x.At.IsZero() {
			return 0
		}
		return float64(x.At.UnixMilli()) / 1000
	}),
	counter("weir_xds_accepted_total", "Snapshots that were accepted.", func(x *xds.Status) float64 { return float64(x.Accepted) }),
	counter("weir_xds_rejections_total", "Rejections that were sent to the management server.", func(x *xds.Status) float64 { return float64(x.Nacks) }),
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var configFigures = []figure[Config]{
	gauge("weir_config_last_success_timestamp_seconds", "Time at which the current rules came into force.", func(c *Config) float64 { return float64(c.Loaded.UnixMilli()) / 1000 }),
	gauge("weir_config_last_load_successful", "1 if the current rules files are in force, 0 if they have mistakes.", func(c *Config) float64 { return number(!c.Stale) }),
	counter("weir_config_load_successes_total", "Loads of rules that came into force, including the one at the start.", func(c *Config) float64 { return float64(c.Successes) }),
	counter("weir_config_load_failures_total", "Changes of rules files that were rejected because of mistakes.", func(c *Config) float64 { return float64(c.Failures) }),
	gauge("weir_config_domains", "Domains in force.", func(c *Config) float64 { return float64(c.Domains) }),
	gauge("weir_config_rules", "Rules in force.", func(c *Config) float64 { return float64(c.Rules) }),
}

var envoyConfigFigures = []figure[Config]{
	counter("ratelimit_service_config_load_success", "envoyproxy/ratelimit: how often rules came into force.", func(c *Config) float64 { return float64(c.Successes) }),
	counter("ratelimit_service_config_load_error", "envoyproxy/ratelimit: how often rules files were wrong.", func(c *Config) float64 { return float64(c.Failures) }),
}

var memoryFigures = []figure[memengine.Stats]{
	gauge("weir_memory_keys", "Keys in the memory store.", func(s *memengine.Stats) float64 { return float64(s.Keys) }),
	gauge("weir_memory_bytes", "Memory of the keys, as the store estimates it.", func(s *memengine.Stats) float64 { return float64(s.Bytes) }),
	counter("weir_memory_overflowed_total", "Charges of new keys that shared one budget because the memory was full.", func(s *memengine.Stats) float64 { return float64(s.Overflowed) }),
}

var redisFigures = []figure[Redis]{
	counter("weir_redis_foreign_values_total", "Values of other programs that were found under the store's keys.", func(r *Redis) float64 { return float64(r.Foreign) }),
	gauge("weir_redis_connections", "Connections to Redis.", func(r *Redis) float64 { return float64(r.TotalConns) }),
	gauge("weir_redis_idle_connections", "Connections to Redis that are idle.", func(r *Redis) float64 { return float64(r.IdleConns) }),
	counter("weir_redis_pool_timeouts_total", "Calls that waited for a connection to Redis and got none.", func(r *Redis) float64 { return float64(r.Timeouts) }),
	counter("weir_redis_stale_connections_total", "Connections to Redis that were closed because they were stale.", func(r *Redis) float64 { return float64(r.StaleConns) }),
}

var denyCacheFigures = []figure[denycache.Stats]{
	counter("weir_deny_cache_hits_total", "Acts that were refused without a call to the store.", func(s *denycache.Stats) float64 { return float64(s.Hits) }),
	counter("weir_deny_cache_learned_total", "Refusals of the store that were offered to the cache.", func(s *denycache.Stats) float64 { return float64(s.Learned) }),
	counter("weir_deny_cache_forgotten_total", "Keys that were removed from the cache.", func(s *denycache.Stats) float64 { return float64(s.Forgotten) }),
	gauge("weir_deny_cache_entries", "Refusals in the cache.", func(s *denycache.Stats) float64 { return float64(s.Entries) }),
}

var leaseFigures = []figure[lease.Stats]{
	counter("weir_lease_spent_total", "Acts paid with leased units.", func(s *lease.Stats) float64 { return float64(s.Spent) }),
	counter("weir_leases_total", "Leases that the store has granted.", func(s *lease.Stats) float64 { return float64(s.Leases) }),
	counter("weir_lease_returned_units_total", "Leased units that were returned unspent.", func(s *lease.Stats) float64 { return float64(s.Returned) }),
	gauge("weir_lease_keys", "Keys that are watched for a possible lease.", func(s *lease.Stats) float64 { return float64(s.Keys) }),
	gauge("weir_lease_left_units", "Leased units that are unspent.", func(s *lease.Stats) float64 { return float64(s.Left) }),
}

var remoteFigures = []figure[remote.Stats]{
	counter("weir_coalesce_batches_total", "Calls to the store, each with a batch of acts.", func(r *remote.Stats) float64 { return float64(r.Calls.Batches) }),
	counter("weir_coalesce_acts_total", "Acts in these batches.", func(r *remote.Stats) float64 { return float64(r.Calls.Acts) }),
	gauge("weir_coalesce_largest_batch", "Acts in the largest batch since the start.", func(r *remote.Stats) float64 { return float64(r.Calls.Largest) }),
	gauge("weir_coalesce_waiting", "Acts that wait for the next call.", func(r *remote.Stats) float64 { return float64(r.Calls.Waiting) }),
	counter("weir_coalesce_withdrawn_total", "Acts whose callers gave up before the call was sent.", func(r *remote.Stats) float64 { return float64(r.Calls.Withdrawn) }),
	counter("weir_coalesce_abandoned_total", "Acts whose callers gave up after the call was sent.", func(r *remote.Stats) float64 { return float64(r.Calls.Abandoned) }),
	counter("weir_coalesce_late_replies_total", "Calls to the store that returned after a caller had given up.", func(r *remote.Stats) float64 { return float64(r.Calls.Late) }),
	gauge("weir_coalesce_in_flight", "Calls to the store that have not returned.", func(r *remote.Stats) float64 { return float64(r.Calls.InFlight) }),
	counter("weir_coalesce_rejected_total", "Acts that were rejected because too many were waiting.", func(r *remote.Stats) float64 { return float64(r.Calls.Rejected) }),
	gauge("weir_store_unreachable", "Nodes of the store that are unreachable now.", func(r *remote.Stats) float64 { return float64(r.Calls.Unreachable) }),
	counter("weir_store_outages_total", "Outages of a node of the store.", func(r *remote.Stats) float64 { return float64(r.Calls.Outages) }),
	counter("weir_fallback_local_total", "Acts decided from this instance's local share.", func(r *remote.Stats) float64 { return float64(r.Local) }),
	counter("weir_fallback_allowed_total", "Acts granted by on_store_failure: allow.", func(r *remote.Stats) float64 { return float64(r.Allowed) }),
	counter("weir_fallback_denied_total", "Acts refused by on_store_failure: deny.", func(r *remote.Stats) float64 { return float64(r.Denied) }),
	counter("weir_fallback_errors_total", "Acts answered with the store's error.", func(r *remote.Stats) float64 { return float64(r.Errors) }),
	counter("weir_fallback_deadline_total", "Acts answered by policy because their deadline had passed.", func(r *remote.Stats) float64 { return float64(r.Deadline) }),
	counter("weir_fallback_silence_total", "Acts answered by policy because the store was silent.", func(r *remote.Stats) float64 { return float64(r.Silence) }),
	counter("weir_fallback_refusal_total", "Acts answered by policy because the store could not decide.", func(r *remote.Stats) float64 { return float64(r.Refusal) }),
	counter("weir_fallback_left_total", "Acts without a decision whose callers had given up.", func(r *remote.Stats) float64 { return float64(r.Left) }),
	counter("weir_fallback_late_replies_total", "Acts that the store replied to after they were answered.", func(r *remote.Stats) float64 { return float64(r.Late) }),
	counter("weir_fallback_reconciled_total", "Acts whose late replies agreed with the answer or were reconciled.", func(r *remote.Stats) float64 { return float64(r.Reconciled) }),
	counter("weir_fallback_refunded_units_total", "Units refunded that the store charged and the caller was not granted.", func(r *remote.Stats) float64 { return float64(r.Refunded) }),
	counter("weir_overgranted_units_total", "Units granted by a local share that the store refused.", func(r *remote.Stats) float64 { return float64(r.Overgranted) }),
	counter("weir_fallback_recorded_units_total", "Units granted by a local share and recorded in the store.", func(r *remote.Stats) float64 { return float64(r.Recorded) }),
	counter("weir_fallback_doubtful_units_total", "Units granted from local shares that the store may not have charged, because its reply was lost.", func(r *remote.Stats) float64 { return float64(r.Doubtful) }),
	counter("weir_fallback_undelivered_total", "Releases, settlements and refunds that the store had not acknowledged when it forgot their IDs.", func(r *remote.Stats) float64 { return float64(r.Undelivered) }),
	gauge("weir_fallback_outstanding", "Keys, IDs, refunds and withdrawals that the store has not recorded yet.", func(r *remote.Stats) float64 { return float64(r.Outstanding) }),
	gauge("weir_fallback_withdrawals", "Takes that the store has yet to withdraw, because their callers got an error.", func(r *remote.Stats) float64 { return float64(r.Withdrawals) }),
}

var rlqsFigures = []figure[rlqs.Stats]{
	gauge("weir_rlqs_streams", "Streams of Envoys to the rate limit quota service.", func(s *rlqs.Stats) float64 { return float64(s.Streams) }),
	gauge("weir_rlqs_buckets", "Buckets that Envoys report, each once for each Envoy.", func(s *rlqs.Stats) float64 { return float64(s.Buckets) }),
	gauge("weir_rlqs_leased_units", "Units that Envoys may spend now, at most.", func(s *rlqs.Stats) float64 { return float64(s.Leased) }),
	counter("weir_rlqs_leases_total", "Leases that were sent to Envoys.", func(s *rlqs.Stats) float64 { return float64(s.Leases) }),
	counter("weir_rlqs_charged_units_total", "Units that were charged for leases.", func(s *rlqs.Stats) float64 { return float64(s.Charged) }),
	counter("weir_rlqs_granted_units_total", "Requests that Envoys granted, as they reported them.", func(s *rlqs.Stats) float64 { return float64(s.Granted) }),
	counter("weir_rlqs_refused_total", "Requests that Envoys refused, as they reported them.", func(s *rlqs.Stats) float64 { return float64(s.Refused) }),
	counter("weir_rlqs_unleased_units_total", "Requests that Envoys granted without a lease, which were charged afterwards.", func(s *rlqs.Stats) float64 { return float64(s.Unleased) }),
	counter("weir_rlqs_refunded_units_total", "Units of leases that Envoys did not spend, and that were refunded.", func(s *rlqs.Stats) float64 { return float64(s.Refunded) }),
	counter("weir_rlqs_written_off_units_total", "Units of leases that stay charged although they may not have been spent.", func(s *rlqs.Stats) float64 { return float64(s.WrittenOff) }),
}

var overrideFigures = []figure[int]{
	gauge("weir_overrides", "Keys with a temporary limit of their own.", func(n *int) float64 { return float64(*n) }),
}

var requestFigures = []figure[int64]{
	gauge("weir_request_memory_bytes", "Estimated memory that requests hold while they are received and decoded.", func(n *int64) float64 { return float64(*n) }),
}

// revision returns the metric that names the files in force.
func revision(read func() Config) *collector {
	desc := prometheus.NewDesc("weir_config_info", "1; the revision is a digest of the rules files in force.", []string{"revision"}, nil)
	return &collector{[]*prometheus.Desc{desc}, func(to chan<- prometheus.Metric) {
		send(to, desc, prometheus.GaugeValue, 1, read().Revision)
	}}
}

// ofKeys returns the metrics of the limits whose number of keys is bounded. The names
// of their budgets are those of rules, never text that clients send.
func ofKeys(read func() []keylimit.Stats) *collector {
	labels := []string{"limit"}
	keys := prometheus.NewDesc("weir_keys", "Tracked keys, by the limit that has a key limit.", labels, nil)
	most := prometheus.NewDesc("weir_max_keys", "The most keys that are tracked, by the limit.", labels, nil)
	overflowed := prometheus.NewDesc("weir_keys_overflowed_total", "Charges of further keys, which share one budget, by the limit.", labels, nil)
	return &collector{[]*prometheus.Desc{keys, most, overflowed}, func(to chan<- prometheus.Metric) {
		for _, s := range read() {
			send(to, keys, prometheus.GaugeValue, float64(s.Keys), s.Overflow)
			send(to, most, prometheus.GaugeValue, float64(s.MaxKeys), s.Overflow)
			send(to, overflowed, prometheus.CounterValue, float64(s.Overflowed), s.Overflow)
		}
	}}
}

// ofTraffic returns the metrics of the decisions under each limit in force.
func ofTraffic(recorder *traffic.Recorder) *collector {
	undecided := prometheus.NewDesc("weir_undecided_total", "Charges whose callers got an error instead of a decision, by the rule.", []string{"domain", "rule"}, nil)
	decisions := prometheus.NewDesc("weir_decisions_total", "Charges that were decided, by their rule, the decision and its source.", []string{"domain", "rule", "decision", "source"}, nil)
	trials := prometheus.NewDesc("weir_trial_decisions_total", "Charges that were decided under limits on trial, by their rule and the decision that they would have had.", []string{"domain", "rule", "decision"}, nil)
	units := prometheus.NewDesc("weir_granted_units_total", "Units that were granted, by the rule. Those of a hold count when it is settled, as much as the settlement charges.", []string{"domain", "rule"}, nil)
	held := prometheus.NewDesc("weir_held_units_total", "Units that were granted to holds, by the rule, whatever they were settled at.", []string{"domain", "rule"}, nil)
	near := prometheus.NewDesc("weir_near_limit_total", "Charges that were granted when the limit was nearly used up, by the rule.", []string{"domain", "rule"}, nil)
	budgets := prometheus.NewDesc("weir_budget_units_total", "Units of a budget that were granted, by the rule that charged it and, of a rule that has several, the alternative. Those of a hold count when it is settled, as much as the settlement charges.", []string{"domain", "budget", "rule", "alternative"}, nil)
	budgetsHeld := prometheus.NewDesc("weir_budget_held_units_total", "Units of a budget that were granted to holds, by rule and alternative, whatever they were settled at.", []string{"domain", "budget", "rule", "alternative"}, nil)
	collect := func(to chan<- prometheus.Metric) {
		// Limits of one name that charge different budgets are counted together, except
		// for their budgets.
		sums := map[*prometheus.Desc]map[[4]string]uint64{decisions: {}, undecided: {}, trials: {}, units: {}, held: {}, near: {}, budgets: {}, budgetsHeld: {}}
		for _, n := range recorder.Totals() {
			switch failed := n.Decision == traffic.Failed; {
			case n.Trial && !failed:
				sums[trials][[4]string{n.Domain, n.Rule, n.Decision.String()}] += n.Count
			case n.Trial:
			case failed:
				sums[undecided][[4]string{n.Domain, n.Rule}] += n.Count
			default:
				sums[decisions][[4]string{n.Domain, n.Rule, n.Decision.String(), n.Source.String()}] += n.Count
			}
		}
		for _, u := range recorder.Usage() {
			sums[units][[4]string{u.Domain, u.Rule}] += u.Units
			if u.Held > 0 {
				sums[held][[4]string{u.Domain, u.Rule}] += u.Held
			}
			sums[near][[4]string{u.Domain, u.Rule}] += u.NearLimit
		}
		for _, u := range recorder.BudgetUsage() {
			sums[budgets][[4]string{u.Domain, u.Budget, u.Rule, u.Alternative}] += u.Units
			if u.Held > 0 {
				sums[budgetsHeld][[4]string{u.Domain, u.Budget, u.Rule, u.Alternative}] += u.Held
			}
		}
		labels := map[*prometheus.Desc]int{decisions: 4, undecided: 2, trials: 3, units: 2, held: 2, near: 2, budgets: 4, budgetsHeld: 4}
		for desc, all := range sums {
			for of, n := range all {
				send(to, desc, prometheus.CounterValue, float64(n), of[:labels[desc]]...)
			}
		}
	}
	return &collector{[]*prometheus.Desc{decisions, undecided, trials, units, held, near, budgets, budgetsHeld}, collect}
}
