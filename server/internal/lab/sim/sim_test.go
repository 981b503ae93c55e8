package sim

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

func run(t testing.TB, s Scenario) *Result {
	t.Helper()
	result, err := s.Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestBuiltin: what comes along runs, keeps the algorithms' promises, and has the
// same result each time.
func TestBuiltin(t *testing.T) {
	t.Parallel()
	for _, s := range Builtin() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			first, second := run(t, s), run(t, s)
			if !reflect.DeepEqual(first, second) {
				t.Error("two runs differ")
			}
			for i := range first.Runs {
				r := &first.Runs[i]
				if r.Offered == 0 || r.Granted == 0 || r.Granted > r.Offered || r.Fairness <= 0 || r.Fairness > 1+1e-9 {
					t.Errorf("%v: %+v", r.Algorithm, r)
				}
				if r.Bound > 0 && r.Worst > r.Bound {
					t.Errorf("%v: %d in a period, promised %d", r.Algorithm, r.Worst, r.Bound)
				}
				if total(r.Grants) != r.Granted || total(r.Offers) != r.Offered {
					t.Errorf("%v: the course does not add up", r.Algorithm)
				}
			}
			if _, err := Find(s.Name); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestModel: the engine grants what the definition of the rule says, request by
// request, and its worst period is the worst.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		for _, algorithm := range s.Algorithms {
			p, err := newPlayer(&s, algorithm)
			if err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
			judges := make([]*storetest.Judge, s.Keys)
			grants := make([][]int64, s.Keys)
			for i := range judges {
				judges[i] = storetest.NewJudge(p.world.limit)
			}
			for a, ok := p.source.next(); ok; a, ok = p.source.next() {
				key := a.client % s.Keys
				p.tally.pass(a.at)
				d := p.world.take(a.at, key)
				p.tally.count(a, key, d)
				if want := judges[key].Take(p.world.now, 1); d.Allowed() != want {
					t.Fatalf("%v at %d µs: granted %v, the rule says %v", p.world.limit, a.at, d.Allowed(), want)
				}
				if d.Allowed() {
					grants[key] = append(grants[key], a.at+d.Delay.Microseconds())
				}
			}
			if want := worst(grants, s.Limit.Period.Microseconds()); p.tally.run.Worst != want || want > p.world.limit.Rule().Worst() {
				t.Fatalf("%v: worst %d, want %d, at most %d", p.world.limit, p.tally.run.Worst, want, p.world.limit.Rule().Worst())
			}
		}
	})
}

func drawScenario(t *rapid.T) Scenario {
	s := Scenario{
		Limit:      weir.Per(rapid.Int64Range(1, 9).Draw(t, "count"), time.Duration(rapid.IntRange(1, 5000).Draw(t, "period ms"))*time.Millisecond),
		Algorithms: Counting(),
		Pattern:    Pattern(rapid.IntRange(0, int(patterns)-1).Draw(t, "pattern")),
		Keys:       rapid.IntRange(1, 3).Draw(t, "keys"),
		Seed:       rapid.Uint64().Draw(t, "seed"),
	}
	s.Clients = s.Keys + rapid.IntRange(0, 3).Draw(t, "more clients")
	s.Duration = s.Limit.Period * time.Duration(rapid.IntRange(2, 6).Draw(t, "periods"))
	s.Rate = float64(s.Limit.Count) / s.Limit.Period.Seconds() * float64(s.Keys) * rapid.Float64Range(0.3, 3).Draw(t, "load")
	return s
}

// worst looks at every interval that ends with a grant.
func worst(grants [][]int64, period int64) int64 {
	most := int64(0)
	for _, at := range grants {
		for _, end := range at {
			n := int64(0)
			for _, x := range at {
				if x > end-period && x <= end {
					n++
				}
			}
			most = max(most, n)
		}
	}
	return most
}

// TestPatterns: traffic has the rate that was asked for, and the shape.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for p := range patterns {
		s := Scenario{Limit: weir.PerSecond(100), Pattern: p, Rate: 500, Keys: 4, Duration: 100 * time.Second, Seed: 7}
		n, last, first := 0, int64(-1), 0
		var tenths [10]int
		for source := newSource(&s); ; {
			a, ok := source.next()
			if !ok {
				break
			}
			if a.at < last || a.at >= s.Duration.Microseconds() || a.client < 0 || a.client >= s.clients() {
				t.Fatalf("%v: %+v after %d", p, a, last)
			}
			n, last = n+1, a.at
			tenths[a.at*10/s.Duration.Microseconds()]++
			if a.client == 0 {
				first++
			}
		}
		if want := s.expected(); math.Abs(float64(n)-want) > 5*math.Sqrt(want) {
			t.Errorf("%v: %d requests, want about %g", p, n, want)
		}
		share := float64(first) / float64(n)
		if want := map[bool]float64{true: 0.5, false: 0.25}[p == Abuser]; math.Abs(share-want) > 0.02 {
			t.Errorf("%v: the first client has %.3f of all requests, want %.2f", p, share, want)
		}
		if p == Spike && tenths[4] < 4*tenths[3] || p == Diurnal && tenths[5] < 4*tenths[0] {
			t.Errorf("%v: tenths %v", p, tenths)
		}
	}
}

// TestFaults: an outage and a failover do what they are said to.
func TestFaults(t *testing.T) {
	t.Parallel()
	base := Scenario{
		Limit: weir.PerMinute(100), Algorithms: []weir.Algorithm{weir.SlidingLog}, Pattern: Steady, Rate: 10,
		Keys: 1, Duration: 4 * time.Minute, Instances: 4,
	}
	granted := func(faults ...string) *Run {
		s := base
		for _, text := range faults {
			f, err := ParseFault(text)
			if err != nil {
				t.Fatal(err)
			}
			s.Faults = append(s.Faults, f)
		}
		return &run(t, s).Runs[0]
	}
	whole := granted()
	if whole.Granted != 400 || whole.Worst != 100 {
		t.Errorf("without a fault: %d, worst %d", whole.Granted, whole.Worst)
	}
	for text, want := range map[string]struct{ least, most, worst int64 }{
		"outage 60s+60s allow":  {900, 900, 600},
		"outage 60s+60s deny":   {300, 300, 100},
		"outage 60s+60s local":  {395, 400, 200}, // what the instances grant, the store does not know
		"failover 60s-20s":      {400, 400, 100}, // nothing was granted in them
		"failover 70s-20s":      {500, 500, 200},
		"failover 30s-30s":      {500, 500, 200},
		"outage 0s+240s allow":  {2400, 2400, 600},
		"outage 239s+1s deny":   {400, 400, 100},
		"failover 240s-240s":    {400, 400, 100},
		"outage 30s+500ms deny": {400, 400, 100},
	} {
		r := granted(text)
		if r.Granted < want.least || r.Granted > want.most || r.Worst > want.worst || r.Bound != 0 {
			t.Errorf("%s: %d granted, worst %d; want %+v", text, r.Granted, r.Worst, want)
		}
	}
	// What a failover forgets is granted again, each time.
	lost := granted("failover 5s-5s", "failover 120s-55s", "outage 200s+1s deny")
	if lost.Granted <= whole.Granted || lost.Worst < 150 || lost.Worst > 200 {
		t.Errorf("after two failovers: %d granted, worst %d", lost.Granted, lost.Worst)
	}
}

// TestLocalShares: each instance keeps to its share.
func TestLocalShares(t *testing.T) {
	t.Parallel()
	s := Scenario{
		Limit: weir.PerMinute(100), Algorithms: []weir.Algorithm{weir.SlidingLog}, Pattern: Poisson, Rate: 100,
		Keys: 1, Duration: time.Minute, Instances: 4, LocalShares: true,
	}
	if r := run(t, s).Runs[0]; r.Granted != 100 {
		t.Errorf("four shares of 25: %d granted", r.Granted)
	}
	s.Instances = 300
	if r := run(t, s).Runs[0]; r.Granted < 290 || r.Granted > 300 {
		t.Errorf("300 shares of at least 1: %d granted", r.Granted)
	}
}

// TestRetry: the refused come again, and only they.
func TestRetry(t *testing.T) {
	t.Parallel()
	offered := map[Retry]int64{}
	for retry := range retries {
		s := Scenario{
			Limit: weir.PerSecond(10), Algorithms: []weir.Algorithm{weir.GCRA}, Pattern: Spike, Rate: 9, Retry: retry,
			Keys: 1, Clients: 100, Duration: time.Minute, Seed: 3,
		}
		r := run(t, s).Runs[0]
		offered[retry] = r.Offered
		if r.Requests > r.Offered || (retry == RetryNever) != (r.Requests == r.Offered) {
			t.Errorf("%v: %d requests, %d with retries", retry, r.Requests, r.Offered)
		}
	}
	for retry := RetryAtOnce; retry < retries; retry++ {
		if offered[retry] < 2*offered[RetryNever] {
			t.Errorf("%v: offered %v", retry, offered)
		}
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var q queue
	var want []int64
	for i := range 1000 {
		at := rng.Int64N(100)
		q.push(arrival{at: at, client: i})
		want = append(want, at)
	}
	slices.Sort(want)
	last := arrival{client: -1}
	for i := range want {
		a := q.pop()
		if a.at != want[i] || a.at == last.at && a.client < last.client {
			t.Fatalf("%d: %+v after %+v, want %d", i, a, last, want[i])
		}
		last = a
	}
}

// TestAbsurd: what cannot be simulated is named.
func TestAbsurd(t *testing.T) {
	t.Parallel()
	good := Scenario{
		Limit: weir.PerSecond(10), Algorithms: []weir.Algorithm{weir.GCRA}, Pattern: Poisson, Rate: 10, Keys: 1, Duration: time.Second,
	}
	run(t, good)
	for field, change := range map[string]func(*Scenario){
		"keys":       func(s *Scenario) { s.Keys = 0 },
		"keys ":      func(s *Scenario) { s.Keys = MaxKeys + 1 },
		"keys  ":     func(s *Scenario) { s.Limit, s.Keys, s.Rate = weir.PerSecond(1000), MaxKeys, 9e8 },
		"clients":    func(s *Scenario) { s.Clients = -1 },
		"clients ":   func(s *Scenario) { s.Keys, s.Clients = 3, 2 },
		"rate":       func(s *Scenario) { s.Rate = 0 },
		"rate ":      func(s *Scenario) { s.Rate = 1e12 },
		"rate  ":     func(s *Scenario) { s.Rate = math.NaN() },
		"rate   ":    func(s *Scenario) { s.Rate, s.Duration = 1e9, time.Hour },
		"duration":   func(s *Scenario) { s.Duration = -1 },
		"duration ":  func(s *Scenario) { s.Pattern = Edge },
		"duration  ": func(s *Scenario) { s.Duration = maxLength + 1 },
		"instances":  func(s *Scenario) { s.Instances = -2 },
		"algorithms": func(s *Scenario) { s.Algorithms = nil },
		"algorithms ": func(s *Scenario) {
			s.Algorithms = []weir.Algorithm{weir.Concurrency}
		},
		"pattern": func(s *Scenario) { s.Pattern = patterns },
		"retry":   func(s *Scenario) { s.Retry = retries },
		"count":   func(s *Scenario) { s.Limit.Count = -1 },
		"fault":   func(s *Scenario) { s.Faults = []Fault{{At: time.Hour}} },
		"fault ":  func(s *Scenario) { s.Faults = []Fault{{Length: -1}} },
		"fault  ": func(s *Scenario) { s.Faults = []Fault{{At: 500e6, Length: 100e6}, {At: 550e6}} },
		"faults":  func(s *Scenario) { s.LocalShares, s.Faults = true, []Fault{{}} },
	} {
		s := good
		change(&s)
		_, err := s.Run(context.Background(), nil)
		invalid := new(weir.InvalidError)
		if !errors.As(err, &invalid) || invalid.Field != strings.TrimRight(field, " ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestParseFault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"outage 30s+10s local", "outage 1m0s+0s allow", "outage 0s+1ms deny", "failover 1m0s-5s"} {
		if f, err := ParseFault(text); err != nil || f.String() != text {
			t.Errorf("%q: got %v, %v", text, f, err)
		}
	}
	for _, text := range []string{"", "outage", "outage 30s", "outage 30s-10s", "outage 30s+10s maybe", "failover 60s+5s", "failover 60s-5s allow", "flood 1s+1s", "outage x+1s"} {
		if f, err := ParseFault(text); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%q: got %v, %v", text, f, err)
		}
	}
}

// TestCancel: a run ends when nobody waits for it any more.
func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	s := Scenario{
		Limit: weir.PerSecond(10), Algorithms: Counting(), Pattern: Steady, Rate: 1e6, Keys: 10, Duration: 100 * time.Second,
	}
	_, err := s.Run(ctx, func(done, expected int64) {
		if expected != 7e8 {
			t.Errorf("%d expected", expected)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
