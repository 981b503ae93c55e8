package rls_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/rls"
)

const pairs = `
domain: d
descriptors:
  - {key: seats, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: concurrency}}
  - {key: one, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: gcra}}
  - {key: tokens, rate_limit: {unit: hour, requests_per_unit: 100, algorithm: sliding_log}}
  - {key: theirs, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: concurrency}}
  - key: both
    rate_limits:
      - {unit: minute, requests_per_unit: 1, algorithm: concurrency, name: slots}
      - {unit: hour, requests_per_unit: 3, algorithm: gcra, name: rate}
`

// TestPairs: hits and negative hits, as Envoy sends them at the begin and the end of a
// request.
func TestPairs(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"slots": `
			seats=1 => OK | OK 2/MINUTE seats 1 1m0s
			wait 1s
			seats=1 => OK | OK 2/MINUTE seats 0 1m0s
			seats=1 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1s
			seats=1 +0 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 0 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 1 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 2 0s
			seats=1 -1 => OK | OK 2/MINUTE seats 2 0s
			seats=1 +2 => OK | OK 2/MINUTE seats 0 1m0s
			seats=2 +3 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1m0s`,
		"lost ends": `
			seats=1 +2 => OK | OK 2/MINUTE seats 0 1m0s
			wait 59999ms
			seats=1 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1s
			wait 1ms
			seats=1 => OK | OK 2/MINUTE seats 1 1m0s`,
		"a request that another limit refuses has a slot until its end": `
			seats=1; one=1 => OK | OK 2/MINUTE seats 1 1m0s | OK 1/HOUR one 0 1h0m0s
			seats=1; one=1 => OVER_LIMIT | OK 2/MINUTE seats 0 1m0s | OVER_LIMIT 1/HOUR one 0 1h0m0s
			seats=1; one=2 => OVER_LIMIT | OVER_LIMIT 2/MINUTE seats 0 1s | OK 1/HOUR one 1 0s
			seats=1 -1 => OK | OK 2/MINUTE seats 0 1m0s
			seats=1 -1 => OK | OK 2/MINUTE seats 1 1m0s
			seats=1; one=2 => OK | OK 2/MINUTE seats 0 1m0s | OK 1/HOUR one 0 1h0m0s`,
		"slots and a rate of one rule": `
			both=1 => OK | OK 1/MINUTE slots 0 1m0s
			both=1 => OVER_LIMIT | OVER_LIMIT 1/MINUTE slots 0 1s
			both=1 -1 => OK | OK 1/MINUTE slots 0 1m0s
			both=1 -1 => OK | OK 1/MINUTE slots 1 0s`,
		"watched slots": `
			watched=1 => OK | OK 1/MINUTE watched 0 1m0s
			watched=1 => OK | OK 1/MINUTE watched 0 1s
			watched=1 -1 => OK | OK 1/MINUTE watched 0 1m0s
			watched=1 -1 => OK | OK 1/MINUTE watched 1 0s`,
		"an estimate that was too high": `
			tokens=1 +60 => OK | OK 100/HOUR tokens 40 1h0m0s
			wait 3s
			tokens=1 +30 => OK | OK 100/HOUR tokens 10 1h0m0s
			wait 3s
			tokens=1,weir=settle -50 => OK | OK 100/HOUR tokens 60 59m54s
			tokens=1 -500 => OK | OK 100/HOUR tokens 100 0s`,
		"an estimate that was too low": `
			tokens=1 +60 => OK | OK 100/HOUR tokens 40 1h0m0s
			tokens=1,weir=settle +90 => OK | OK 100/HOUR tokens 0 1h0m0s
			tokens=1 => OVER_LIMIT | OVER_LIMIT 100/HOUR tokens 0 1h0m0s
			tokens=1 -49 => OK | OK 100/HOUR tokens 0 1h0m0s
			tokens=1 -2 => OK | OK 100/HOUR tokens 1 1h0m0s
			tokens=2,weir=settle +18446744073709551615 => OK | OK 100/HOUR tokens 0 1h0m0s`,
		"an estimate under a rule without algorithm": `
			theirs=1 +60 => OK | OK 100/HOUR 40 59m56s
			theirs=1,weir=settle +90 => OK | OK 100/HOUR 0 59m56s
			theirs=1 => OVER_LIMIT | OVER_LIMIT 100/HOUR 0 59m56s
			theirs=1,weir=settle -52 => OK | OK 100/HOUR 1 59m56s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newBench(t, pairs, rls.Mode{}).wants(lines)
		})
	}
}

// layered serves rules over a store in Redis with all layers, as the program does.
func layered(t *testing.T, address string) weir.Taker {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	layers := stack.New(store, stack.Options{
		KeyLimit: func(*weir.Limit) weir.KeyLimit { return weir.KeyLimit{MaxKeys: 100, Overflow: "beyond"} },
		Remote:   remote.Options{Patience: time.Minute, Calls: remote.CallOptions{Silence: time.Minute}},
	})
	t.Cleanup(func() { _ = layers.Stop(context.Background()) })
	return layers
}

// TestPairsThroughLayers: negative hits reach a Redis behind all layers, and a known
// refusal does not outlive them.
func TestPairsThroughLayers(t *testing.T) {
	t.Parallel()
	client := dial(t, newService(t, pairs, rls.Options{Taker: layered(t, testserver.StartRedis(t).Addr()), Timeout: time.Minute}))
	for i, step := range []struct {
		descriptor string
		over       bool
		remaining  uint32
	}{
		{"one=1", false, 0},
		{"one=1", true, 0},
		{"one=1", true, 0},
		{"one=1 -1", false, 1},
		{"one=1", false, 0},
		{"seats=1", false, 1},
		{"seats=1", false, 0},
		{"seats=1", true, 0},
		{"seats=1 -1", false, 0},
		{"seats=1 -1", false, 1},
		{"seats=1", false, 0},
	} {
		got, err := client.ShouldRateLimit(t.Context(), ask(t, step.descriptor))
		if err != nil {
			t.Fatal(err)
		}
		status := got.GetStatuses()[0]
		if over := got.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT; over != step.over || status.GetLimitRemaining() != step.remaining {
			t.Errorf("step %d, %s: %v", i, step.descriptor, got)
		}
	}
}

// TestEnvoysThatDie: clients hold slots as Envoys do, and die at any moment. There are
// never more requests than slots, and all slots are free once the leases have ended.
func TestEnvoysThatDie(t *testing.T) {
	t.Parallel()
	const slots, lease = 5, time.Second
	const text = `{domain: d, descriptors: [{key: seats, rate_limit: {period: 1s, requests_per_unit: 5, algorithm: concurrency}}]}`
	for name, taker := range map[string]weir.Taker{
		"memory": memstore.New(memstore.Options{}),
		"redis":  layered(t, testserver.StartRedis(t).Addr()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := dial(t, newService(t, text, rls.Options{Taker: taker, Timeout: time.Minute}))
			r := running{requests: map[int64]time.Time{}}
			var envoys sync.WaitGroup
			stop := time.Now().Add(2 * lease)
			var granted, refused atomic.Int64
			for range 30 {
				envoys.Go(func() {
					for time.Now().Before(stop) {
						e := &envoy{t: t, client: client}
						for time.Now().Before(stop) && e.request(&r, lease, slots) {
						}
						granted.Add(e.granted)
						refused.Add(e.refused)
					}
				})
			}
			envoys.Wait()
			if granted.Load() < 20 || refused.Load() < 20 {
				t.Errorf("%d requests granted and %d refused show nothing", granted.Load(), refused.Load())
			}
			free := func() (free uint32) {
				got, err := client.ShouldRateLimit(context.Background(), ask(t, "seats=1 +0"))
				if err != nil {
					t.Fatal(err)
				}
				return got.GetStatuses()[0].GetLimitRemaining()
			}
			for end := time.Now().Add(time.Minute); free() < slots; <-time.After(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d of %d slots are free", free(), slots)
				}
			}
		})
	}
}

// running are the requests that were let through and have not ended, with the end of
// their leases at the earliest.
type running struct {
	mu       sync.Mutex
	last     int64
	requests map[int64]time.Time
}

func (r *running) begin(lease time.Time) (id int64, now int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.requests[r.last] = lease
	for _, lease := range r.requests {
		if time.Now().Before(lease) {
			now++
		}
	}
	return r.last, now
}

func (r *running) end(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, id)
}

// An envoy serves one request after another, until it dies.
type envoy struct {
	t                *testing.T
	client           rlsv3.RateLimitServiceClient
	granted, refused int64
}

// call sends a descriptor. It reports whether the request is allowed, and whether the
// envoy still lives.
func (e *envoy) call(descriptor string) (ok, alive bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dies := rand.IntN(1000) == 0
	if dies {
		timer := time.AfterFunc(time.Duration(rand.IntN(500))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	got, err := e.client.ShouldRateLimit(ctx, ask(e.t, descriptor))
	if dies {
		return false, false
	}
	if err != nil {
		e.t.Errorf("%s: %v", descriptor, err)
		return false, false
	}
	return got.GetOverallCode() == rlsv3.RateLimitResponse_OK, true
}

// request serves a request. Envoy sends the negative hit when the request ends, whatever
// the rate limit service has said.
func (e *envoy) request(r *running, lease time.Duration, slots int) (alive bool) {
	until := time.Now().Add(lease)
	ok, alive := e.call("seats=1")
	if !alive {
		return false
	}
	if ok {
		e.granted++
		id, now := r.begin(until)
		if now > slots {
			e.t.Errorf("%d requests have %d slots", now, slots)
		}
		<-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond)
		// Its request ends with it.
		r.end(id)
		if rand.IntN(40) == 0 {
			return false
		}
	} else {
		e.refused++
		defer func() { <-time.After(20 * time.Millisecond) }()
	}
	_, alive = e.call("seats=1 -1")
	return alive
}
