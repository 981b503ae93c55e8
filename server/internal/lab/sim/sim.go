// Package sim plays traffic against limits in virtual time. The server's own steps
// decide: every request goes through a memory store whose clock the scenario sets. All
// randomness comes from the scenario's seed, so the same scenario gives the same result.
package sim

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A Result is the result of a scenario.
type Result struct {
	Scenario Scenario
	// Width is how much time each point of a Run's course stands for.
	Width time.Duration
	// Runs has one element for each algorithm, in the scenario's order.
	Runs []Run
}

// A Run is the result of one algorithm for the scenario's traffic.
type Run struct {
	Algorithm weir.Algorithm
	// Limit is the rule that was applied.
	Limit weir.Limit
	// Requests are those that clients meant to make; Offered counts their
	// retries too.
	Requests, Offered, Granted int64
	// Worst is the most units that any key could use in any half-open interval
	// of the limit's period.
	Worst int64
	// Bound is the most that the algorithm promises for Worst; 0 where shares or
	// faults of the store undo that promise.
	Bound int64
	// Fairness is Jain's index over the clients' grants: 1 if all got
	// the same, 1/n if one of n got it all.
	Fairness float64
	// KeyBytes is the memory of the first key, at its most, as the memory store
	// estimates it.
	KeyBytes int64
	// LongestDelay is the longest that a grant had to wait before its use.
	LongestDelay time.Duration
	// Offers, Grants and Held are the course of the scenario: requests in each
	// point, grants in each, and the most that any key held, of the last period,
	// at any instant of it.
	Offers, Grants, Held []int64
}

// Refused is how many of the requests offered were refused.
func (r *Run) Refused() int64 { return r.Offered - r.Granted }

// Progress is called with the number of requests that are done, and the approximate
// number of all (without retries). It is called by several goroutines, one at a time.
type Progress func(done, expected int64)

// progressEvery is how many requests pass between two looks at the world outside.
const progressEvery = 1 << 16

// Run plays the scenario, its algorithms beside one another on as many cores as there
// are. The error is a [*weir.InvalidError], or that of ctx. A nil progress is not called.
func (s Scenario) Run(ctx context.Context, progress Progress) (*Result, error) {
	if _, err := s.Limit.Compile(); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	players := make([]*player, len(s.Algorithms))
	for i, algorithm := range s.Algorithms {
		p, err := newPlayer(&s, algorithm)
		if err != nil {
			return nil, err
		}
		players[i] = p
	}
	report := meter{progress: progress, expected: int64(s.expected()) * int64(len(players))}
	var group sync.WaitGroup
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, p := range players {
		cores <- struct{}{}
		group.Go(func() {
			p.play(ctx, &report)
			<-cores
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result := &Result{Scenario: s, Width: time.Duration(players[0].tally.width) * time.Microsecond}
	for _, p := range players {
		result.Runs = append(result.Runs, p.tally.run)
	}
	return result, nil
}

// A meter adds up the progress of all players.
type meter struct {
	mu       sync.Mutex
	progress Progress
	done     int64
	expected int64
}

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	if m.progress != nil {
		m.progress(m.done, m.expected)
	}
}

// A player plays a scenario to one algorithm.
type player struct {
	scenario *Scenario
	world    *world
	tally    *tally
	source   source
	again    queue
	rng      *rand.Rand // of those who come again
	upcoming arrival
	more     bool
}

func newPlayer(s *Scenario, algorithm weir.Algorithm) (*player, error) {
	limit, err := s.limit(algorithm)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(s, limit)
	if err != nil {
		return nil, err
	}
	p := &player{scenario: s, world: w, tally: newTally(s, w.limit), source: newSource(s), rng: rand.New(rand.NewPCG(s.Seed, 3))}
	p.tally.run.Limit = limit
	if !s.LocalShares && len(s.Faults) == 0 {
		p.tally.run.Bound = w.limit.Rule().Worst()
	}
	return p, nil
}

func (p *player) play(ctx context.Context, m *meter) {
	end := p.scenario.Duration.Microseconds()
	p.upcoming, p.more = p.source.next()
	done := int64(0)
	for {
		a, ok := p.next()
		if !ok || a.at >= end {
			break
		}
		p.step(a)
		if done++; done == progressEvery {
			m.add(done)
			done = 0
			if ctx.Err() != nil {
				return
			}
		}
	}
	m.add(done)
	p.tally.pass(end)
	p.tally.run.Fairness = p.tally.jain()
	p.tally.run.KeyBytes = max(p.tally.run.KeyBytes, p.world.bytes())
}

// next returns the earliest arrival, a new one or a retry.
func (p *player) next() (arrival, bool) {
	if p.again.Len() > 0 && (!p.more || p.again.waiting[0].at < p.upcoming.at) {
		return p.again.pop(), true
	}
	a, ok := p.upcoming, p.more
	if ok {
		p.upcoming, p.more = p.source.next()
	}
	return a, ok
}

func (p *player) step(a arrival) {
	if p.tally.pass(a.at) {
		p.tally.run.KeyBytes = max(p.tally.run.KeyBytes, p.world.bytes())
	}
	key := a.client % len(p.world.keys)
	d := p.world.take(a.at, key)
	p.tally.count(a, key, d)
	if d.Allowed() {
		return
	}
	if wait, comes := p.scenario.Retry.wait(d, a.attempt, p.rng); comes {
		p.again.push(arrival{at: a.at + wait, client: a.client, attempt: a.attempt + 1})
	}
}
