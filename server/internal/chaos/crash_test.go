package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// An answer is what POST /v1/take said.
type answer struct {
	Granted int64 `json:"granted"`
	Limits  []struct {
		RetryAfter int64  `json:"retry_after_ms"`
		Remaining  int64  `json:"remaining"`
		Source     string `json:"source"`
	} `json:"limits"`
}

// take asks for units of a key of the domain chaos.
func (i *instance) take(t *testing.T, client *http.Client, key string, cost int64) answer {
	t.Helper()
	body := fmt.Appendf(nil, `{"domain":"chaos","descriptors":[{"entries":[{"key":%q,"value":"1"}]}],"cost":%d}`, key, cost)
	resp, err := client.Post("http://"+i.http+"/v1/take", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || len(a.Limits) != 1 {
		t.Fatalf("take %s: %d %+v %v", key, resp.StatusCode, a, err)
	}
	return a
}

// TestKilledWithAShare kills an instance that spends from a share: what is stranded
// is no more than the share, and nobody is granted it twice.
func TestKilledWithAShare(t *testing.T) {
	t.Parallel()
	const count, share = 10_000, 1_000 // of the key leased; a tenth of it
	store := testserver.StartRedis(t)
	dies, stays := serve(t, store.URL()), serve(t, store.URL())
	client := newClient(t)
	granted, leased := int64(0), 0
	for leased < 20 && granted < count/2 {
		a := dies.take(t, client, "leased", 1)
		granted += a.Granted
		if a.Limits[0].Source == "lease" {
			leased++
		}
	}
	dies.Stop(syscall.SIGKILL)
	a := stays.take(t, client, "leased", 0)
	left := a.Limits[0].Remaining
	for rest := left; rest > 0; {
		got := stays.take(t, client, "leased", min(rest, 100)).Granted
		granted, rest = granted+got, rest-max(got, 1)
	}
	r := row{
		fault: "SIGKILL of an instance with a share", promise: fmt.Sprintf("at most a share of %d is stranded, none granted twice", share),
		measured: fmt.Sprintf("%d of %d granted, %d stranded", granted, count, count-granted),
	}
	if leased == 0 {
		r.fail(t, "it never had a share")
	}
	if granted > count || granted < count-share {
		r.fail(t, "%d granted", granted)
	}
	report(r)
}

// TestKilledInItsPlace kills an instance whose callers hold all places: they are free
// when their leases end, and not before.
func TestKilledInItsPlace(t *testing.T) {
	t.Parallel()
	const places = 3
	store := testserver.StartRedis(t)
	dies, stays := serve(t, store.URL(), "--deny-cache-entries", "0"), serve(t, store.URL(), "--deny-cache-entries", "0")
	client := newClient(t)
	for range places {
		if a := dies.take(t, client, "place", 1); a.Granted != 1 {
			t.Fatalf("a free place: %+v", a)
		}
	}
	dies.Stop(syscall.SIGKILL)
	refusals := 0
	a := stays.take(t, client, "place", 1)
	for ; a.Granted == 0 && refusals < 100; refusals++ {
		wait := time.Duration(a.Limits[0].RetryAfter) * time.Millisecond
		if wait <= 0 || wait > 2*time.Second {
			t.Fatalf("told to wait for %v of a lease of 2s", wait)
		}
		time.Sleep(wait)
		a = stays.take(t, client, "place", 1)
	}
	r := row{
		fault: "SIGKILL of an instance with places", promise: "its places are free when their leases end",
		measured: fmt.Sprintf("free after %d refusals, each with its wait", refusals),
	}
	// A full limit says to ask again each second, as places may be returned before their
	// leases of two seconds end.
	if a.Granted != 1 || refusals > 3 {
		r.fail(t, "granted %d after %d refusals", a.Granted, refusals)
	}
	report(r)
}

// TestStampede has ten thousand callers ask two instances for one key at once.
func TestStampede(t *testing.T) {
	t.Parallel()
	const crowd, fits = 10_000, 1_000
	store := testserver.StartRedis(t)
	// This is about exactness; a busy machine takes its time.
	url := store.URL() + "?read_timeout=20s&write_timeout=20s&pool_timeout=20s&dial_timeout=5s"
	var services []rlsv3.RateLimitServiceClient
	for range 2 {
		services = append(services, rlsv3.NewRateLimitServiceClient(dialFleet(t, serve(t, url).grpc)))
	}
	var passed, refused, errs atomic.Int64
	var callers sync.WaitGroup
	ready := make(chan struct{})
	for i := range crowd {
		callers.Go(func() {
			<-ready
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			m, err := services[i%len(services)].ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
				Domain: "chaos", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
					Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "exact", Value: "1"}},
				}},
			})
			switch {
			case err != nil:
				if errs.Add(1) == 1 {
					t.Error(err)
				}
			case m.GetOverallCode() == rlsv3.RateLimitResponse_OK:
				passed.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	close(ready)
	callers.Wait()
	r := row{
		fault: "10 000 callers at once on one key", promise: "exactly 1000 granted, no error",
		measured: fmt.Sprintf("%d granted, %d refused, %d errors", passed.Load(), refused.Load(), errs.Load()),
	}
	if passed.Load() != fits || refused.Load() != crowd-fits {
		r.fail(t, "%s", r.measured)
	}
	report(r)
}

// TestStampedeOfGoroutines has ten thousand goroutines of one program ask for one key:
// few calls are under way in Redis at a time.
func TestStampedeOfGoroutines(t *testing.T) {
	t.Parallel()
	const crowd, fits = 10_000, 1_000
	server := testserver.StartRedis(t)
	var under, most atomic.Int64
	counted := hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		n := under.Add(1)
		for known := most.Load(); n > known && !most.CompareAndSwap(known, n); known = most.Load() {
		}
		defer under.Add(-1)
		return next(ctx, cmd)
	})
	taker := stopped(t, stack.New(store(t, place{addrs: []string{server.Addr()}}.options(time.Minute), counted), stack.Options{
		Remote: patientRemote(),
	}))
	exact := limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: fits, Period: decades})
	took := make([]time.Duration, crowd)
	var passed atomic.Int64
	var callers sync.WaitGroup
	ready := make(chan struct{})
	for i := range crowd {
		callers.Go(func() {
			a := storetest.NewAct(weir.Charge{Key: "one", Limit: exact, Cost: 1})
			<-ready
			began := time.Now()
			taker.Take(context.Background(), []*weir.Act{a})
			if took[i] = time.Since(began); a.Err != nil {
				t.Error(a.Err)
			} else if a.Allowed() {
				passed.Add(1)
			}
		})
	}
	control := startControl()
	close(ready)
	callers.Wait()
	late := control.end()
	slices.Sort(took)
	p99 := took[crowd*99/100]
	r := row{
		fault: "10 000 goroutines at once on one key", promise: fmt.Sprintf("exactly %d granted, no error, at most %d calls in Redis", fits, 2*poolSize),
		measured: fmt.Sprintf("%d granted, %d calls at once at most, p99 %v; this machine was up to %v late", passed.Load(), most.Load(), p99.Round(10*time.Microsecond), late.Round(10*time.Microsecond)),
	}
	if passed.Load() != fits || most.Load() > 2*poolSize {
		r.fail(t, "%s", r.measured)
	}
	report(r)
}
