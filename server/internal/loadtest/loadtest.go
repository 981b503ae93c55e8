// Package loadtest sends requests at a steady rate, whether or not they are answered in
// time. A latency counts from the instant at which a request was due, so that a server
// that stalls cannot hide how long its callers waited ("coordinated omission"; Gil Tene,
// "How NOT to Measure Latency"). The package also has clients of Weir's protocols and
// reads the CPU time of processes.
package loadtest

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/deadline"
)

const (
	// maxLatency is the top of the histograms' range, in ns.
	maxLatency = int64(time.Minute)
	// maxRecorders bounds the memory of the histograms, which take 0.2 MB each.
	maxRecorders = 64
)

// An Outcome is the result of one request.
type Outcome int

// The outcomes.
const (
	Granted Outcome = iota
	Refused
	Failed
)

// A Load sends requests at a steady rate. Its fields must not change while it runs.
type Load struct {
	// Ask sends the i-th request and waits for its answer. It is called from
	// several goroutines at once.
	Ask func(ctx context.Context, i int) Outcome
	// Rate is the number of requests due each second.
	Rate float64
	// Duration is the time during which requests fall due.
	Duration time.Duration
	// Callers is the maximum number of requests in flight. Others wait, and their
	// latency includes the wait.
	Callers int
	// Progress, if not nil, is called every second with the results so far.
	Progress func(Report)
}

// A Report counts the results of a load.
type Report struct {
	Elapsed          time.Duration
	Granted, Refused int
	Failed           int
	// Latency counts the time from when a request was due to its answer, in ns.
	Latency *hdrhistogram.Histogram
}

// Requests returns the number of requests that were answered or failed.
func (r *Report) Requests() int { return r.Granted + r.Refused + r.Failed }

// A recorder counts the results of one caller or several.
type recorder struct {
	mu sync.Mutex
	Report
}

// Run sends the requests until Duration has passed or ctx ends, and waits for the last
// answers.
// The error is a [*weir.InvalidError].
func (l *Load) Run(ctx context.Context) (Report, error) {
	if err := l.Validate(); err != nil {
		return Report{}, err
	}
	begun := time.Now()
	recorders := make([]*recorder, min(l.Callers, maxRecorders))
	for i := range recorders {
		recorders[i] = &recorder{Report: Report{Latency: hdrhistogram.New(1, maxLatency, 3)}}
	}
	var next atomic.Int64
	var done sync.WaitGroup
	for i := range l.Callers {
		done.Go(func() { l.work(ctx, recorders[i%len(recorders)], begun, &next) })
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	watch(l.Progress, func() Report { return merge(recorders, time.Since(begun)) }, finished)
	return merge(recorders, time.Since(begun)), nil
}

// Validate reports the first field that is out of range, as a [*weir.InvalidError].
func (l *Load) Validate() error {
	switch {
	case !(l.Rate > 0) || l.Rate > 1e6: // not a number, too
		return &weir.InvalidError{Field: "rate", Value: strconv.FormatFloat(l.Rate, 'g', -1, 64), Want: "more than 0 and at most 1000000 a second"}
	case l.Duration <= 0 || l.Duration > 24*time.Hour:
		return &weir.InvalidError{Field: "duration", Value: l.Duration.String(), Want: "more than 0 and at most 24h"}
	case l.Callers < 1 || l.Callers > 10_000:
		return &weir.InvalidError{Field: "callers", Value: strconv.Itoa(l.Callers), Want: "1 … 10000"}
	}
	return nil
}

// work sends requests, each when it is due, until none is left.
func (l *Load) work(ctx context.Context, w *recorder, begun time.Time, next *atomic.Int64) {
	for ctx.Err() == nil {
		i := next.Add(1) - 1
		due := time.Duration(float64(i) / l.Rate * float64(time.Second))
		if due >= l.Duration || deadline.Sleep(ctx, due-time.Since(begun)) != nil {
			return
		}
		outcome := l.Ask(ctx, int(i))
		latency := time.Since(begun) - due
		w.mu.Lock()
		w.note(outcome, latency)
		w.mu.Unlock()
	}
}

// note counts a request.
func (r *Report) note(outcome Outcome, latency time.Duration) {
	switch outcome {
	case Granted:
		r.Granted++
	case Refused:
		r.Refused++
	default:
		r.Failed++
	}
	// Within the histogram's range by the bounds just applied.
	_ = r.Latency.RecordValue(min(max(latency.Nanoseconds(), 1), maxLatency))
}

// add counts another report's requests.
func (r *Report) add(other *Report) {
	r.Granted += other.Granted
	r.Refused += other.Refused
	r.Failed += other.Failed
	r.Latency.Merge(other.Latency)
}

// watch calls progress, unless it is nil, with a report every second until finished is closed.
func watch(progress func(Report), report func() Report, finished <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-finished:
			return
		case <-ticker.C:
			if progress != nil {
				progress(report())
			}
		}
	}
}

func merge(recorders []*recorder, elapsed time.Duration) Report {
	all := Report{Elapsed: elapsed, Latency: hdrhistogram.New(1, maxLatency, 3)}
	for _, w := range recorders {
		w.mu.Lock()
		all.add(&w.Report)
		w.mu.Unlock()
	}
	return all
}
