package rlqs

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rules"
)

// The simulation attacks the service with Envoys that join, die, pause, are cut off one way or both,
// report late and lose their streams, with load that moves, and with servers that restart. For each
// interval it holds what was granted against the limit's bound and the tokens that Envoys could
// truly spend when it began.

const step10ms = 10 * time.Millisecond

// A link carries messages in order, each with a delay.
type link struct {
	queue []parcel
	cut   time.Time // nothing arrives before
}

type parcel struct {
	at    time.Time
	bytes []byte
	read  chan struct{} // of an acknowledgement
}

func (l *link) add(r *rand.Rand, p parcel) {
	late := time.Millisecond + time.Duration(r.ExpFloat64()*float64(step10ms))
	if r.Float64() < 0.02 {
		late = time.Duration(r.Float64() * float64(3*time.Second))
	}
	p.at = time.Now().Add(late)
	if p.at.Before(l.cut) {
		p.at = l.cut
	}
	if n := len(l.queue); n > 0 && p.at.Before(l.queue[n-1].at) {
		p.at = l.queue[n-1].at
	}
	l.queue = append(l.queue, p)
}

func (l *link) next() (p parcel, some bool) {
	if len(l.queue) == 0 || time.Now().Before(l.queue[0].at) {
		return p, false
	}
	p, l.queue = l.queue[0], l.queue[1:]
	return p, true
}

// A testWire is the server's end of a stream. Only one goroutine at a time uses the simulation's
// state: the driver waits until the others block.
type testWire struct {
	sim      *sim
	up, down link
	inbox    chan []byte
	ctx      context.Context
	end      context.CancelFunc
}

func (w *testWire) Recv() ([]byte, error) {
	select {
	case m := <-w.inbox:
		return m, nil
	default:
	}
	select {
	case m := <-w.inbox:
		return m, nil
	case <-w.ctx.Done():
		return nil, &frames.Failure{Code: 1, Text: "the client has left"}
	}
}

func (w *testWire) Send(m []byte) error {
	if w.ctx.Err() != nil {
		return &frames.Failure{Code: 1, Text: "the client has left"}
	}
	w.sim.do(func() { w.down.add(w.sim.r, parcel{bytes: m}) })
	return nil
}

func (w *testWire) Acknowledged() <-chan struct{} {
	read := make(chan struct{})
	w.sim.do(func() { w.down.add(w.sim.r, parcel{read: read}) })
	return read
}

func (w *testWire) Part()            { w.end() }
func (w *testWire) Take(int64) error { return nil }

// A simEnvoy is Envoy 1.40 as it was measured, with one bucket.
type simEnvoy struct {
	wire        *testWire // nil: no stream
	dead        bool
	pausedUntil time.Time
	tokens      float64
	size        uint32
	config      string // of the token bucket; empty: everything is refused
	expires     time.Time
	reportAt    time.Time
	known       bool // the bucket: a request has come
	allowed     uint64
	denied      uint64
	load, debt  float64
}

type sim struct {
	r       *rand.Rand
	token   chan struct{}
	service *Service
	options Options
	envoys  []*simEnvoy
	running chan struct{} // one element for each stream that is served
	streams int
	kinds   int // of faults
}

// do lets one goroutine at a time use the state.
func (s *sim) do(f func()) {
	s.token <- struct{}{}
	f()
	<-s.token
}

func (e *simEnvoy) dial(s *sim) {
	w := &testWire{sim: s, inbox: make(chan []byte, 1000)}
	w.ctx, w.end = context.WithCancel(context.Background())
	e.wire = w
	service := s.service
	s.streams++
	go func() {
		_ = service.Serve(w.ctx, w, "envoy")
		w.end()
		s.running <- struct{}{}
	}()
}

// report sends what the Envoy has counted. The stream opens with a report.
func (e *simEnvoy) report(s *sim) {
	if e.wire == nil {
		e.dial(s)
	}
	m, _ := proto.Marshal(&pb.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &pb.BucketId{Bucket: map[string]string{"a": "b"}}, NumRequestsAllowed: e.allowed, NumRequestsDenied: e.denied,
	}}})
	e.allowed, e.denied = 0, 0
	e.wire.up.add(s.r, parcel{bytes: m})
}

// apply applies assignments.
func (e *simEnvoy) apply(message []byte) {
	var m pb.RateLimitQuotaResponse
	if err := proto.Unmarshal(message, &m); err != nil {
		panic(err)
	}
	for _, a := range m.BucketAction {
		q := a.GetQuotaAssignmentAction()
		if q == nil {
			*e = simEnvoy{wire: e.wire, load: e.load, reportAt: e.reportAt}
			continue
		}
		live := e.config != "" && time.Now().Before(e.expires)
		e.expires = time.Now().Add(q.AssignmentTimeToLive.AsDuration().Truncate(time.Second))
		b := q.GetRateLimitStrategy().GetTokenBucket()
		if b == nil {
			e.config, e.tokens = "", 0
			if q.RateLimitStrategy.GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL {
				panic("everything is allowed")
			}
			continue
		}
		config := fmt.Sprint(b.MaxTokens, b.TokensPerFill, b.FillInterval.Nanos)
		switch {
		case !live:
			e.tokens = float64(b.MaxTokens)
		case config != e.config:
			e.tokens *= float64(b.MaxTokens) / float64(e.size)
		}
		e.config, e.size = config, b.MaxTokens
	}
}

// spendable is what the Envoy could spend of the lease that it has and of those on their way.
func (e *simEnvoy) spendable() float64 {
	if e.dead {
		return 0
	}
	n := 0.0
	if e.config != "" && time.Now().Before(e.expires) {
		n = e.tokens
	}
	if e.wire == nil {
		return n
	}
	for _, p := range e.wire.down.queue {
		var m pb.RateLimitQuotaResponse
		_ = proto.Unmarshal(p.bytes, &m)
		for _, a := range m.BucketAction {
			n += float64(a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens())
		}
	}
	return n
}

// result is how a run went, in units.
type result struct {
	violation float64 // by how much an interval had more grants than the bound
	most      float64 // that Envoys could spend at a time
	granted   float64
	possible  float64
}

// The kinds of faults: none, all but restarts of the server, and all.
const (
	noFaults   = 0
	noRestarts = 8
	anyFault   = 9
)

// simulate runs five Envoys that ask for demand a second, together, for two minutes. A mutant
// refunds leases when it replaces them.
func simulate(t *testing.T, seed uint64, rate, burst int, demand float64, kinds int, mutant bool) (res result) {
	const n, lasts = 5, 2 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Parse("f", fmt.Appendf(nil, "domain: edge\ndescriptors: [{key: a, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: %d, burst: %d, quota: true}}]", rate, burst))
		if err != nil {
			t.Fatal(err)
		}
		s := &sim{r: rand.New(rand.NewPCG(seed, 7)), token: make(chan struct{}, 1), running: make(chan struct{}, 10_000), kinds: kinds}
		s.options = Options{Rules: func() *rules.Set { return set }, Taker: memengine.New(memengine.Options{}), refundAtOnce: mutant}
		s.service = New(s.options)
		for range n {
			s.envoys = append(s.envoys, &simEnvoy{reportAt: time.Now().Add(time.Duration(s.r.Float64() * float64(5*time.Second))), load: demand / float64(n)})
		}
		var drained float64
		low := math.Inf(1)
		for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(step10ms) {
			synctest.Wait()
			s.token <- struct{}{}
			if kinds > 0 {
				s.fault(demand)
			}
			spendable := 0.0
			for _, e := range s.envoys {
				s.carry(e)
				spendable += e.spendable()
			}
			res.most = max(res.most, spendable)
			low = min(low, res.granted-drained+spendable)
			for _, e := range s.envoys {
				res.granted += s.ask(e)
			}
			res.violation = max(res.violation, res.granted-drained-low-float64(burst))
			drained += float64(rate) * step10ms.Seconds()
			<-s.token
		}
		res.possible = min(drained+float64(burst), demand*lasts.Seconds())
		for _, e := range s.envoys {
			if e.wire != nil {
				e.wire.end()
			}
		}
		s.service.Stop()
		for range s.streams {
			<-s.running
		}
	})
	return res
}

// carry moves what has arrived, and has the Envoy report.
func (s *sim) carry(e *simEnvoy) {
	if w := e.wire; w != nil {
		for p, some := w.up.next(); some; p, some = w.up.next() {
			if p.read != nil {
				close(p.read)
			} else {
				w.inbox <- p.bytes
			}
		}
	}
	if e.dead || time.Now().Before(e.pausedUntil) {
		return
	}
	if !time.Now().Before(e.reportAt) {
		e.reportAt = time.Now().Add(5 * time.Second)
		if e.known {
			e.report(s)
		}
	}
	if w := e.wire; w != nil {
		for p, some := w.down.next(); some; p, some = w.down.next() {
			if p.read != nil {
				w.up.add(s.r, p)
			} else {
				e.apply(p.bytes)
			}
		}
	}
}

// ask sends the requests of a step, and returns how many are granted.
func (s *sim) ask(e *simEnvoy) (granted float64) {
	if e.dead || time.Now().Before(e.pausedUntil) {
		return 0
	}
	for e.debt += e.load * step10ms.Seconds(); e.debt >= 1; e.debt-- {
		switch {
		case !e.known:
			e.known = true
			e.denied++
			e.report(s)
		case e.config != "" && time.Now().Before(e.expires) && e.tokens >= 1:
			e.tokens--
			e.allowed++
			granted++
		default:
			e.denied++
		}
	}
	return granted
}

// hangUp ends a stream. What is on its way is lost.
func (e *simEnvoy) hangUp() {
	if e.wire != nil {
		e.wire.end()
		e.wire = nil
	}
}

// fault has something go wrong, every three seconds on average.
func (s *sim) fault(demand float64) {
	r := s.r
	if r.Float64() > step10ms.Seconds()/3 {
		return
	}
	long := func() time.Time { return time.Now().Add(time.Duration(r.Float64() * float64(20*time.Second))) }
	e := s.envoys[r.IntN(len(s.envoys))]
	switch r.IntN(s.kinds) {
	case 0: // dies, and another one joins
		e.dead = true
		e.hangUp()
		s.envoys = append(s.envoys, &simEnvoy{reportAt: time.Now().Add(time.Duration(r.Float64() * float64(5*time.Second))), load: demand * r.Float64()})
		if len(s.envoys) > 20 {
			s.envoys[0].hangUp()
			s.envoys = s.envoys[1:]
		}
	case 1:
		e.pausedUntil = long()
	case 2, 3, 4:
		if e.wire != nil {
			e.wire.down.cut = long()
			if e.wire.up.cut = e.wire.down.cut; r.IntN(2) == 0 {
				*[]*time.Time{&e.wire.up.cut, &e.wire.down.cut}[r.IntN(2)] = time.Time{}
			}
		}
	case 5, 6:
		e.load = demand * r.Float64() * r.Float64() * 2
	case 7:
		e.hangUp()
	case 8: // the server restarts
		for _, e := range s.envoys {
			e.hangUp()
		}
		s.service = New(s.options)
	}
}

// TestSimulation: no interval has more grants than the limit's bound and the units that Envoys could
// spend when it began, whatever goes wrong. These units have a bound, too, but for those of a server
// that was restarted. If nothing goes wrong, the limit is used.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for _, l := range []struct{ rate, burst int }{{100, 100}, {10, 200}, {1, 2000}} {
		for _, load := range []float64{0.8, 2} {
			t.Run(fmt.Sprintf("%d a second, burst %d, load %v", l.rate, l.burst, load), func(t *testing.T) {
				t.Parallel()
				for seed, kinds := range []int{noFaults, noRestarts, noRestarts, anyFault, anyFault} {
					r := simulate(t, uint64(seed), l.rate, l.burst, load*float64(l.rate+l.burst/100), kinds, false)
					t.Logf("seed %d: violation %.1f, at most %.0f spendable, %.0f %% used", seed, r.violation, r.most, 100*r.granted/r.possible)
					if r.violation > 1.5 {
						t.Errorf("seed %d: an interval has %.1f more grants than its bound", seed, r.violation)
					}
					if most := 2 * max(float64(l.rate), float64(l.burst)/4); kinds < anyFault && r.most > most {
						t.Errorf("seed %d: Envoys could spend %.0f, want at most %.0f", seed, r.most, most)
					}
					if kinds == noFaults && r.granted < 0.9*r.possible {
						t.Errorf("%.0f of %.0f granted", r.granted, r.possible)
					}
				}
			})
		}
	}
}

// TestSimulationFindsMutant: the simulation finds that a lease must not be refunded when it is
// replaced, because Envoy may spend it for a while.
func TestSimulationFindsMutant(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		if r := simulate(t, seed, 10, 200, 20, anyFault, true); r.violation > 1.5 {
			return
		}
	}
	t.Error("no run with refunds at the replacement has more grants than the bound")
}
