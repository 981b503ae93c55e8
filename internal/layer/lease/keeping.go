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
	// batch is how many shares are given back in one call.
	batch = 64
	// returning bounds one such call.
	returning = time.Second
)

// keeping is the background work: giving back what nobody spends.
type keeping struct {
	stopped atomic.Bool
	mu      sync.Mutex // guards what follows
	end     context.CancelFunc
	done    chan struct{}
}

func (k *keeping) init() {
	k.done = make(chan struct{})
	close(k.done) // as long as nothing was started
}

// Start begins to give back shares whose time is over, until Stop. A second call
// does nothing.
func (l *Leaser) Start() {
	k := &l.keeping
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
		l.keep(ctx)
	}()
}

func (l *Leaser) keep(ctx context.Context) {
	ticker := time.NewTicker(max(time.Duration(l.ahead)/2, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.around(func() { _ = l.giveBack(ctx, l.now()) }) // what fails stays charged until it drains
		}
	}
}

// Stop takes no more shares and gives back all that are left. It returns when that
// is done or ctx ends; the error then says how many shares stay charged. It may be
// called again.
func (l *Leaser) Stop(ctx context.Context) error {
	k := &l.keeping
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
		return fmt.Errorf("lease: stop: %w", context.Cause(ctx))
	}
	return l.giveBack(ctx, forever)
}

// forever is later than the end of any share.
const forever = 1<<63 - 1

// giveBack returns the shares that have ended by an instant and forgets the keys
// that nobody asks for.
func (l *Leaser) giveBack(ctx context.Context, now int64) error {
	var failed error
	stranded := 0
	for i := range l.shards {
		acts := l.sweep(&l.shards[i], now)
		for len(acts) > 0 {
			n := min(len(acts), batch)
			if err := l.send(ctx, acts[:n]); err != nil {
				failed, stranded = err, stranded+n
			}
			acts = acts[n:]
		}
	}
	if failed != nil {
		return fmt.Errorf("lease: give back: %d shares stay charged: %w", stranded, failed)
	}
	return nil
}

func (l *Leaser) send(ctx context.Context, acts []*weir.Act) error {
	ctx, cancel := context.WithTimeout(ctx, returning)
	defer cancel()
	l.next.Take(ctx, acts)
	var errs []error
	for _, a := range acts {
		errs = append(errs, a.Err)
	}
	return errors.Join(errs...)
}

// sweep empties the cells of a shard whose shares have ended.
func (l *Leaser) sweep(s *shard, now int64) []*weir.Act {
	s.mu.Lock()
	defer s.mu.Unlock()
	var acts []*weir.Act
	for key, c := range s.cells {
		if c.ready != nil {
			continue
		}
		if a := l.empty(c, now); a != nil {
			acts = append(acts, a)
		}
		if c.left == 0 && now-c.touched > 2*l.ahead {
			c.gone = true
			delete(s.cells, key)
		}
	}
	return acts
}
