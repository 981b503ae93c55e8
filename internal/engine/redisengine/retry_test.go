package redisengine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

const (
	patienceOfClients = 50 * time.Millisecond
	faultShare        = 0.3
	slow              = 96 * time.Hour
)

// A siege is many callers who take through a proxy that loses a good part of what
// passes, and who ask again with the same id until they are answered.
type siege struct {
	calls   int
	callers int
	seed    uint64
	takes   bool // takes only
	clients []*redis.Client

	mu     sync.Mutex
	taken  []*deal
	doubts atomic.Int64 // attempts of which nobody knows whether they ran
}

// A deal is a take and what closes it, with their answers.
type deal struct {
	take, closing *weir.Act
}

// budget is what the deal's limit is for.
type budget string

const (
	wide   budget = "wide"   // more than all takes together; nothing is closed
	closed budget = "closed" // as much; takes are refunded, settled and released
	narrow budget = "narrow" // less; most takes are refused
)

// limitOf is a limit that gives nothing back as long as the test lasts.
func limitOf(b budget, algorithm weir.Algorithm) *weir.Limit {
	l := weir.Limit{Algorithm: algorithm, Count: 10_000, Period: slow}
	if b == narrow {
		l.Count = 100
	}
	switch algorithm {
	case weir.GCRA, weir.TokenBucket, weir.LeakyBucket:
		l.Burst, l.Count = l.Count, 1
	case weir.FixedWindow:
		l.Anchor = weir.AnchorFirst
	}
	return l.MustCompile()
}

// limitsBesieged is every budget of every algorithm, by key.
func limitsBesieged() map[string]*weir.Limit {
	all := make(map[string]*weir.Limit)
	for id := range algo.Steps {
		for _, b := range []budget{wide, closed, narrow} {
			all[keyOf(b, weir.Algorithm(id))] = limitOf(b, weir.Algorithm(id))
		}
	}
	return all
}

func keyOf(b budget, algorithm weir.Algorithm) string { return string(b) + " " + algorithm.String() }

// deals are the calls to make, each with an id of its own.
func (s *siege) deals() []*deal {
	rng := rand.New(rand.NewPCG(s.seed, 1))
	limits := limitsBesieged()
	deals := make([]*deal, s.calls)
	for i := range deals {
		algorithm := weir.Algorithm(i % len(algo.Steps))
		b := []budget{wide, closed, narrow}[rng.IntN(3)]
		if s.takes {
			b = wide
		}
		cost := 1 + rng.Int64N(3)
		if algorithm == weir.Concurrency {
			cost = 1
		}
		charge := weir.Charge{Key: keyOf(b, algorithm), Limit: limits[keyOf(b, algorithm)], Cost: cost}
		d := &deal{take: storetest.NewAct(charge)}
		d.take.ID, d.take.Scope.Owner = fmt.Sprint("call ", i), d.take.Charges[0].Key
		if b == closed {
			charge.Cost = rng.Int64N(cost + 1)
			d.closing = storetest.NewAct(charge)
			d.closing.ID, d.closing.Scope = d.take.ID, d.take.Scope
			d.closing.Kind = acts.KindRefund + weir.Kind(rng.IntN(3))
			if d.closing.Kind == acts.KindSettle {
				d.closing.Charges[0].Cost = settlement(rng, algorithm, cost)
			}
		}
		deals[i] = d
	}
	return deals
}

// settlement is what a take turns out to have cost. What drains all the time gives
// back only what still counts, which the answer to a settlement does not say:
// there it costs more.
func settlement(rng *rand.Rand, algorithm weir.Algorithm, cost int64) int64 {
	switch algorithm {
	case weir.Concurrency:
		return rng.Int64N(cost + 1)
	case weir.GCRA, weir.LeakyBucket:
		return cost + rng.Int64N(3)
	}
	return rng.Int64N(6)
}

// run makes all calls and returns once each is answered.
func (s *siege) run(ctx context.Context) error {
	work := make(chan *deal)
	failed := make(chan error, s.callers)
	var callers sync.WaitGroup
	for i := range s.callers {
		store, err := plain(s.clients[i%len(s.clients)])
		if err != nil {
			return err
		}
		callers.Go(func() {
			for d := range work {
				if err := s.deal(ctx, store, d); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	defer callers.Wait()
	defer close(work)
	for _, d := range s.deals() {
		select {
		case work <- d:
		case err := <-failed:
			return err
		}
	}
	return nil
}

func (s *siege) deal(ctx context.Context, store weir.Taker, d *deal) error {
	if err := s.insist(ctx, store, d.take); err != nil {
		return err
	}
	if d.closing != nil && d.take.Allowed() {
		if err := s.insist(ctx, store, d.closing); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, d)
	return nil
}

// insist asks until there is an answer.
func (s *siege) insist(ctx context.Context, store weir.Taker, a *weir.Act) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, patienceOfClients)
		store.Take(attempt, []*weir.Act{a})
		cancel()
		switch {
		case a.Err == nil:
			return nil
		case ctx.Err() != nil || !errors.Is(a.Err, weir.ErrAmbiguous) && !errors.Is(a.Err, weir.ErrNotApplied):
			return fmt.Errorf("%v of %v: %w", a.Kind, a.Charges[0].Key, a.Err)
		case errors.Is(a.Err, weir.ErrNotApplied):
			// The server is away; asking again at once would keep it busy.
			time.Sleep(time.Millisecond)
		default:
			s.doubts.Add(1)
		}
	}
}

// granted is what the answers say was granted and not given back, by key.
func (s *siege) granted() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := make(map[string]int64)
	for _, d := range s.taken {
		sums[d.take.Charges[0].Key] += d.granted()
	}
	return sums
}

func (d *deal) granted() int64 {
	granted := d.take.Decisions[0].Granted
	if d.closing == nil || granted == 0 {
		return granted
	}
	closing := d.closing.Decisions[0].Granted
	if d.closing.Kind == acts.KindSettle {
		return closing
	}
	return granted - closing
}

// charged is what the store holds, by key.
func charged(store weir.Taker) (map[string]int64, error) {
	sums := make(map[string]int64)
	for key, limit := range limitsBesieged() {
		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit})
		if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
			return nil, a.Err
		}
		sums[key] = limit.Capacity() - a.Decisions[0].Remaining
	}
	return sums, nil
}

// crossings is how often, in a siege, what drains all the time may pass a whole unit
// between two calls: a closing gives back what still counts, which can leave a hair
// more than whole units.
const crossings = 8

// compare demands that what is charged is what was granted.
func (s *siege) compare(store weir.Taker) error {
	got, err := charged(store)
	if err != nil {
		return err
	}
	var differences []error
	for key, granted := range s.granted() {
		drained := key == keyOf(closed, weir.GCRA) || key == keyOf(closed, weir.LeakyBucket)
		if got[key] != granted && (!drained || got[key] > granted || got[key] < granted-crossings) {
			differences = append(differences, fmt.Errorf("%s: charged %d, granted %d", key, got[key], granted))
		}
	}
	return errors.Join(differences...)
}

// repeat asks once more for everything, when nothing is charged any longer, and
// demands the answers that were given.
func (s *siege) repeat(store weir.Taker) error {
	for key, limit := range limitsBesieged() {
		reset := storetest.NewAct(weir.Charge{Key: key, Limit: limit})
		reset.Kind = acts.KindReset
		if store.Take(context.Background(), []*weir.Act{reset}); reset.Err != nil {
			return reset.Err
		}
	}
	var differences []error
	for _, d := range s.taken {
		for _, first := range []*weir.Act{d.take, d.closing} {
			if first == nil || !d.take.Allowed() && (first == d.closing || forgotten(first)) {
				continue
			}
			again := *first
			again.Decisions = make([]weir.Decision, 1)
			store.Take(context.Background(), []*weir.Act{&again})
			released := first == d.take && d.closing != nil && d.closing.Kind == acts.KindRelease && d.take.Allowed()
			switch {
			case released && !errors.Is(again.Err, weir.ErrReleased),
				!released && (again.Err != nil || !slices.Equal(again.Decisions, first.Decisions)):
				differences = append(differences, fmt.Errorf("%v %v of %s: %+v, then %+v, %v",
					first.Kind, first.ID, first.Charges[0].Key, first.Decisions, again.Decisions, again.Err))
			}
		}
	}
	return errors.Join(differences...)
}

// forgotten reports whether a refused take may be decided anew.
func forgotten(a *weir.Act) bool {
	return time.Since(a.Decisions[0].At) > acts.RefusedIDLife/2
}

// A lottery draws the faults: none for what sets a connection up, and of script
// calls a share for all faults alike.
type lottery struct {
	mu          sync.Mutex
	rng         *rand.Rand
	calls, lost int
}

func (l *lottery) draw(request []byte) testserver.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !bytes.Contains(request[:min(len(request), 32)], []byte("\r\neval")) {
		return testserver.Pass
	}
	l.calls++
	if l.rng.Float64() >= faultShare {
		return testserver.Pass
	}
	l.lost++
	return 1 + testserver.Fault(l.rng.IntN(int(testserver.Faults)-1))
}

// besieging is clients of both kinds at an address: those that keep to the
// context's deadline and those that have their own.
func besieging(t *testing.T, address string) []*redis.Client {
	t.Helper()
	var clients []*redis.Client
	for _, punctual := range []bool{true, false} {
		client := redis.NewClient(&redis.Options{
			Addr: address, ContextTimeoutEnabled: punctual, ReadTimeout: patienceOfClients, PoolSize: 64,
		})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	return clients
}

func plain(client redis.UniversalClient) (*redisengine.Store, error) {
	return redisengine.New(client, redisengine.Options{Timeout: 10 * time.Second})
}

// against runs the siege against a Redis of its own and returns a way around the
// proxy.
func (s *siege) against(t *testing.T) (*redisengine.Store, error) {
	t.Helper()
	address := testserver.StartRedis(t).Addr()
	faults := &lottery{rng: rand.New(rand.NewPCG(s.seed, 2))}
	p := testserver.StartProxy(t, address, faults.draw)
	s.clients = besieging(t, p.Addr())
	err := s.run(t.Context())
	p.Close()
	for f := testserver.Pass; f < testserver.Faults; f++ {
		if p.Done(f) == 0 {
			t.Errorf("no request met fault %d", f)
		}
	}
	if faults.lost*5 < faults.calls || faults.calls < s.calls {
		t.Errorf("%d of %d calls were lost, want a fifth", faults.lost, faults.calls)
	}
	return open(t, dial(t, address), redisengine.Options{}), err
}

// TestIDsHappenOnce loses a third of all script calls in every way there is, some
// before they ran, some after, some while their repeat runs.
func TestIDsHappenOnce(t *testing.T) {
	t.Parallel()
	s := &siege{calls: storetest.Length(1000), callers: 32, seed: 1}
	store, err := s.against(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.compare(store); err != nil {
		t.Error(err)
	}
	if err := s.repeat(store); err != nil {
		t.Error(err)
	}
}
