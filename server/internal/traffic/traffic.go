// Package traffic records the outcomes of requests in memory: each limit's decisions over
// time, the keys that are used and refused most, and, for subscribers, each refusal.
// Observed calls write to it; metrics, the dashboard and the log read from it. Its memory
// is bounded, whatever clients send.
package traffic

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// DefaultNearLimitRatio is the share of a limit from which on a grant counts as
// near it, unless [Options.NearLimitRatio] says otherwise.
const DefaultNearLimitRatio = 0.8

// RequestDomain is the domain of limits that came with the requests: CL.THROTTLE's
// and those of Envoy's descriptors.
const RequestDomain = "(request)"

// Options are the settings of a [Recorder]. The zero value is ready to use.
type Options struct {
	// NearLimitRatio is the share of a limit, above 0 and at most 1, from which
	// on a grant counts as near the limit. Zero: [DefaultNearLimitRatio].
	NearLimitRatio float64
	// Refusals gets a line for each limit that refuses, at most once in its
	// period, with the number of refusals that got none. Nil: nothing is logged.
	Refusals *slog.Logger
}

// A Recorder observes calls and records their outcomes. It is safe for concurrent use:
// observing takes no lock that a reader holds. Create it with [New]. It counts from then
// on, and keeps history and log from Start on.
type Recorder struct {
	// Models counts what callers use of language models.
	Models ModelUses

	ratio    float32
	logger   *slog.Logger
	table    atomic.Pointer[table]
	latency  latency
	used     sketch
	refused  sketch
	tail     tail
	keepers  sync.WaitGroup
	stop     chan struct{}
	stopOnce sync.Once

	mu      sync.Mutex // held by readers and by the keeper of the history
	history history
}

// New returns a recorder of the rules' limits. The error is a
// [*weir.InvalidError].
func New(set *rules.Set, o Options) (*Recorder, error) {
	if o.NearLimitRatio < 0 || o.NearLimitRatio > 1 {
		return nil, &weir.InvalidError{Field: "near limit ratio", Value: strconv.FormatFloat(o.NearLimitRatio, 'g', -1, 64), Want: "above 0 and at most 1; 0 for the default"}
	}
	r := &Recorder{
		// As envoyproxy/ratelimit has it, so that both find the same hits near.
		ratio:  float32(cmp.Or(o.NearLimitRatio, DefaultNearLimitRatio)),
		logger: o.Refusals, stop: make(chan struct{}),
	}
	seed := maphash.MakeSeed()
	r.used.seed, r.refused.seed = seed, seed
	r.Follow(set)
	return r, nil
}

// Start keeps the history, and the log if there is one, until Stop.
func (r *Recorder) Start() {
	r.keepers.Go(func() { r.every(r.keep) })
	if r.logger != nil {
		r.keepers.Go(func() { r.every(newJournal(r).write) })
	}
}

// every calls f each second.
func (r *Recorder) every(f func(now time.Time)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f(time.Now())
		case <-r.stop:
			return
		}
	}
}

// Stop ends the work that Start began and waits for it until ctx ends: a log that blocks
// may hold it up. Counting goes on. Further calls wait as well.
func (r *Recorder) Stop(ctx context.Context) error {
	r.stopOnce.Do(func() { close(r.stop) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.keepers.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("traffic: stop: %w", ctx.Err())
	}
}
