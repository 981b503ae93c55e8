package weir_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// patient is longer than any delay of a busy machine.
const patient = time.Minute

// onBoth runs a test on a store in memory and on one in Redis.
func onBoth(t *testing.T, test func(t *testing.T, store weir.Taker)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, memstore.New(memstore.Options{}))
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		test(t, overRedis(t, redis.NewClient(&redis.Options{
			Addr: testserver.StartRedis(t).Addr(), ContextTimeoutEnabled: true, ReadTimeout: patient, WriteTimeout: patient,
		})))
	})
}

func overRedis(t *testing.T, client redis.UniversalClient) weir.Taker {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Stop(t.Context()) })
	return store
}

// TestTogetherHold: requests, tokens and a slot are held at once and settled by what was
// used.
func TestTogetherHold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store weir.Taker) {
		requests := limiterOf(t, store, "requests", weir.PerDay(10))
		tokens := limiterOf(t, store, "tokens", weir.PerDay(1000))
		slots := limiterOf(t, store, "slots", weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour})
		call := weir.Together(requests.Cost("k", 1), tokens.Cost("k", 800), slots.Cost("k", 1))
		h, err := call.Hold(t.Context(), time.Minute)
		if err != nil || !h.OK() {
			t.Fatal(h, err)
		}
		if other, err := call.Hold(t.Context(), time.Minute); err != nil || other.OK() || other.Decision().Limit == nil {
			t.Errorf("a second one: %v, %v", other, err)
		}
		if err := h.Renew(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		var invalid *weir.InvalidError
		if _, err := h.Settle(t.Context(), 1, 120); !errors.As(err, &invalid) || invalid.Field != "actual" {
			t.Errorf("two numbers for three costs: %v", err)
		}
		if d, err := h.Settle(t.Context(), 1, 120, 0); err != nil || d.Limit == nil {
			t.Errorf("%v, %v", d, err)
		}
		if d, err := call.Peek(t.Context()); err != nil || !d.Allowed() {
			t.Errorf("a peek: %v, %v", d, err)
		}
		if r, tok := remaining(t, requests, "k"), remaining(t, tokens, "k"); r != 9 || tok != 880 {
			t.Errorf("%d requests and %d tokens remain, want 9 and 880", r, tok)
		}
		h, err = call.Hold(t.Context(), time.Minute)
		if err != nil || !h.OK() {
			t.Fatal("the slot is not free:", h, err)
		}
		if err := h.Release(t.Context()); err != nil || remaining(t, tokens, "k") != 880 {
			t.Errorf("released: %v", err)
		}
	})
}

// TestTogetherWaits: costs that can be booked ahead are.
func TestTogetherWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{Now: time.Now})
		one := limiterOf(t, store, "one", weir.Limit{Count: 10, Period: time.Second, Burst: 1})
		two := limiterOf(t, store, "two", weir.PerDay(1000))
		both := weir.Together(one.Cost("a", 1), two.Cost("b", 2))
		begun := time.Now()
		for range 3 {
			if err := both.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if waited, left := time.Since(begun), remaining(t, two, "b"); waited != 200*time.Millisecond || left != 994 {
			t.Errorf("three turns of a tenth of a second took %v, and %d of 1000 remain", waited, left)
		}
	})
}

func TestTogetherRefuses(t *testing.T) {
	t.Parallel()
	l, other := limiter(t, weir.PerDay(1)), limiter(t, weir.PerDay(1))
	slots := limiter(t, weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Hour})
	var many []weir.Cost
	for range weir.MaxCharges + 1 {
		many = append(many, l.Cost("k", 1))
	}
	for field, j := range map[string]*weir.Joint{
		"costs":      weir.Together(),
		"costs ":     weir.Together(many...),
		"limiter":    weir.Together(l.Cost("k", 1), weir.Cost{}),
		"store":      weir.Together(l.Cost("k", 1), other.Cost("k", 1)),
		"cost":       weir.Together(l.Cost("k", -1)),
		"algorithm ": weir.Together(slots.Cost("k", 1)),
	} {
		_, allowed := j.Allow(t.Context())
		errs := []error{allowed, j.Wait(t.Context())}
		if field != "algorithm " {
			_, peeked := j.Peek(t.Context())
			_, held := j.Hold(t.Context(), time.Minute)
			errs = append(errs, peeked, held)
		}
		for i, err := range errs {
			var invalid *weir.InvalidError
			if !errors.As(err, &invalid) || invalid.Field+" " != field && invalid.Field != field {
				t.Errorf("%s, call %d: %v", field, i, err)
			}
		}
	}
}

// TestTogetherOverSlots: in a Redis Cluster, keys of different hash slots never admit more
// than any of their limits, and a refusal leaves nothing charged.
func TestTogetherOverSlots(t *testing.T) {
	t.Parallel()
	const users, perUser, perTenant, inAll = 8, 3, 9, 14
	store := overRedis(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: testserver.StartCluster(t, 3).Addrs(), ContextTimeoutEnabled: true, ReadTimeout: patient, WriteTimeout: patient,
	}))
	user, tenant := limiterOf(t, store, "user", weir.PerDay(perUser)), limiterOf(t, store, "tenant", weir.PerDay(perTenant))
	all := limiterOf(t, store, "all", weir.PerDay(inAll))
	var granted [users]atomic.Int64
	ask := func(i int) bool {
		d, err := weir.Together(user.Cost(fmt.Sprint("user", i), 1), tenant.Cost(fmt.Sprint("tenant", i%2), 1), all.Cost("all", 1)).Allow(t.Context())
		if err != nil {
			t.Error(err)
		}
		if d.Allowed() {
			granted[i].Add(1)
		}
		return d.Allowed()
	}
	var crowd sync.WaitGroup
	for i := range 8 * users {
		crowd.Go(func() {
			for range 5 {
				ask(i % users)
			}
		})
	}
	crowd.Wait()
	// What a refused request had charged is undone a moment later, and then asked for again.
	wrong := "nothing was compared"
	for end := time.Now().Add(patient); wrong != "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		wrong = ""
		var sum int64
		var tenants [2]int64
		compare := func(l *weir.Limiter, key string, n, most int64) {
			if left := remaining(t, l, key); n > most {
				t.Fatalf("%s: %d granted of %d", key, n, most)
			} else if left != most-n {
				wrong = fmt.Sprintf("%s: %d granted and %d left of %d", key, n, left, most)
			}
		}
		for i := range users {
			ask(i)
			n := granted[i].Load()
			sum, tenants[i%2] = sum+n, tenants[i%2]+n
			compare(user, fmt.Sprint("user", i), n, perUser)
		}
		for i, n := range tenants {
			compare(tenant, fmt.Sprint("tenant", i), n, perTenant)
		}
		if compare(all, "all", sum, inAll); sum != inAll {
			wrong = fmt.Sprintf("%d granted in all, want %d", sum, inAll)
		}
	}
	if wrong != "" {
		t.Error(wrong)
	}
}

// TestOverrides: an override names a limit of a limiter's key, or is an error.
func TestOverrides(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store weir.Taker) {
		api := limiterOf(t, store, "api", weir.Limit{Name: "short", Count: 10, Period: time.Hour}, weir.Limit{Name: "long", Count: 100, Period: 24 * time.Hour})
		login := limiterOf(t, store, "login", weir.PerHour(3))
		until := time.Now().Add(time.Hour)
		more, none := weir.PerHour(50), weir.PerHour(0)
		for _, err := range []error{
			api.SetOverride("tenant:7", weir.Override{Name: "short", Limit: &more, Until: until}),
			login.SetOverride("bob", weir.Override{Limit: &none, Until: until}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if d, err := api.AllowN(t.Context(), "tenant:7", 50); err != nil || !d.Allowed() || d.Limit.Name != "short" {
			t.Errorf("with more: %v of %v, %v", d, d.Limit, err)
		}
		if d, err := api.AllowN(t.Context(), "tenant:8", 11); err != nil || d.Allowed() {
			t.Errorf("another tenant: %v, %v", d, err)
		}
		if d, err := login.Allow(t.Context(), "bob"); err != nil || d.Allowed() || d.Limit == nil {
			t.Errorf("a blocked key: %v, %v", d, err)
		}
		if !login.RemoveOverride("bob") || login.RemoveOverride("bob") {
			t.Error("the override was not removed once")
		}
		if d, err := login.Allow(t.Context(), "bob"); err != nil || !d.Allowed() {
			t.Errorf("no longer blocked: %v, %v", d, err)
		}
		var invalid *weir.InvalidError
		for _, name := range []string{"", "0", "short#", "shrot"} {
			if err := api.SetOverride("u", weir.Override{Name: name, Limit: &more, Until: until}); !errors.As(err, &invalid) || invalid.Field != "name" {
				t.Errorf("the name %q: %v", name, err)
			}
		}
		if err := login.SetOverride("u", weir.Override{Limit: &more, Until: time.Now()}); !errors.As(err, &invalid) || invalid.Field != "until" {
			t.Errorf("an override of the past: %v", err)
		}
	})
	bare := limiterOf(t, struct{ weir.Taker }{memstore.New(memstore.Options{})}, "bare", weir.PerDay(1))
	var invalid *weir.InvalidError
	if err := bare.SetOverride("u", weir.Override{Until: time.Now().Add(time.Hour)}); !errors.As(err, &invalid) || invalid.Field != "store" {
		t.Errorf("a store without overrides: %v", err)
	}
}

// TestRemoveOverrideOfAClass: a class removes its own override, and leaves that of the budget.
func TestRemoveOverrideOfAClass(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	shares, err := weir.Shares{Limit: weir.PerHour(1000), Guarantees: map[string]int64{"web": 300}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	web, others, all := shares.Limiter(store, "api", "web"), shares.Limiter(store, "api", "others"), shares.Limiter(store, "api", "")
	backup := limiterOf(t, store, "backup", weir.PerHour(10))
	joined, err := web.Otherwise(backup)
	if err != nil {
		t.Fatal(err)
	}
	turned, err := backup.Otherwise(web)
	if err != nil {
		t.Fatal(err)
	}
	none, until := weir.PerHour(0), time.Now().Add(time.Hour)
	for name, l := range map[string]*weir.Limiter{"guaranteed": web, "without guarantee": others, "keeping": web.Keeping(1), "otherwise": joined, "turned": turned} {
		for limiter, o := range map[*weir.Limiter]weir.Override{all: {Limit: &none, Until: until}, web: {Name: "web", Limit: &none, Until: until}} {
			if err := limiter.SetOverride(name, o); err != nil {
				t.Fatal(err)
			}
		}
		if removed := l.RemoveOverride(name); removed != (l != others) {
			t.Errorf("%s: removed an override: %v", name, removed)
		}
		if d, err := others.Allow(t.Context(), name); err != nil || d.Allowed() {
			t.Errorf("%s: the budget is not blocked any more: %v, %v", name, d, err)
		}
		if !all.RemoveOverride(name) {
			t.Errorf("%s: the budget's own limiter did not remove the override", name)
		}
		if d, err := others.Allow(t.Context(), name); err != nil || !d.Allowed() {
			t.Errorf("%s: the budget is blocked for ever: %v, %v", name, d, err)
		}
		a := web.Act(acts.KindTake, name, 0)
		if web.Take(t.Context(), []*weir.Act{a}); a.Err != nil || (a.LimitOf(0).Count > 0) != (l != others) {
			t.Errorf("%s: the class has the limit %v, %v", name, a.LimitOf(0), a.Err)
		}
	}
}
