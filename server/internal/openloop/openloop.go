// Package openloop asks at a rate of its own, as the world does, whether or not
// it is answered in time. A latency counts from the instant at which a request
// was due, so that a server that stalls cannot hide how long its callers waited
// (what is called coordinated omission; Gil Tene, "How NOT to Measure Latency").
package openloop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirlimit/weir"
)

// longest is the longest latency told apart, in ns.
const longest = int64(time.Minute)

// mostWorkers bounds the memory of the histograms, of 0.2 MB each: callers beyond
// share them.
const mostWorkers = 64

// An Outcome is what one request came to.
type Outcome int

// The outcomes.
const (
	Granted Outcome = iota
	Refused
	Failed
)

// A Load is requests at a steady rate. Its fields must not change while it runs.
type Load struct {
	// Ask sends the i-th request and waits for its answer. It is called from
	// several goroutines at once.
	Ask func(ctx context.Context, i int) Outcome
	// Rate is how many requests are due a second.
	Rate float64
	// Duration is how long requests come.
	Duration time.Duration
	// Callers is how many requests can be under way; others wait, and their
	// waiting counts.
	Callers int
	// Progress, if not nil, hears every second what there is so far.
	Progress func(Report)
}

// A Report is what became of the requests.
type Report struct {
	Elapsed          time.Duration
	Granted, Refused int
	Failed           int
	// Latency has the time from when a request was due to its answer, in ns.
	Latency *hdrhistogram.Histogram
}

// Requests is how many were answered or failed.
func (r *Report) Requests() int { return r.Granted + r.Refused + r.Failed }

// worker is what one caller has seen, or several; its lock is taken once a request,
// by the caller, and once a second by whoever reports.
type worker struct {
	mu sync.Mutex
	Report
}

// Run asks until the load is through or ctx ends, and waits for the last answers.
// The error is a [*weir.InvalidError].
func (l *Load) Run(ctx context.Context) (Report, error) {
	if err := l.validate(); err != nil {
		return Report{}, err
	}
	begun := time.Now()
	workers := make([]*worker, min(l.Callers, mostWorkers))
	for i := range workers {
		workers[i] = &worker{Report: Report{Latency: hdrhistogram.New(1, longest, 3)}}
	}
	var next atomic.Int64
	var done sync.WaitGroup
	for i := range l.Callers {
		done.Go(func() { l.work(ctx, workers[i%len(workers)], begun, &next) })
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	l.watch(workers, begun, finished)
	return merge(workers, time.Since(begun)), nil
}

func (l *Load) validate() error {
	switch {
	case !(l.Rate > 0) || l.Rate > 1e7:
		return &weir.InvalidError{Field: "rate", Value: fmt.Sprint(l.Rate), Want: "more than 0 and at most 10000000 a second"}
	case l.Duration <= 0 || l.Duration > 24*time.Hour:
		return &weir.InvalidError{Field: "duration", Value: l.Duration.String(), Want: "more than 0 and at most 24h"}
	case l.Callers < 1 || l.Callers > 100_000:
		return &weir.InvalidError{Field: "callers", Value: fmt.Sprint(l.Callers), Want: "1 to 100000"}
	}
	return nil
}

// work takes the next request that is due, waits for its instant, asks.
func (l *Load) work(ctx context.Context, w *worker, begun time.Time, next *atomic.Int64) {
	for ctx.Err() == nil {
		i := next.Add(1) - 1
		due := time.Duration(float64(i) / l.Rate * float64(time.Second))
		if due >= l.Duration || !sleep(ctx, due-time.Since(begun)) {
			return
		}
		outcome := l.Ask(ctx, int(i))
		w.note(outcome, time.Since(begun)-due)
	}
}

func (w *worker) note(outcome Outcome, latency time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch outcome {
	case Granted:
		w.Granted++
	case Refused:
		w.Refused++
	default:
		w.Failed++
	}
	// Within the histogram's range by the bounds just applied.
	_ = w.Latency.RecordValue(min(max(latency.Nanoseconds(), 1), longest))
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *Load) watch(workers []*worker, begun time.Time, finished <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-finished:
			return
		case <-ticker.C:
			if l.Progress != nil {
				l.Progress(merge(workers, time.Since(begun)))
			}
		}
	}
}

func merge(workers []*worker, elapsed time.Duration) Report {
	all := Report{Elapsed: elapsed, Latency: hdrhistogram.New(1, longest, 3)}
	for _, w := range workers {
		w.mu.Lock()
		all.Granted += w.Granted
		all.Refused += w.Refused
		all.Failed += w.Failed
		all.Latency.Merge(w.Latency)
		w.mu.Unlock()
	}
	return all
}
