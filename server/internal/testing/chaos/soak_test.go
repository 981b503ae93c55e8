package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

var (
	soaks = flag.Duration("soak", 0, "how long TestSoak lasts; 0: a moment")
	seed  = flag.Uint64("seed", 1, "what the order of TestSoak's faults is made of")
)

// A soak is one Redis and two servers that live through one fault after the other.
type soak struct {
	t      *testing.T
	rng    *rand.Rand
	server *testserver.Redis
	proxy  *testserver.Proxy
	clock  *steppedClock
	now    atomic.Pointer[world] // whose fault it is
	fleet  [2]*instance
	wrong  []string
	acts   int
	struck map[string]int
	rests  []rest
}

// A rest is what the servers take between two faults.
type rest struct {
	at                [2]time.Duration // since the beginning
	goroutines, files [2]int
	heap              [2]int64
}

// TestSoak has faults strike in an order that a seed makes, every 5 to 15 s, and judges
// each by all oracles. Two servers on the same Redis are asked all the while; in the
// end they take no more than in the beginning.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	ctx, enough := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var answers, failures atomic.Int64
	for _, i := range s.fleet {
		asking.Go(func() { s.asks(ctx, i, &answers, &failures) })
	}
	begun := time.Now()
	for n := 0; n < 2 || time.Since(begun) < *soaks; n++ {
		s.episode(n)
		if n%5 == 0 {
			s.rests = append(s.rests, s.rest(begun))
		}
	}
	enough()
	asking.Wait()
	s.rests = append(s.rests, s.rest(begun))
	s.report(time.Since(begun), answers.Load(), failures.Load())
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, rng: rand.New(rand.NewPCG(*seed, 1)), clock: newSteppedClock(t), struck: map[string]int{}}
	// A thread of the allocator's sleeps until the wall clock says so, and would not
	// sleep at all once that was set back.
	args := append([]string{"--jemalloc-bg-thread", "no"}, kept...)
	s.server = testserver.Spec{Env: s.clock.env}.Redis(t, args...)
	s.proxy = testserver.StartProxy(t, s.server.Addr(), func(request []byte) testserver.Fault {
		if w := s.now.Load(); w != nil {
			return (*w.proxied.Load())(request)
		}
		return testserver.Pass
	})
	for i := range s.fleet {
		s.fleet[i] = serve(t, "redis://"+s.proxy.Addr(), "--store-timeout", "12ms")
	}
	return s
}

// asks has a server decide, some times a second.
func (s *soak) asks(ctx context.Context, i *instance, answers, failures *atomic.Int64) {
	client := newClient(s.t)
	for n := 0; ctx.Err() == nil; n++ {
		status, body, err := get(context.Background(), client, fmt.Sprintf("http://%s/v1/auth?domain=chaos&open=%d", i.http, n%100))
		if answers.Add(1); err != nil || status != http.StatusNoContent {
			failures.Add(1)
			s.t.Logf("%d %s %v", status, body, err)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// episode is one fault, and what follows it.
func (s *soak) episode(n int) {
	calmFor := tail
	if *soaks > 0 {
		calmFor = 4*time.Second + time.Duration(s.rng.Int64N(int64(8*time.Second)))
	}
	f := faults[s.rng.IntN(len(faults))]
	s.struck[f.name]++
	s.t.Run(fmt.Sprintf("%d %s", n, f.name), func(t *testing.T) {
		w := newWorld(t, makeup{prefix: fmt.Sprintf("soak%d:", n), tail: calmFor, start: func(w *world) string {
			w.server, w.clock = s.server, s.clock
			w.proxied.Store(&calm)
			s.now.Store(w)
			return s.proxy.Addr()
		}})
		for name, err := range w.run(1, f.strike) {
			if err != nil && !s.server.Torn() {
				s.wrong = append(s.wrong, fmt.Sprintf("episode %d, %s: %s: %v", n, f.name, name, err))
				t.Errorf("seed %d: %s", *seed, s.wrong[len(s.wrong)-1])
			}
		}
		s.acts += len(w.history.ops)
		w.do("flushall")
		// Else every restart plays all that there ever was, and takes longer each time.
		w.do("bgrewriteaof")
		testserver.Eventually(t, "the append-only file is rewritten", func() bool {
			info, err := w.admin.Info(t.Context(), "persistence").Result()
			return err == nil && strings.Contains(info, "aof_rewrite_in_progress:0")
		})
	})
}

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// rest is what the servers take now, their garbage aside.
func (s *soak) rest(begun time.Time) rest {
	var r rest
	for n, i := range s.fleet {
		r.at[n], r.heap[n], r.goroutines[n], r.files[n] = time.Since(begun), i.heap(s.t), i.profile(s.t), i.files()
	}
	return r
}

var total = regexp.MustCompile(`goroutine profile: total (\d+)`)

// profile is how many goroutines an instance has.
func (i *instance) profile(t *testing.T) int {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	_, body, err := get(t.Context(), client, "http://"+i.admin+"/debug/pprof/goroutine?debug=1")
	found := total.FindSubmatch(body)
	if err != nil || found == nil {
		t.Fatalf("profile: %v %s", err, body)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// heap is what an instance has in its heap, garbage aside.
func (i *instance) heap(t *testing.T) int64 {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	_, body, err := get(t.Context(), client, "http://"+i.admin+"/debug/pprof/heap?gc=1&debug=1")
	found := heapAlloc.FindSubmatch(body)
	if err != nil || found == nil {
		t.Fatalf("heap: %v %.200s", err, body)
	}
	n, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// slope is how fast the heap of a server grows, in bytes an hour, by least squares over
// the second half of the run.
func (s *soak) slope(n int) float64 {
	rests := s.rests[len(s.rests)/2:]
	var x, y, xx, xy float64
	for _, r := range rests {
		at, heap := r.at[n].Hours(), float64(r.heap[n])
		x, y, xx, xy = x+at, y+heap, xx+at*at, xy+at*heap
	}
	count := float64(len(rests))
	if d := count*xx - x*x; d > 0 {
		return (count*xy - x*y) / d
	}
	return 0
}

const (
	mayLeave = 5  // goroutines more than at the start
	mayOpen  = 64 // connections of the pool to Redis, and descriptors with them
	mayGrow  = 8 << 20
)

func (s *soak) report(lasted time.Duration, answers, failures int64) {
	r := row{
		fault:    fmt.Sprintf("soak, seed %d: %d faults in %v, 2 servers", *seed, len(s.rests), lasted.Round(time.Second)),
		promise:  "every oracle green, no failed request, servers take no more than before",
		measured: fmt.Sprintf("%d acts judged, %d of %d requests failed", s.acts, failures, answers),
	}
	total := 0
	for _, n := range s.struck {
		total += n
	}
	r.fault = fmt.Sprintf("soak, seed %d: %d faults of %d kinds in %v, 2 servers", *seed, total, len(s.struck), lasted.Round(time.Second))
	first, last := s.rests[0], s.rests[len(s.rests)-1]
	for n := range s.fleet {
		r.measured += fmt.Sprintf("; goroutines %d to %d, descriptors %d to %d, heap %.1f to %.1f MiB (%+.1f MiB/h)",
			first.goroutines[n], last.goroutines[n], first.files[n], last.files[n],
			float64(first.heap[n])/(1<<20), float64(last.heap[n])/(1<<20), s.slope(n)/(1<<20))
		if last.files[n] > first.files[n]+mayOpen || last.heap[n] > first.heap[n]+mayGrow {
			r.fail(s.t, "a server grew: %+v, then %+v", first, last)
		}
		if last.goroutines[n] > slices.Max(first.goroutines[:])+mayLeave {
			r.fail(s.t, "goroutines: %v, then %v", first.goroutines, last.goroutines)
		}
	}
	if failures > 0 || len(s.wrong) > 0 || answers == 0 {
		r.fail(s.t, "%d failed, %q", failures, s.wrong)
	}
	report(r)
}
