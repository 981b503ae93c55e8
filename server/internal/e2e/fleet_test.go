package e2e

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testserver"
)

const (
	connections = 64
	perSecond   = 100 // of the key window in testdata/rules.yaml

	killAfter  = 2 // seconds of the store's clock
	fleetLasts = 5

	// longestTTL is more than a window of a second and its slack need.
	longestTTL = 5 * time.Second
)

// TestFleet holds two processes on one Redis to one limit, while one of them
// dies: never more than the limit in any window, and not less either.
func TestFleet(t *testing.T) {
	t.Parallel()
	store := testserver.StartRedis(t)
	f := &fleet{
		t:       t,
		stays:   serve(t, "testdata/rules.yaml", store.URL()),
		dies:    serve(t, "testdata/rules.yaml", store.URL()),
		asked:   map[int64]int{},
		granted: map[int64]int{},
		killed:  make(chan struct{}),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()

	load, stopScan := context.WithCancel(ctx)
	s := &scanner{t: t, client: client}
	var scanning sync.WaitGroup
	scanning.Go(func() { s.run(load) })
	f.run(ctx)
	stopScan()
	scanning.Wait()

	f.check()
	if s.seen == 0 {
		t.Error("the scanner saw no key at all")
	}
	empty(t, client)
}

// A fleet is 64 connections to two processes, and what they were answered.
type fleet struct {
	t           *testing.T
	stays, dies *weir

	mu             sync.Mutex
	first, last    int64 // seconds of the store's clock
	asked, granted map[int64]int
	killedIn       int64 // second
	lost           int   // answers of the one that died
	killed         chan struct{}
}

func (f *fleet) run(ctx context.Context) {
	var workers sync.WaitGroup
	for i := range connections {
		workers.Go(func() {
			target := f.stays
			if i%2 == 1 {
				target = f.dies
			}
			f.work(ctx, target)
		})
	}
	workers.Wait()
}

// work asks until the time is over, or until its process has died; then it asks
// the other one.
func (f *fleet) work(ctx context.Context, target *weir) {
	// A transport that several share opens spare connections, and may use one just when the
	// server closes it for being unused.
	client := newClient(f.t)
	for ctx.Err() == nil {
		a, err := post(ctx, client, target.url(), of("window", 1))
		if err != nil && target == f.dies && f.dead(err) {
			target = f.stays
			continue
		}
		if err != nil {
			f.t.Errorf("process %d: %v", target.Cmd.Process.Pid, err)
			return
		}
		if over := f.record(a); over {
			return
		}
	}
}

// dead reports whether an answer is missing because the process was killed.
func (f *fleet) dead(err error) bool {
	if wrong := new(unexpected); errors.As(err, &wrong) {
		return false
	}
	select {
	case <-f.killed:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lost++
		return true
	default:
		return false
	}
}

// record files an answer under its second, kills one process when it is time,
// and reports whether the test is over.
func (f *fleet) record(a *answer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	second := a.Limits[0].AtUS / 1_000_000
	if f.first == 0 {
		f.first = second
	}
	f.last = max(f.last, second)
	f.asked[second]++
	f.granted[second] += int(a.Granted)
	if f.killedIn == 0 && f.last-f.first >= killAfter {
		f.killedIn = f.last
		close(f.killed)
		f.dies.Stop(syscall.SIGKILL)
	}
	return f.last-f.first >= fleetLasts
}

func (f *fleet) check() {
	busy := 0
	for second, asked := range f.asked {
		got := f.granted[second]
		f.t.Logf("second %d: granted %d of %d", second-f.first, got, asked)
		if got > perSecond {
			f.t.Errorf("second %d granted %d, more than %d", second-f.first, got, perSecond)
		}
		least := min(asked, perSecond)
		if second == f.killedIn || second == f.killedIn+1 {
			// What the dead one was granted and could not tell.
			least -= f.lost
		}
		if whole := second > f.first && second < f.last; whole && got < least {
			f.t.Errorf("second %d granted %d of %d, less than %d", second-f.first, got, asked, least)
		}
		if asked > perSecond {
			busy++
		}
	}
	if busy < 2 {
		f.t.Errorf("more than the limit was asked in %d seconds only", busy)
	}
	if f.killedIn == 0 {
		f.t.Error("no process was killed")
	}
}

// A scanner looks at every key over and over.
type scanner struct {
	t      *testing.T
	client *redis.Client
	seen   int
}

func (s *scanner) run(ctx context.Context) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		for keys := s.client.Scan(ctx, 0, "", 1000).Iterator(); keys.Next(ctx); {
			s.look(ctx, keys.Val())
		}
	}
}

// look demands that a key has a TTL, unless it is gone meanwhile.
func (s *scanner) look(ctx context.Context, key string) {
	const forever, gone = time.Duration(-1), time.Duration(-2)
	ttl, err := s.client.PTTL(ctx, key).Result()
	if err != nil {
		if ctx.Err() == nil {
			s.t.Errorf("pttl: %v", err)
		}
		return
	}
	if ttl == forever || ttl > longestTTL {
		s.t.Errorf("key %q has a TTL of %v, want at most %v", key, ttl, longestTTL)
	}
	if ttl != gone {
		s.seen++
	}
}

// empty demands that Redis forgets everything soon but the instances that run.
func empty(t *testing.T, client *redis.Client) {
	t.Helper()
	deadline := time.Now().Add(2 * longestTTL)
	for {
		keys, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(keys, []string{"weir:override:{override}:instances"}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %q", slices.Sorted(slices.Values(keys)))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
