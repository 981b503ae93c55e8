package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/testserver"
)

// A reload is a change of the rules for one key. A hold of 10 units is taken before it.
type reload struct {
	name          string
	before, after string // the rule for the key user, in YAML
	// charged are the limits that the hold is charged under, by their names in the rules
	// before and after. Nil: the shares, without a guarantee that was added.
	charged, still []string
}

const (
	minute = "{name: minute, requests_per_unit: 100, unit: day, algorithm: sliding_log}"
	hour   = "{name: hour, requests_per_unit: 500, unit: day, algorithm: gcra}"
	more   = "{name: minute, requests_per_unit: 200, unit: day, algorithm: sliding_log}"
	other  = "{name: minute, requests_per_unit: 100, unit: day, algorithm: gcra}"
	places = "{name: places, requests_per_unit: 5, period: 1h, algorithm: concurrency}"
)

func shared(guarantee string) string {
	return "shares: {requests_per_unit: 1000, unit: day, burst: 200, headroom: 60, guarantee: {" + guarantee + "}}"
}

var reloads = []reload{
	{"limit added", limits(minute), limits(minute, hour), []string{"minute"}, []string{"minute"}},
	{"limit added before it", limits(minute), limits(hour, minute), []string{"minute"}, []string{"minute"}},
	{"limit removed", limits(minute, hour), limits(minute), []string{"minute", "hour"}, []string{"minute"}},
	{"first limit removed", limits(minute, hour), limits(hour), []string{"minute", "hour"}, []string{"hour"}},
	{"slots removed", limits(minute, places), limits(minute), []string{"minute", "places"}, []string{"minute"}},
	{"otherwise added", limits(minute), limits(minute) + "\n    otherwise: [{rate_limits: [" + hour + "]}]", []string{"minute"}, []string{"minute"}},
	{"otherwise removed", limits(minute) + "\n    otherwise: [{rate_limits: [" + hour + "]}]", limits(minute), []string{"minute"}, []string{"minute"}},
	{"guarantee added", shared("web: 300"), shared("web: 300, a: 200"), nil, nil},
	{"guarantee removed", shared("web: 300, a: 200"), shared("web: 300"), nil, nil},
	{"algorithm changed", limits(minute), limits(other), []string{"minute"}, nil},
	{"count changed", limits(minute), limits(more), []string{"minute"}, []string{"minute"}},
}

func limits(list ...string) string {
	text := "rate_limits: ["
	for _, l := range list {
		text += l + ", "
	}
	return text + "]"
}

// rulesOf are rules with one rule, for a key of its own.
func rulesOf(key, rule string) string {
	return fmt.Sprintf("domain: shop\ndescriptors:\n  - key: %s\n    %s\n", key, rule)
}

// TestHoldsSurviveReloads takes a hold before a change of the rules and settles, releases,
// renews or repeats it after that: what was charged is returned, and what was not is not.
func TestHoldsSurviveReloads(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) weir.Taker{
		"memory": func(*testing.T) weir.Taker { return frozen() },
		"redis": func(t *testing.T) weir.Taker {
			return redisTaker(t, redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr(), ReadTimeout: time.Minute, ContextTimeoutEnabled: true}))
		},
		"cluster": func(t *testing.T) weir.Taker {
			return redisTaker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: testserver.StartCluster(t, 3).Addrs(), ReadTimeout: time.Minute, ContextTimeoutEnabled: true}))
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taker := open(t)
			for i, r := range reloads {
				for kind, returned := range map[string]int64{"settle": 6, "release": 10, "renew": 0, "take": 0} {
					t.Run(r.name+" "+kind, func(t *testing.T) { holdOver(t, taker, &r, fmt.Sprint(kind, i), kind, returned) })
				}
			}
		})
	}
}

func redisTaker(t *testing.T, client redis.UniversalClient) weir.Taker {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func holdOver(t *testing.T, taker weir.Taker, r *reload, key, kind string, returned int64) {
	before, after := handlerOf(t, rulesOf(key, r.before), Options{Taker: taker}), handlerOf(t, rulesOf(key, r.after), Options{Taker: taker})
	entry := key + "=a"
	left := func(h http.Handler) map[string]int64 {
		w := take(h, takeOf(`,"cost":0`, entry))
		wantStatus(t, w, http.StatusOK)
		remaining := map[string]int64{}
		for _, l := range decode[actAnswer](t, w).Limits {
			remaining[l.Name] = max(remaining[l.Name], l.Remaining)
		}
		return remaining
	}
	fresh := [2]map[string]int64{left(before), left(after)}
	held := takeOf(`,"cost":10,"hold_ms":60000,"id":"job"`, entry)
	wantStatus(t, take(before, held), http.StatusOK)
	body := held
	switch kind {
	case "settle":
		body = takeOf(`,"cost":4,"id":"job"`, entry)
	case "release", "renew":
		body = takeOf(`,"id":"job"`, entry)
	}
	for range 2 {
		w := post(after, kind, body)
		wantStatus(t, w, http.StatusOK)
		if got := decode[actAnswer](t, w); got.ID != "job" || kind == "take" && got.Granted != 10 && len(r.still) > 0 {
			t.Errorf("%+v", got)
		}
	}
	for i, charged := range [][]string{r.charged, r.still} {
		got := left([]http.Handler{before, after}[i])
		for name, n := range fresh[i] {
			used := int64(0)
			switch {
			case name == "places":
				used = map[string]int64{"renew": 1, "take": 1}[kind]
			case slices.Contains(charged, name), r.charged == nil && (i == 0 || !strings.HasSuffix(name, "guaranteed")):
				used = 10 - returned
			}
			if got[name] != n-used {
				t.Errorf("%s: %d remain of %s, want %d", []string{"before", "after"}[i], got[name], name, n-used)
			}
		}
	}
}
