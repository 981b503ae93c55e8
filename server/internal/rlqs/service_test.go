package rlqs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A client is the client's end of a stream.
type client struct {
	t      *testing.T
	in     chan []byte // to the server; closed by its end
	out    chan *pb.RateLimitQuotaResponse
	parted chan struct{}
	gone   context.CancelFunc
	held   chan struct{} // of an acknowledgement, if deaf
	deaf   atomic.Bool
	ended  chan error
	over   atomic.Bool // the handler has returned
}

func (c *client) Recv() ([]byte, error) {
	select {
	case m, open := <-c.in:
		if !open {
			return nil, io.EOF
		}
		return m, nil
	case <-c.parted:
		return nil, &frames.Failure{Code: 14, Text: "the server stops"}
	}
}

func (c *client) Send(m []byte) error {
	response := new(pb.RateLimitQuotaResponse)
	if err := proto.Unmarshal(m, response); err != nil {
		return err
	}
	c.out <- response
	return nil
}

func (c *client) Acknowledged() <-chan struct{} {
	read := make(chan struct{})
	if c.deaf.Load() {
		c.held = read
	} else {
		close(read)
	}
	return read
}

func (c *client) Part() {
	if c.over.Load() {
		c.t.Error("a stream whose handler has returned is used")
	}
	close(c.parted)
}
func (c *client) Take(int64) error { return nil }

// dial opens a stream, which ends before the test does.
func dial(t *testing.T, s *Service) *client {
	c := &client{
		t: t, in: make(chan []byte), out: make(chan *pb.RateLimitQuotaResponse, 100),
		parted: make(chan struct{}), ended: make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.gone = cancel
	go func() {
		err := s.Serve(ctx, c, "192.0.2.1:5")
		c.over.Store(true)
		c.ended <- err
	}()
	t.Cleanup(cancel)
	return c
}

func (c *client) send(m *pb.RateLimitQuotaUsageReports) {
	b, err := proto.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.in <- b
}

// report reports the requests of a bucket: key, value, key, value …
func (c *client) report(allowed, denied uint64, id ...string) {
	bucket := map[string]string{}
	for i := 0; i < len(id); i += 2 {
		bucket[id[i]] = id[i+1]
	}
	c.send(&pb.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &pb.BucketId{Bucket: bucket}, NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}}})
}

// next returns the actions that come within a time, in words.
func (c *client) next(within time.Duration) string {
	time.Sleep(within)
	synctest.Wait()
	var words []string
	for {
		select {
		case m := <-c.out:
			for _, a := range m.BucketAction {
				words = append(words, inWords(a))
			}
		default:
			return strings.Join(words, ", ")
		}
	}
}

func inWords(a *pb.RateLimitQuotaResponse_BucketAction) string {
	if a.GetAbandonAction() != nil {
		return "abandon"
	}
	q := a.GetQuotaAssignmentAction()
	ttl := q.GetAssignmentTimeToLive().AsDuration()
	if b := q.GetRateLimitStrategy().GetTokenBucket(); b != nil {
		if b.GetTokensPerFill().GetValue() != 1 || b.GetFillInterval().GetSeconds() != year {
			return "a bucket that refills"
		}
		return fmt.Sprintf("%d for %v", b.MaxTokens, ttl)
	}
	return fmt.Sprintf("%v for %v", typev3.RateLimitStrategy_BlanketRule_name[int32(q.GetRateLimitStrategy().GetBlanketRule())], ttl)
}

// end ends the stream and returns the error.
func (c *client) end() error {
	close(c.in)
	return <-c.ended
}

func parsed(t *testing.T, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// leasing returns a service of the rules some.
func leasing(t *testing.T, taker weir.Taker) *Service {
	t.Helper()
	set := parsed(t, some)
	return New(Options{Rules: func() *rules.Set { return set }, Taker: taker})
}

const some = `
domain: edge
descriptors:
  - {key: a, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 30, quota: true}}
  - {key: a, value: free, rate_limit: {unlimited: true}}
  - {key: a, value: slots, rate_limit: {algorithm: concurrency, unit: second, requests_per_unit: 30}}
  - {key: day, rate_limit: {algorithm: fixed_window, unit: day, requests_per_unit: 100, quota: true}}
  - key: x
    descriptors: [{key: b, rate_limits: [{name: m, algorithm: gcra, unit: minute, requests_per_unit: 60, quota: true}, {name: s, algorithm: gcra, unit: second, requests_per_unit: 5, quota: true}]}]
`

// left returns the units that a key has left.
func left(t *testing.T, set *rules.Set, store weir.Taker, key, value string) int64 {
	t.Helper()
	plan, err := set.Plan(&rules.Request{Domain: "edge", Descriptors: [][]rules.Entry{{{Key: key, Value: value}}}})
	if err == nil {
		err = plan.Take(t.Context(), store)
	}
	if err != nil {
		t.Fatal(err)
	}
	return plan.Applied[0].Decision().Remaining
}

// TestAnswers has a bucket of each kind.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id   []string
		want string
	}{
		"a rule":              {[]string{"a", "1"}, "DENY_ALL for 6s, 30 for 6s"},
		"a slow limit":        {[]string{"day", "1"}, "DENY_ALL for 6s, 25 for 6s"},
		"two limits":          {[]string{"b", "1", "x", "2"}, "DENY_ALL for 6s, 2 for 6s"},
		"unlimited":           {[]string{"a", "free"}, "ALLOW_ALL for 1h0m0s"},
		"a rule without":      {[]string{"a", "slots"}, "ALLOW_ALL for 1h0m0s"},
		"too few keys":        {[]string{"b", "1"}, "ALLOW_ALL for 1h0m0s"},
		"too many keys":       {[]string{"a", "1", "c", "2"}, "ALLOW_ALL for 1h0m0s"},
		"an id without a key": {nil, "ALLOW_ALL for 1h0m0s"},
		"a large id":          {[]string{"a", strings.Repeat("x", 5000)}, "abandon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := leasing(t, memengine.New(memengine.Options{}))
				e := dial(t, s)
				e.report(0, 1, c.id...)
				if got := e.next(0); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if err := e.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestSettlement follows the units of a slow limit through leases, reports and the end of a stream.
func TestSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memengine.New(memengine.Options{})
		s := leasing(t, store)
		e := dial(t, s)
		e.report(0, 1, "day", "1")
		used := func(when string, units int64) {
			t.Helper()
			synctest.Wait()
			stats := s.Stats()
			n := stats.Charged - stats.Refunded + stats.Unleased
			if got := 100 - left(t, s.options.Rules(), store, "day", "1"); got != min(n, 100) || units >= 0 && n != units {
				t.Errorf("%s: %d used, want %d: %+v", when, got, units, stats)
			}
		}
		if got := e.next(0); got != "DENY_ALL for 6s, 25 for 6s" {
			t.Fatal(got)
		}
		used("leased", 25)
		// Until the second report, a lease lasts a second.
		if got := e.next(1500 * time.Millisecond); got != "DENY_ALL for 6s, 19 for 6s" {
			t.Fatal(got)
		}
		used("leased twice", 44)
		e.report(20, 0, "day", "1") // of the first lease
		used("too early to refund the rest", 44)
		e.next(1200 * time.Millisecond)
		before := s.Stats()
		e.report(1, 0, "day", "1")
		used("nothing of the first lease can be spent any more", -1)
		if n := s.Stats().Refunded - before.Refunded; n != 4 {
			t.Errorf("%d refunded of a lease of 25, of which 21 are spent", n)
		}
		for range 5 {
			e.next(5 * time.Second)
			e.report(3, 2, "day", "1")
			used("in use", -1)
		}
		// More than any lease has is charged as well.
		e.report(1000, 0, "day", "1")
		used("spent without a lease", -1)
		if s.Stats().Unleased < 900 {
			t.Errorf("%+v", s.Stats())
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
		if after := s.Stats(); after.Streams != 0 || after.Buckets != 0 || after.Charged != after.Granted-after.Unleased+after.Refunded+after.WrittenOff {
			t.Errorf("%+v", after)
		}
	})
}

// TestUnread: an Envoy that does not read gets no further lease, and its last one is not refunded.
func TestUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memengine.New(memengine.Options{})
		s := leasing(t, store)
		e := dial(t, s)
		e.deaf.Store(true)
		e.report(0, 1, "day", "1")
		for i := range 6 {
			if got, want := e.next(5*time.Second), []string{"DENY_ALL for 6s, 25 for 6s", "", "", "", "", ""}[i]; got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			e.report(0, 0, "day", "1")
		}
		if n := left(t, s.options.Rules(), store, "day", "1"); n != 75 {
			t.Errorf("%d left", n)
		}
		e.deaf.Store(false)
		close(e.held)
		if got := e.next(time.Second); !strings.Contains(got, "for 6s") {
			t.Errorf("got %q after it has read", got)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestShares: Envoys divide a limit, and one that is gone leaves its part to the others.
func TestShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := leasing(t, memengine.New(memengine.Options{}))
		a, b := dial(t, s), dial(t, s)
		a.report(0, 1, "a", "1")
		synctest.Wait()
		b.report(0, 1, "a", "1")
		a.next(3 * time.Second)
		b.next(0)
		leases := s.Leases()
		if len(leases) != 2 || leases[0].Units != 15 || leases[1].Units != 15 || leases[0].Rule != "edge/a" || leases[0].Client != "192.0.2.1:5" || leases[0].ID[0].Value != "1" || !leases[0].Acknowledged {
			t.Errorf("%+v", leases)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		for range 3 {
			b.report(15, 200, "a", "1")
			b.next(5 * time.Second)
		}
		b.report(15, 200, "a", "1")
		if got := b.next(time.Second); got != "DENY_ALL for 6s, 30 for 6s" {
			t.Errorf("alone: %s", got)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestIdle: a bucket without requests keeps one unit, and is abandoned in the end.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memengine.New(memengine.Options{})
		s := leasing(t, store)
		e := dial(t, s)
		e.report(0, 1, "day", "1")
		saw := map[string]bool{}
		for range 130 {
			for word := range strings.SplitSeq(e.next(5*time.Second), ", ") {
				saw[word] = true
			}
			if len(s.Leases()) == 0 {
				break
			}
			e.report(0, 0, "day", "1")
		}
		if !saw["1 for 1m0s"] || !saw["abandon"] || s.Stats().Buckets != 0 {
			t.Errorf("%v, %+v", saw, s.Stats())
		}
		e.next(2 * lost) // what a client may have read before counts for so long
		if n := len(s.budgets) + len(s.orphans); n != 0 {
			t.Errorf("%d budgets remain", n)
		}
		if n := left(t, s.options.Rules(), store, "day", "1"); n < 98 {
			t.Errorf("%d of 100 left, though no request came", n)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestFollowsRules: new rules count from the next push on.
func TestFollowsRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Pointer[rules.Set]
		set.Store(rules.NotLoaded())
		refused := 0
		s := New(Options{Rules: set.Load, Taker: memengine.New(memengine.Options{}), Unmatched: func(_ *rules.Request, why rules.Unmatched) bool {
			refused++
			return why == rules.UnmatchedRule
		}})
		e := dial(t, s)
		for _, c := range []struct{ rules, want string }{
			{"", ""},
			{"domain: other", "ALLOW_ALL for 1h0m0s"},
			{"domain: edge", "DENY_ALL for 1h0m0s"},
			{some, "DENY_ALL for 6s, 30 for 6s"},
			{strings.Replace(some, "requests_per_unit: 30, quota", "requests_per_unit: 8, quota", 1), "DENY_ALL for 6s, 8 for 6s"},
		} {
			if c.rules != "" {
				set.Store(parsed(t, c.rules))
			}
			if c.rules == "" {
				e.report(0, 1, "a", "1")
			}
			got := ""
			for range 4 {
				got += e.next(3 * time.Second)
				e.report(30, 90, "a", "1")
			}
			if !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%q: got %q, want %q", c.rules, got, c.want)
			}
		}
		if refused != 2 {
			t.Errorf("%d unmatched", refused)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

// failing fails takes.
type failing struct {
	weir.Taker
	broken atomic.Bool
}

func (f *failing) Take(ctx context.Context, acts []*weir.Act) {
	if !f.broken.Load() {
		f.Taker.Take(ctx, acts)
		return
	}
	for _, a := range acts {
		a.Err = weir.ErrNotApplied
	}
}

// TestStoreFails: without a decision there is no lease, and the last one ends.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Taker: memengine.New(memengine.Options{})}
		s := leasing(t, store)
		e := dial(t, s)
		store.broken.Store(true)
		e.report(0, 1, "a", "1")
		if got := e.next(3 * time.Second); got != "" {
			t.Errorf("got %q", got)
		}
		store.broken.Store(false)
		if got := e.next(time.Second); got != "DENY_ALL for 6s, 30 for 6s" {
			t.Errorf("got %q", got)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

// generous grants everything, as in an outage of the store.
type generous struct{}

func (generous) Take(_ context.Context, all []*weir.Act) {
	for _, a := range all {
		for i := range a.Decisions {
			a.Decisions[i] = weir.Decision{Outcome: weir.Granted, Source: acts.SourceFailOpen, Granted: a.Charges[i].Cost}
		}
	}
}

// TestFailOpen: a limit whose on_store_failure is allow is leased without a charge.
func TestFailOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := dial(t, leasing(t, generous{}))
		e.report(0, 1, "a", "1")
		if got := e.next(0); got != "DENY_ALL for 6s, 30 for 6s" {
			t.Error(got)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestStopsAsStreamsEnd: Stop uses no stream that ends by itself.
func TestStopsAsStreamsEnd(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := leasing(t, memengine.New(memengine.Options{}))
		all := make([]*client, 300)
		for i := range all {
			all[i] = dial(t, s)
			all[i].report(0, 1, "a", "1")
		}
		var ends sync.WaitGroup
		ends.Go(s.Stop)
		for _, e := range all {
			ends.Go(func() { close(e.in) })
		}
		ends.Wait()
		for _, e := range all {
			<-e.ended
		}
	}
}

// TestRejected ends streams that are wrong, and all of them when the service stops.
func TestRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := parsed(t, some)
		s := New(Options{Rules: func() *rules.Set { return set }, Taker: memengine.New(memengine.Options{}), Buckets: 2})
		wants := func(err error, code codes.Code, text string) {
			t.Helper()
			if status.Code(err) != code || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: want %v %s", err, code, text)
			}
		}
		e := dial(t, s)
		e.in <- []byte{0xff}
		wants(<-e.ended, codes.InvalidArgument, "no RateLimitQuotaUsageReports")
		e = dial(t, s)
		e.send(&pb.RateLimitQuotaUsageReports{})
		wants(<-e.ended, codes.InvalidArgument, "domain is missing")
		e = dial(t, s)
		e.send(&pb.RateLimitQuotaUsageReports{Domain: "edge"})
		e.send(&pb.RateLimitQuotaUsageReports{Domain: "other"})
		wants(<-e.ended, codes.InvalidArgument, `domain is "other"`)
		e = dial(t, s)
		e.in <- []byte("\x0a\x04edge\x12\x0a\x0a\x08\x0a\x06\x0a\x01a\x12\x01\xff") // an id of other bytes than text
		if got := e.next(0); got != "" || s.Stats().Buckets != 0 {
			t.Errorf("%s, %+v", got, s.Stats())
		}
		for i := range 3 {
			e.report(0, 1, "a", fmt.Sprint(i))
		}
		if got := e.next(0); !strings.Contains(got, "abandon") || s.Stats().Buckets != 2 {
			t.Errorf("%s, %+v", got, s.Stats())
		}
		s.Stop()
		failed := <-e.ended
		if f, ok := failed.(*frames.Failure); !ok || f.Code != 14 {
			t.Errorf("stopped with %v", failed)
		}
		wants(<-dial(t, s).ended, codes.Unavailable, "the server stops")
	})
}
