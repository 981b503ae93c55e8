package sim

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Pattern is when requests arrive.
type Pattern uint8

const (
	// Steady: evenly, the clients in turn. The zero value.
	Steady Pattern = iota
	// Poisson: at random, by random clients.
	Poisson
	// Edge: as many requests as the limit's count, of each client, right before
	// the edge of a window in the middle of the scenario, and as many behind it.
	Edge
	// Diurnal: at random, over days (or one that is as short as the scenario)
	// whose noon has nine times the requests of their midnight.
	Diurnal
	// Spike: at random, five times as often in one tenth of the scenario.
	Spike
	// Abuser: at random; half of all requests are the first client's.
	Abuser
	patterns
)

var patternNames = []string{"steady", "poisson", "edge", "diurnal", "spike", "abuser"}

// String returns the pattern's name.
func (p Pattern) String() string { return patternNames[min(p, patterns-1)] }

// PatternNames lists the names of all patterns, for messages.
func PatternNames() string { return strings.Join(patternNames, ", ") }

// ParsePattern returns the pattern of that name.
func ParsePattern(name string) (Pattern, error) {
	p, err := named("pattern", name, patternNames)
	return Pattern(p), err
}

// An arrival is one request of a client, in µs from the start on.
type arrival struct {
	at      int64
	client  int
	attempt int // how often it was refused before
}

// A source makes arrivals, in order, until there are no more.
type source interface {
	next() (arrival, bool)
}

// newSource makes the same arrivals, independent of their results.
func newSource(s *Scenario) source {
	end := s.Duration.Microseconds()
	switch s.Pattern {
	case Steady:
		return &steady{gap: 1e6 / s.Rate, end: end, clients: s.clients()}
	case Edge:
		return newEdge(s)
	}
	r := &random{rng: rand.New(rand.NewPCG(s.Seed, 1)), end: end, clients: s.clients(), peak: 1}
	switch s.Pattern {
	case Diurnal:
		r.peak, r.factor = 1.8, daily(s.Duration)
	case Spike:
		r.peak, r.factor = spikeFactor/spikeMean, spike(end)
	case Abuser:
		r.abuser = true
	}
	r.gap = 1e6 / (s.Rate * r.peak)
	return r
}

type steady struct {
	gap     float64
	n       int64
	end     int64
	clients int
}

func (s *steady) next() (arrival, bool) {
	a := arrival{at: int64(float64(s.n) * s.gap), client: int(s.n % int64(s.clients))}
	s.n++
	return a, a.at < s.end
}

// edge is two bursts of a sixtieth of a period each, back to back.
type edge struct {
	start, length int64 // of both bursts
	n, requests   int64
	clients       int64
}

func newEdge(s *Scenario) *edge {
	period := s.Limit.Period
	length := max(1, period.Microseconds()/60)
	middle := max(1, s.Duration/(2*period)) * period
	return &edge{
		start: middle.Microseconds() - length, length: 2 * length,
		requests: 2 * s.Limit.Count * int64(s.clients()), clients: int64(s.clients()),
	}
}

func (e *edge) next() (arrival, bool) {
	if e.n == e.requests {
		return arrival{}, false
	}
	at := e.start + int64(float64(e.length)*(float64(e.n)/float64(e.requests)))
	a := arrival{at: at, client: int(e.n % e.clients)}
	e.n++
	return a, true
}

// random is a Poisson process whose rate may vary: arrivals at the peak rate,
// thinned out.
type random struct {
	rng     *rand.Rand
	now     float64
	gap     float64 // mean µs between arrivals at the peak
	peak    float64
	factor  func(at float64) float64 // of the mean rate, at most peak; nil for 1
	end     int64
	clients int
	abuser  bool
}

func (r *random) next() (arrival, bool) {
	for {
		r.now += r.rng.ExpFloat64() * r.gap
		if r.now >= float64(r.end) {
			return arrival{}, false
		}
		if r.factor == nil || r.rng.Float64()*r.peak < r.factor(r.now) {
			return arrival{at: int64(r.now), client: r.client()}, true
		}
	}
}

func (r *random) client() int {
	if !r.abuser || r.clients == 1 {
		return r.rng.IntN(r.clients)
	}
	if r.rng.Uint64()&1 == 0 {
		return 0
	}
	return 1 + r.rng.IntN(r.clients-1)
}

func daily(duration time.Duration) func(float64) float64 {
	day := float64(min(duration, 24*time.Hour).Microseconds())
	return func(at float64) float64 { return 1 - 0.8*math.Cos(2*math.Pi*at/day) }
}

// Of the scenario's length, a spike has the tenth from 0.4 on.
const (
	spikeFactor = 5
	spikeStart  = 0.4
	spikeLength = 0.1
	spikeMean   = 1 + (spikeFactor-1)*spikeLength
)

func spike(end int64) func(float64) float64 {
	from, to := spikeStart*float64(end), (spikeStart+spikeLength)*float64(end)
	return func(at float64) float64 {
		if at >= from && at < to {
			return spikeFactor / spikeMean
		}
		return 1 / spikeMean
	}
}
