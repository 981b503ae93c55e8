package weirprom_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/weirmetrics"
	"github.com/weirlimit/weir/weirprom"
)

// unsure answers no act, by an error of each class in turn.
type unsure struct{ classes []error }

func (u *unsure) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		a.Err, u.classes = u.classes[0], u.classes[1:]
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	answers := weirprom.NewAnswers()
	limiter := func(store weir.Taker, name string) *weir.Limiter {
		l, err := weir.NewLimiter(weirmetrics.Wrap(store, answers), name, weir.PerHour(5))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	api := limiter(memstore.New(memstore.Options{}), "api")
	for range 3 {
		_, _ = api.AllowN(t.Context(), "k", 2)
	}
	classes := []error{weir.ErrNotApplied, weir.ErrAmbiguous, weir.ErrMisconfigured, weir.ErrBackend, weir.ErrInvalid, errors.New("another")}
	down := limiter(&unsure{classes}, "down")
	for range classes {
		_, _ = down.Allow(t.Context(), "k")
	}
	want := `
# HELP weir_decisions_total Charges that were decided, by limiter, decision and source.
# TYPE weir_decisions_total counter
weir_decisions_total{decision="granted",limiter="api",source="store"} 2
weir_decisions_total{decision="refused",limiter="api",source="store"} 1
# HELP weir_decision_errors_total Charges that ended without a decision, by limiter and class of the error.
# TYPE weir_decision_errors_total counter
weir_decision_errors_total{class="ambiguous",limiter="down"} 1
weir_decision_errors_total{class="backend",limiter="down"} 1
weir_decision_errors_total{class="invalid",limiter="down"} 1
weir_decision_errors_total{class="misconfigured",limiter="down"} 1
weir_decision_errors_total{class="not_applied",limiter="down"} 1
weir_decision_errors_total{class="other",limiter="down"} 1
# HELP weir_granted_units_total Units that were granted, by limiter.
# TYPE weir_granted_units_total counter
weir_granted_units_total{limiter="api"} 4
`
	if err := testutil.CollectAndCompare(answers, strings.NewReader(want), "weir_decisions_total", "weir_decision_errors_total", "weir_granted_units_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(answers, "weir_decision_seconds"); n != 2 {
		t.Errorf("%d histograms, want one for each limiter", n)
	}
}

// TestLocalAnswers counts what a store answers that cannot reach its server.
func TestLocalAnswers(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{OnOutage: func(*weir.Limit) redisstore.Policy { return redisstore.Local }})
	if err != nil {
		t.Fatal(err)
	}
	answers := weirprom.NewAnswers()
	limiter, err := weir.NewLimiter(weirmetrics.Wrap(store, answers), "api", weir.PerHour(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(answers, weirprom.Redis(store))
	want := `
# HELP weir_decisions_total Charges that were decided, by limiter, decision and source.
# TYPE weir_decisions_total counter
weir_decisions_total{decision="granted",limiter="api",source="fallback"} 1
weir_decisions_total{decision="refused",limiter="api",source="fallback"} 1
# HELP weir_fallback_local_total Acts decided from this instance's local share.
# TYPE weir_fallback_local_total counter
weir_fallback_local_total 2
# HELP weir_fallback_late_replies_total Acts that the store replied to after they were answered.
# TYPE weir_fallback_late_replies_total counter
weir_fallback_late_replies_total 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_decisions_total", "weir_fallback_local_total", "weir_fallback_late_replies_total"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = store.Stop(ctx) // its server never comes
}

func TestMemory(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{KeyLimit: func(*weir.Limit) weir.KeyLimit { return weir.KeyLimit{MaxKeys: 1, Overflow: "others"} }})
	limiter, err := weir.NewLimiter(store, "api", weir.PerHour(5))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		_, _ = limiter.Allow(t.Context(), key)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(weirprom.Memory(store))
	want := `
# HELP weir_memory_keys Keys with a budget of their own.
# TYPE weir_memory_keys gauge
weir_memory_keys 2
# HELP weir_memory_overflowed_total Charges of new keys that shared one budget because the memory or a key limit was full.
# TYPE weir_memory_overflowed_total counter
weir_memory_overflowed_total 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_memory_keys", "weir_memory_overflowed_total"); err != nil {
		t.Error(err)
	}
}

func Example() {
	store := memstore.New(memstore.Options{}) // or one in Redis, and weirprom.Redis below
	answers := weirprom.NewAnswers()
	limiter, err := weir.NewLimiter(weirmetrics.Wrap(store, answers), "api", weir.PerMinute(2))
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(answers, weirprom.Memory(store))

	for range 5 {
		_, _ = limiter.Allow(context.Background(), "user:42")
	}
	families, err := registry.Gather() // promhttp serves them
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "weir_decisions_total" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// granted 2
	// refused 3
}
