// Package measure runs contestants and computes the cost of a decision.
package measure

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

// A Cell is one contestant in one scenario with so many callers, for a moment.
type Cell struct {
	Decisions   int     `json:"decisions"`
	Granted     int     `json:"granted"`
	Errors      int     `json:"errors"`
	PerSecond   float64 `json:"per_second"`
	P50us       float64 `json:"p50_us"`
	P99us       float64 `json:"p99_us"`
	ClientCPUus float64 `json:"client_cpu_us"` // a decision, as all that follow
	ServerCPUus float64 `json:"server_cpu_us,omitempty"`
	RedisCPUus  float64 `json:"redis_cpu_us"`
	Commands    float64 `json:"commands"`
	Scripts     float64 `json:"scripts"`
	Allocs      float64 `json:"allocs"`
}

// A Run says how a cell is measured.
type Run struct {
	Keys     *Keys
	Callers  int
	Duration time.Duration
	// Stride is every how many decisions one is timed: reading the clock costs
	// as much as a decision in memory.
	Stride int
	// Redis is the server whose work counts; nil for none.
	Redis *Redis
	// PID is the process between client and Redis; 0 for none.
	PID int
}

// longest is the longest latency told apart, in ns.
const longest = int64(30 * time.Second)

// Measure lets the callers ask as fast as they are answered.
func (r Run) Measure(ctx context.Context, l contest.Limiter) (Cell, error) {
	reports := make([]loadtest.Report, r.Callers)
	for i := range reports {
		reports[i].Latency = hdrhistogram.New(1, longest, 3)
	}
	before, err := r.meter()
	if err != nil {
		return Cell{}, err
	}
	if l.Drive != nil {
		report, err := l.Drive(ctx, r.Callers, r.Duration)
		if err != nil {
			return Cell{}, err
		}
		reports = []loadtest.Report{report}
	} else {
		r.askAll(ctx, l, reports)
	}
	after, err := r.meter()
	if err != nil {
		return Cell{}, err
	}
	return sum(reports, before, after), nil
}

func (r Run) askAll(ctx context.Context, l contest.Limiter, reports []loadtest.Report) {
	var stop atomic.Bool
	var done sync.WaitGroup
	for i := range reports {
		done.Go(func() { r.ask(ctx, l, &reports[i], i*7919, &stop) })
	}
	time.Sleep(r.Duration)
	stop.Store(true)
	done.Wait()
}

func (r Run) ask(ctx context.Context, l contest.Limiter, to *loadtest.Report, first int, stop *atomic.Bool) {
	// Counted where no other caller writes: what is beside it in memory, others count in.
	own, untimed := *to, 0
	for i := first; !stop.Load(); i++ {
		timed := untimed == 0
		var begun time.Time
		if timed {
			untimed, begun = r.Stride, time.Now()
		}
		untimed--
		ok, err := l.Allow(ctx, r.Keys.at(i))
		if timed {
			_ = own.Latency.RecordValue(min(time.Since(begun).Nanoseconds(), longest))
		}
		note(&own, ok, err)
	}
	*to = own
}

// note counts an answer.
func note(r *loadtest.Report, ok bool, err error) {
	switch {
	case err != nil:
		r.Failed++
	case ok:
		r.Granted++
	default:
		r.Refused++
	}
}

// A meter is the state of all counters at one instant.
type meter struct {
	at      time.Time
	cpu     time.Duration
	mallocs uint64
	redis   spending
	server  time.Duration
}

func (r Run) meter() (meter, error) {
	var m meter
	var err error
	if r.Redis != nil {
		if m.redis, err = r.Redis.spent(); err != nil {
			return m, fmt.Errorf("bench: ask redis: %w", err)
		}
	}
	if r.PID != 0 {
		if m.server, err = loadtest.CPUOf(r.PID); err != nil {
			return m, fmt.Errorf("bench: cpu of process %d: %w", r.PID, err)
		}
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.mallocs, m.cpu, m.at = mem.Mallocs, loadtest.OwnCPU(), time.Now()
	return m, nil
}

func sum(reports []loadtest.Report, before, after meter) Cell {
	var c Cell
	latency := hdrhistogram.New(1, longest, 3)
	for i := range reports {
		c.Decisions += reports[i].Requests()
		c.Granted += reports[i].Granted
		c.Errors += reports[i].Failed
		latency.Merge(reports[i].Latency)
	}
	n := float64(max(c.Decisions, 1))
	c.PerSecond = float64(c.Decisions) / after.at.Sub(before.at).Seconds()
	c.P50us = float64(latency.ValueAtQuantile(50)) / 1e3
	c.P99us = float64(latency.ValueAtQuantile(99)) / 1e3
	c.ClientCPUus = micros(after.cpu-before.cpu) / n
	c.ServerCPUus = micros(after.server-before.server) / n
	c.RedisCPUus = micros(after.redis.cpu-before.redis.cpu) / n
	c.Commands = (after.redis.commands - before.redis.commands) / n
	c.Scripts = (after.redis.scripts - before.redis.scripts) / n
	c.Allocs = float64(after.mallocs-before.mallocs) / n
	return c
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
