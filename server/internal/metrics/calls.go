package metrics

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/recorder"
	"github.com/weirlimit/weir/server/internal/callers"
)

// HTTP counts the answers of a handler by path. All paths that are not named count as one.
func (m *Metrics) HTTP(next http.Handler, paths ...string) http.Handler {
	known := map[string]*answers{}
	for _, path := range slices.Concat(paths, []string{otherPath}) {
		known[path] = &answers{requests: m.requests.MustCurryWith(prometheus.Labels{"path": path})}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted := known[r.URL.Path]
		if counted == nil {
			counted = known[otherPath]
		}
		rec := recorder.Of(w)
		next.ServeHTTP(rec, r)
		counted.of(rec.Status()).Inc()
	})
}

// otherPath stands for the paths that are not named. No request has it.
const otherPath = "other"

// answers counts the answers of one path by status.
type answers struct {
	requests *prometheus.CounterVec
	// known are the counters of HTTP's statuses, to save the slower lookup by label.
	known [600]atomic.Pointer[prometheus.Counter]
}

func (a *answers) of(status int) prometheus.Counter {
	if status < 0 || status >= len(a.known) {
		return a.requests.WithLabelValues(strconv.Itoa(status))
	}
	if known := a.known[status].Load(); known != nil {
		return *known
	}
	counter := a.requests.WithLabelValues(strconv.Itoa(status))
	a.known[status].Store(&counter)
	return counter
}

// Method returns the counters of a gRPC method.
func (m *Metrics) Method(name string) *Method { return &Method{metrics: m, name: name} }

// A Method counts the calls of a gRPC method. It is safe for concurrent use.
type Method struct {
	metrics *Metrics
	name    string
	// known are the counters of gRPC's codes, to save the slower lookup by label.
	known [codes.Unauthenticated + 1]atomic.Pointer[prometheus.Counter]
}

// Begin returns what End needs when a call ends.
func (m *Method) Begin() (begun time.Time) {
	if m.metrics.envoy != nil {
		begun = time.Now()
	}
	return begun
}

// End counts a call that ended with an error, or nil.
func (m *Method) End(begun time.Time, err error) {
	code := status.Code(err)
	m.of(code).Inc()
	if envoy := m.metrics.envoy; envoy != nil {
		envoy.called(m.name[strings.LastIndexByte(m.name, '/')+1:], code, time.Since(begun))
	}
}

// of returns the counter of a code.
func (m *Method) of(code codes.Code) prometheus.Counter {
	if int(code) >= len(m.known) {
		return m.metrics.calls.WithLabelValues(m.name, code.String())
	}
	if known := m.known[code].Load(); known != nil {
		return *known
	}
	counter := m.metrics.calls.WithLabelValues(m.name, code.String())
	m.known[code].Store(&counter)
	return counter
}

// AuthFailures returns a function that counts the wrong tokens and passwords of a listener.
func (m *Metrics) AuthFailures(listener string) func() {
	return m.failures.WithLabelValues(listener).Inc
}

// maxNames bounds the callers, or teams, with series of their own, however often their file
// changes. Further callers are counted together.
const maxNames = 256

// names are the names of callers that have series of their own.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// of returns the label of a caller.
func (n *names) of(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]bool{}
	}
	if !n.known[name] && len(n.known) >= maxNames {
		return callers.Other
	}
	n.known[name] = true
	return name
}

// CallerRequests returns a function that counts the requests of a listener's callers.
func (m *Metrics) CallerRequests(listener string) func(caller string, o callers.Outcome) {
	type series struct {
		caller  string
		outcome callers.Outcome
	}
	// A map that is replaced, because a key of sync.Map would be allocated for each request.
	var known atomic.Pointer[map[series]prometheus.Counter]
	var adding sync.Mutex
	known.Store(new(map[series]prometheus.Counter))
	return func(caller string, o callers.Outcome) {
		counter, found := (*known.Load())[series{caller, o}]
		if !found {
			name := m.names.of(caller)
			counter = m.callers.WithLabelValues(name, listener, o.String())
			if name == caller {
				adding.Lock()
				all := maps.Clone(*known.Load())
				if all == nil {
					all = map[series]prometheus.Counter{}
				}
				all[series{caller, o}] = counter
				known.Store(&all)
				adding.Unlock()
			}
		}
		counter.Inc()
	}
}

// errorTypes are the names that envoyproxy/ratelimit gives its errors.
var errorTypes = map[codes.Code]string{codes.Unavailable: "redis_error", codes.InvalidArgument: "service_error"}

// text makes a name a valid label: Prometheus takes only UTF-8.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
