package e2e

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/frames"
)

// A script is a quota service that sends what the test says.
type script struct {
	t      *testing.T
	addr   string
	server *frames.Server
	marked bool // what the marker's bucket was told last

	mu      sync.Mutex
	streams int
	stream  *frames.Stream
	reports []usage
}

type usage struct {
	at              time.Time
	allowed, denied uint64
}

// marker is the user whose requests show that Envoy's workers have taken an answer over.
const marker = "marker"

func newScript(t *testing.T, addr string) *script {
	t.Helper()
	s := &script{t: t, addr: addr}
	s.start()
	return s
}

func (s *script) start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	server, err := frames.New(frames.Options{Streams: map[string]frames.StreamHandler{
		quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName: s.serve,
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	s.t.Cleanup(func() {
		s.stop()
		if err := <-done; !errors.Is(err, frames.ErrStopped) {
			s.t.Error(err)
		}
	})
}

// stop ends the server, if it was not ended, with its streams.
func (s *script) stop() {
	s.mu.Lock()
	if s.stream != nil {
		s.stream.Part()
		s.stream = nil
	}
	s.mu.Unlock()
	_ = s.server.Stop(s.t.Context())
}

func (s *script) serve(stream *frames.Stream) {
	s.mu.Lock()
	s.stream = stream
	s.streams++
	s.mu.Unlock()
	for {
		m, err := stream.Recv()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.stream == stream {
				s.stream = nil
			}
			return
		}
		var reports quotav3.RateLimitQuotaUsageReports
		if err := proto.Unmarshal(m, &reports); err != nil {
			s.t.Error(err)
			return
		}
		s.mu.Lock()
		for _, u := range reports.GetBucketQuotaUsages() {
			if u.GetBucketId().GetBucket()["route"] == "checkout" {
				s.reports = append(s.reports, usage{time.Now(), u.GetNumRequestsAllowed(), u.GetNumRequestsDenied()})
			}
		}
		s.mu.Unlock()
	}
}

// reported returns the reports so far.
func (s *script) reported() []usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reports)
}

// await waits for n reports in all.
func (s *script) await(n int) []usage {
	s.t.Helper()
	testserver.Eventually(s.t, "Envoy reports", func() bool { return len(s.reported()) >= n })
	return s.reported()
}

// An assignment is what a bucket is told.
type assignment struct {
	ttl      *durationpb.Duration
	strategy *typev3.RateLimitStrategy
	abandon  bool
}

func bucketOf(tokens uint32, seconds int64, nanos int32, ttl time.Duration) assignment {
	return assignment{durationpb.New(ttl), &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
		MaxTokens: tokens, TokensPerFill: wrapperspb.UInt32(1), FillInterval: &durationpb.Duration{Seconds: seconds, Nanos: nanos},
	}}}, false}
}

// lease is a bucket that does not refill.
func lease(tokens uint32, serial int32) assignment {
	return bucketOf(tokens, 365*24*60*60, serial, 10*time.Minute)
}

func blanket(rule typev3.RateLimitStrategy_BlanketRule) assignment {
	return assignment{durationpb.New(10 * time.Minute), &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}, false}
}

func (a assignment) action(key, value string) *quotav3.RateLimitQuotaResponse_BucketAction {
	m := &quotav3.RateLimitQuotaResponse_BucketAction{BucketId: &quotav3.BucketId{Bucket: map[string]string{key: value}}}
	if a.abandon {
		m.BucketAction = &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction_{AbandonAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction{}}
	} else {
		m.BucketAction = &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{QuotaAssignmentAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{AssignmentTimeToLive: a.ttl, RateLimitStrategy: a.strategy}}
	}
	return m
}

// tell sends assignments in one message, and returns when Envoy's worker follows them: it takes
// answers over in their order, and the last one turns the marker.
func (s *script) tell(e *edge, all ...assignment) {
	s.t.Helper()
	s.marked = !s.marked
	rule, want := typev3.RateLimitStrategy_DENY_ALL, http.StatusTooManyRequests
	if s.marked {
		rule, want = typev3.RateLimitStrategy_ALLOW_ALL, http.StatusOK
	}
	s.send(blanket(rule), all...)
	s.turned(e, want)
}

// tellFor sends an assignment that has a second, and returns when that has passed: the marker is
// allowed as long.
func (s *script) tellFor(e *edge, a assignment) {
	s.t.Helper()
	mark := blanket(typev3.RateLimitStrategy_ALLOW_ALL)
	a.ttl, mark.ttl = durationpb.New(time.Second), durationpb.New(time.Second)
	s.send(mark, a)
	s.turned(e, http.StatusTooManyRequests)
	s.marked = false
}

// turned waits until the marker gets a status.
func (s *script) turned(e *edge, want int) {
	s.t.Helper()
	testserver.Eventually(s.t, "the worker has taken the answer over", func() bool {
		status, _ := e.send("/", "X-User-Id: "+marker)
		return status == want
	})
}

// send sends assignments, and that of the marker behind them, and waits until Envoy has read them.
func (s *script) send(mark assignment, all ...assignment) {
	s.t.Helper()
	m := new(quotav3.RateLimitQuotaResponse)
	for _, a := range all {
		m.BucketAction = append(m.BucketAction, a.action("route", "checkout"))
	}
	m.BucketAction = append(m.BucketAction, mark.action("user", marker))
	text, err := proto.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	if stream == nil {
		s.t.Fatal("Envoy has no stream")
	}
	if err := stream.Send(text); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-stream.Acknowledged():
	case <-time.After(testserver.Patience):
		s.t.Fatal("Envoy does not acknowledge")
	}
}

// pass sends n requests and returns how many pass.
func (e *edge) pass(n int) (passed int) {
	e.t.Helper()
	for range n {
		if status, _ := e.send("/"); status == http.StatusOK {
			passed++
		}
	}
	return passed
}

// TestQuotaClient holds Envoy's quota client against what the service counts on. A new version of
// Envoy that differs fails here.
func TestQuotaClient(t *testing.T) {
	t.Parallel()
	s := newScript(t, testserver.FreeAddr(t))
	b := newBackend(t)
	e := startWorkers(t, 1, quotaPage(t, "static_resources:"), at("weir", 8081), "socket_address: "+socket(s.addr), at("application", 8080), "socket_address: "+socket(b.addr),
		"reporting_interval: 5s", "reporting_interval: 0.5s")
	fact := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	deny := blanket(typev3.RateLimitStrategy_DENY_ALL)
	// spend ends the last bucket, and spends some of a new one.
	spend := func(tokens uint32, some int) {
		t.Helper()
		s.tell(e, deny, lease(tokens, 1))
		fact("a bucket after a refusal of everything starts full", e.pass(some), some)
	}

	fact("the first request follows no_assignment_behavior", e.pass(1), 0)
	first := s.await(1)
	fact("it is reported at once", first[0].allowed == 0 && first[0].denied == 1, true)
	_, _ = e.send("/", "X-User-Id: "+marker)
	// On a late machine a report may be late, and the next one in time.
	both := s.await(3)
	fact("buckets are reported every 5 s, idle ones too, whatever the interval says", both[2].at.Sub(both[0].at) > 4*time.Second && both[2].denied == 0, true)

	spend(5, 2)
	s.tell(e, lease(5, 1))
	fact("the same bucket is carried over", e.pass(6), 3)
	spend(100, 40)
	s.tell(e, lease(200, 1))
	fact("a larger one has the same part of its tokens", e.pass(130), 120)
	spend(100, 40)
	s.tell(e, lease(50, 1))
	fact("so has a smaller one", e.pass(40), 30)
	spend(20, 20)
	s.tell(e, lease(20, 2))
	fact("one with another number of nanoseconds is none of its own", e.pass(5), 0)
	s.tell(e, deny, lease(20, 2))
	fact("behind a refusal of everything in one message it is full", e.pass(25), 20)

	spend(10, 4)
	if !s.marked {
		s.tell(e, lease(10, 1)) // the marker has to turn
	}
	s.tellFor(e, lease(10, 1))
	fact("a bucket whose time has ended refuses", e.pass(2), 0)
	s.tell(e, lease(10, 1))
	fact("the same bucket is full afterwards", e.pass(15), 10)

	for what, ttl := range map[string]*durationpb.Duration{"no time to live": nil, "none at all": durationpb.New(0), "less than a second": durationpb.New(900 * time.Millisecond)} {
		a := lease(100, 3)
		a.ttl = ttl
		s.tell(e, deny, a)
		if n := e.pass(50); n > 5 {
			t.Errorf("a bucket with %s ends at once: %d of 50 pass", what, n)
		}
	}
	spend(10, 1)
	s.tell(e, assignment{durationpb.New(time.Minute), &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_RequestsPerTimeUnit_{
		RequestsPerTimeUnit: &typev3.RateLimitStrategy_RequestsPerTimeUnit{RequestsPerTimeUnit: 1, TimeUnit: typev3.RateLimitUnit_SECOND},
	}}, false})
	fact("requests_per_time_unit is ignored", e.pass(9), 9)
	s.tell(e, bucketOf(2, 0, 500_000_000, time.Minute))
	fact("a fill interval of half a second is unlimited", e.pass(50), 50)
	s.tell(e, blanket(typev3.RateLimitStrategy_ALLOW_ALL))
	fact("everything is allowed", e.pass(5), 5)

	s.tell(e, assignment{abandon: true})
	n := len(s.reported())
	fact("a bucket that was abandoned follows no_assignment_behavior", e.pass(1), 0)
	last := s.await(n + 1)
	fact("its first request is reported at once, as a new one", last[len(last)-1].denied, uint64(1))

	spend(10, 1)
	s.stop()
	fact("a bucket stays when the service is gone", e.pass(3), 3)
	streams := s.streams
	s.start()
	testserver.Eventually(t, "Envoy opens another stream", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.streams > streams
	})
	fact("and when it is back", e.pass(10), 6)
	fact("Envoy lives", func() bool {
		select {
		case <-e.Exited:
			return false
		default:
			return true
		}
	}(), true)
}
