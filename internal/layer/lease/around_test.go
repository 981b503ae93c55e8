package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/lease"
)

// TestAroundHasTheWork: what is done in the background is done by who asked for it,
// time and again.
func TestAroundHasTheWork(t *testing.T) {
	t.Parallel()
	worked := make(chan struct{}, 100)
	l := lease.Wrap(memengine.New(memengine.Options{}), lease.Options{
		Ahead: time.Millisecond,
		Around: func(work func()) {
			work()
			select {
			case worked <- struct{}{}:
			default:
			}
		},
	})
	l.Start()
	<-worked
	<-worked
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		t.Error(err)
	}
}
