package measure

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

// A Scenario is what all contestants are asked.
type Scenario struct {
	Name    string
	Limits  []contest.Limit
	Keys    *Keys
	Callers []int
	// Keyless says whether contestants with one budget for everything may join.
	Keyless bool
}

// A Plan is how often and how long each contestant is asked.
type Plan struct {
	Rounds   int
	Duration time.Duration
	// Warm is how long the round lasts that is not counted. Zero: a quarter of Duration.
	Warm     time.Duration
	Stride   int
	Progress func(string)
}

// A Row is all rounds of one contestant in one scenario with so many callers.
type Row struct {
	Scenario   string `json:"scenario"`
	Callers    int    `json:"callers"`
	Contestant string `json:"contestant"`
	Cells      []Cell `json:"cells"`
}

// Median returns the median of a figure over the rounds, and its extremes.
func (r *Row) Median(figure func(*Cell) float64) (median, low, high float64) {
	values := make([]float64, len(r.Cells))
	for i := range r.Cells {
		values[i] = figure(&r.Cells[i])
	}
	median = middle(values)
	return median, values[0], values[len(values)-1]
}

// Errors counts the decisions that were not reached, over all rounds.
func (r *Row) Errors() int {
	n := 0
	for i := range r.Cells {
		n += r.Cells[i].Errors
	}
	return n
}

// Compete measures the contestants in a scenario, in interleaved rounds: each
// round asks every one of them once, in an order of its own, so that whatever
// else the machine does meets all alike. For each number of callers Redis begins with
// nothing: the keys of one are not the other's burden. The rows are appended to those given.
func (p Plan) Compete(ctx context.Context, s Scenario, all []contest.Contestant, r *Redis, rows *[]Row) error {
	for _, callers := range s.Callers {
		got, err := p.compete(ctx, s, callers, all, r)
		if err != nil {
			return err
		}
		*rows = append(*rows, got...)
		if r == nil {
			continue
		}
		if err := r.Clear(); err != nil {
			return err
		}
	}
	return nil
}

func (p Plan) compete(ctx context.Context, s Scenario, callers int, all []contest.Contestant, r *Redis) ([]Row, error) {
	p.Progress(fmt.Sprintf("%s, %d callers", s.Name, callers))
	var rows []Row
	var limiters []contest.Limiter
	defer func() {
		for _, l := range limiters {
			_ = l.Close()
		}
	}()
	for i, c := range all {
		if c.Keyless && !s.Keyless || c.Blocking && s.Limits[0] == contest.Tight {
			continue
		}
		l, err := c.Open(s.env(callers, i, r))
		if err != nil {
			return nil, fmt.Errorf("bench: open %s: %w", c.Name, err)
		}
		limiters = append(limiters, l)
		rows = append(rows, Row{Scenario: s.Name, Callers: callers, Contestant: c.Name})
	}
	run := Run{Keys: s.Keys, Callers: callers, Stride: p.Stride, Redis: r, Duration: cmp.Or(p.Warm, p.Duration/4)}
	for round := range p.Rounds + 1 { // the first one warms up
		for _, i := range rand.Perm(len(rows)) {
			run.PID = limiters[i].PID
			cell, err := run.Measure(ctx, limiters[i])
			if err != nil {
				return nil, err
			}
			if round > 0 {
				rows[i].Cells = append(rows[i].Cells, cell)
			}
		}
		run.Duration = p.Duration
	}
	return rows, nil
}

func (s *Scenario) env(callers, contestant int, r *Redis) contest.Env {
	e := contest.Env{Limits: s.Limits, Callers: callers, Prefix: fmt.Sprintf("%s:%d:%d:", s.Keys.Name, callers, contestant)}
	if r != nil {
		e.Address = r.Address
	}
	return e
}

// An Exactness is how many units a contestant has granted of a limit.
type Exactness struct {
	Contestant string `json:"contestant"`
	Nodes      int    `json:"nodes"`
	Limit      int    `json:"limit"`
	Asked      int    `json:"asked"`
	Granted    int    `json:"granted"`
	Errors     int    `json:"errors"`
}

// Exact lets 64 callers on each of so many nodes ask for one key, together ten
// times what the limit allows.
func Exact(ctx context.Context, c contest.Contestant, nodes int, r *Redis) (Exactness, error) {
	const callers = 64
	e := Exactness{Contestant: c.Name, Nodes: nodes, Limit: contest.Counted.Count}
	env := contest.Env{Limits: []contest.Limit{contest.Counted}, Callers: callers, Prefix: fmt.Sprint("exact:", c.Name, nodes, ":")}
	if r != nil {
		env.Address = r.Address
	}
	l, err := contest.Fleet(c, nodes).Open(env)
	if err != nil {
		return e, fmt.Errorf("bench: open %s: %w", c.Name, err)
	}
	each := 10 * e.Limit / (callers * nodes)
	reports := make([]loadtest.Report, callers*nodes)
	var done sync.WaitGroup
	for i := range reports {
		done.Go(func() {
			for range each {
				ok, err := l.Allow(ctx, "user:exact")
				note(&reports[i], ok, err)
			}
		})
	}
	done.Wait()
	for i := range reports {
		e.Asked, e.Granted, e.Errors = e.Asked+reports[i].Requests(), e.Granted+reports[i].Granted, e.Errors+reports[i].Failed
	}
	return e, l.Close()
}

// middle sorts the values and returns their median.
func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
