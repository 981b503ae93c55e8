package app

import (
	"context"
	"sync"
	"time"
)

// filesPatience is how long Stop waits for a file that is being read.
const filesPatience = time.Second

// A refresher keeps files current in the background, each on a goroutine of its own, so
// that a file that hangs delays no other.
type refresher struct {
	refresh []func(context.Context) // returns when its context ends
	cancel  context.CancelFunc      // nil before start
	running sync.WaitGroup
}

func (r *refresher) add(refresh func(context.Context)) { r.refresh = append(r.refresh, refresh) }

func (r *refresher) start() {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	for _, refresh := range r.refresh {
		r.running.Go(func() { refresh(ctx) })
	}
}

// stop ends the refreshing and reports whether it has ended, or hangs.
func (r *refresher) stop(ctx context.Context) (ended bool) {
	if r.cancel == nil {
		return true
	}
	r.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.running.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, filesPatience)
	defer cancel()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// stopFiles stops reading files. A read that hangs has no effect on calls, so it is no
// failure.
func (a *App) stopFiles(ctx context.Context) error {
	if !a.files.stop(ctx) {
		a.options.Logger.Warn("reading a file of rules or secrets hangs; stopping without it")
	}
	return nil
}
