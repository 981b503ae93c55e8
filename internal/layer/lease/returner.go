package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	returnsPerCall = 64          // leases returned in one call
	returnTimeout  = time.Second // of such a call
)

// A returner is the background work: it returns leased units that are not spent.
type returner struct {
	stopped atomic.Bool
	mu      sync.Mutex // guards what follows
	end     context.CancelFunc
	done    chan struct{}
}

func (k *returner) init() {
	k.done = make(chan struct{})
	close(k.done) // nothing was started
}

// Start begins to return expired units in the background, until Stop. Further calls do
// nothing.
func (l *Layer) Start() {
	k := &l.returner
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.end != nil || k.stopped.Load() {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	k.end, k.done = end, done
	go func() {
		defer close(done)
		l.returnExpired(ctx)
	}()
}

func (l *Layer) returnExpired(ctx context.Context) {
	ticker := time.NewTicker(max(time.Duration(l.ahead)/2, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.Around(func() { _ = l.returnUnits(ctx, l.now()) }) // on an error they stay charged until they drain
		}
	}
}

// Stop leases no more units and returns all that are left, until ctx ends. The error says
// how many leases stay charged. It may be called again.
func (l *Layer) Stop(ctx context.Context) error {
	k := &l.returner
	k.stopped.Store(true)
	k.mu.Lock()
	end, done := k.end, k.done
	k.mu.Unlock()
	if end != nil {
		end()
	}
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("weir: stop leases: %w", context.Cause(ctx))
	}
	return l.returnUnits(ctx, forever)
}

// forever is later than the end of any lease.
const forever = 1<<63 - 1

// returnUnits returns the units that have expired by an instant and drops unused keys.
func (l *Layer) returnUnits(ctx context.Context, now int64) error {
	var failed error
	stranded := 0
	for i := range l.shards {
		acts := l.sweep(&l.shards[i], now)
		for len(acts) > 0 {
			n := min(len(acts), returnsPerCall)
			if err := l.send(ctx, acts[:n]); err != nil {
				failed, stranded = err, stranded+n
			}
			acts = acts[n:]
		}
	}
	if failed != nil {
		return fmt.Errorf("weir: return leased units: %d leases stay charged: %w", stranded, failed)
	}
	return nil
}

func (l *Layer) send(ctx context.Context, acts []*weir.Act) error {
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	l.next.Take(ctx, acts)
	var errs []error
	for _, a := range acts {
		errs = append(errs, a.Err)
	}
	return errors.Join(errs...)
}

// sweep empties the cells of a shard whose leases have expired.
func (l *Layer) sweep(s *shard, now int64) []*weir.Act {
	s.mu.Lock()
	defer s.mu.Unlock()
	var acts []*weir.Act
	for _, c := range s.cells {
		if c.ready != nil {
			continue
		}
		if a := l.empty(c, now); a != nil {
			acts = append(acts, a)
		}
		if c.left > 0 {
			continue
		}
		if l.total.count(c, 0); now-c.touched > 2*l.ahead {
			l.remove(s, c)
		}
	}
	return acts
}
