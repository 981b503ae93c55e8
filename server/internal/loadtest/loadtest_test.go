package loadtest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

func TestEveryRequestIsAskedOnce(t *testing.T) {
	t.Parallel()
	var seen [200]atomic.Int32
	load := loadtest.Load{Rate: 2000, Duration: 100 * time.Millisecond, Callers: 8}
	load.Ask = func(_ context.Context, i int) loadtest.Outcome {
		seen[i].Add(1)
		return loadtest.Outcome(i % 3)
	}
	got, err := load.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		if n := seen[i].Load(); n != 1 {
			t.Errorf("request %d was asked %d times", i, n)
		}
	}
	if got.Granted != 67 || got.Refused != 67 || got.Failed != 66 || got.Requests() != 200 {
		t.Errorf("got %d granted, %d refused, %d failed; want 67, 67, 66", got.Granted, got.Refused, got.Failed)
	}
}

// A server that stalls once delays everything that was due meanwhile, and the
// latencies must say so, though only one request was sent during the stall.
func TestStallCountsForAllThatWereDue(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	load := loadtest.Load{Rate: 1000, Duration: 200 * time.Millisecond, Callers: 1}
	load.Ask = func(_ context.Context, i int) loadtest.Outcome {
		if i == 0 {
			time.Sleep(stall)
		}
		return loadtest.Granted
	}
	got, err := load.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The last one was due 199 ms after the first and waited for the rest.
	if low := time.Duration(got.Latency.ValueAtQuantile(1)); low < 90*time.Millisecond {
		t.Errorf("the shortest waits were told as %v; all were due during the stall", low)
	}
}

func TestAnEndOfContextEndsTheLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	load := loadtest.Load{Rate: 10, Duration: time.Hour, Callers: 2}
	load.Ask = func(context.Context, int) loadtest.Outcome { cancel(); return loadtest.Granted }
	got, err := load.Run(ctx)
	if err != nil || got.Requests() < 1 || got.Requests() > 2 {
		t.Errorf("got %d requests, %v", got.Requests(), err)
	}
}

func TestAbsurdLoads(t *testing.T) {
	t.Parallel()
	for field, load := range map[string]loadtest.Load{
		"rate":     {Duration: time.Second, Callers: 1},
		"duration": {Rate: 1, Callers: 1},
		"callers":  {Rate: 1, Duration: time.Second},
	} {
		invalid := new(weir.InvalidError)
		if _, err := load.Run(t.Context()); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
