package meter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/models/ledger"
)

// recording gives a proxy a ledger, which stops with the test.
func recording(t *testing.T, o ledger.Options) func(*Options) {
	t.Helper()
	l, err := ledger.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = l.Stop(ctx) // Some stores are gone by then.
	})
	return func(o *Options) { o.Ledger = l }
}

const budgetRules = `
domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors:
  - key: user
    rate_limits:
      - {name: user, count: usd, dollars: 1, unit: month, algorithm: fixed_window, time_zone: UTC, alert: [80%, 100%]}
      - {name: output, count: output, requests_per_unit: 1000000, unit: minute, algorithm: gcra}
  - {key: company, rate_limit: {name: company, count: usd, dollars: 28.83, unit: month, algorithm: fixed_window, time_zone: UTC, show: true, alert: [50%, 80%, 100%]}}
`

// TestEntered wants what requests used in the ledger, by person, team and model, and nothing of
// requests that were refused.
func TestEntered(t *testing.T) {
	t.Parallel()
	file := people(map[string]string{"ann": "user: ann, team: web, company: acme", "key": "company: acme"})
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, budgetRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				for text, status := range map[string]int{"unknown": http.StatusNotFound, "stranger": http.StatusUnauthorized} {
					if strings.Contains(string(body), text) {
						w.WriteHeader(status)
						return
					}
				}
				fmt.Fprint(w, `{"usage":{"prompt_tokens":9,"completion_tokens":250,"prompt_tokens_details":{"cached_tokens":2}}}`)
			}), open, withCallers(t, file), recording(t, ledger.Options{}))
			for _, c := range []struct {
				who, model string
				most       int
				want       int
			}{
				{"ann", "m", 300, 200},
				{"ann", "m", 300, 200},
				{"key", "other", 300, 200},
				{"ann", "unknown", 300, 404},
				{"ann", "stranger", 300, 401},
				{"ann", "m", 600, 429},
			} {
				if a := b.as(c.who, fmt.Sprintf(`{"model":"%s","max_tokens":%d,"messages":[]}`, c.model, c.most)); a.StatusCode != c.want {
					t.Errorf("%v: %d %s", c, a.StatusCode, a.text)
				}
			}
			l := b.proxy.Ledger
			var rows []ledger.Row
			testserver.Eventually(t, "the rows", func() bool {
				var err error
				if rows, err = l.Month(t.Context(), time.Now().UTC().Format("2006-01")); err != nil {
					t.Fatal(err)
				}
				sum := int64(0)
				for _, r := range rows {
					sum += r.Requests
				}
				return sum == 4
			})
			want := []ledger.Row{
				{User: "ann", Team: "web", Model: "*", Numbers: ledger.Numbers{Requests: 1}},
				{User: "ann", Team: "web", Model: "m", Numbers: ledger.Numbers{Requests: 2, Input: 14, Cached: 4, Output: 500, USD: 500_000}},
				{User: "key", Model: "other", Numbers: ledger.Numbers{Requests: 1, Input: 7, Cached: 2, Output: 250, USD: 250_000}},
			}
			if diff := cmp.Diff(want, rows); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := l.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			want[0].Refused = 1
			if rows, err := l.Month(t.Context(), time.Now().UTC().Format("2006-01")); err != nil || !cmp.Equal(want, rows) {
				t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, rows))
			}
		})
	}
}

// TestMeOfLedger wants GET /v1/me to show what is settled as used, and what open requests hold as held,
// at any instance.
func TestMeOfLedger(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	arrived, release := make(chan bool), make(chan bool)
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"open"`) {
			arrived <- true
			<-release
		}
		fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":250}}`)
	})
	file, records := people(map[string]string{"ann": "user: ann"}), recording(t, ledger.Options{Client: client})
	at := func(o *Options) { o.Taker = redisAt(t, server.Addr(), "x:") }
	one, other := newBench(t, budgetRules, upstream, at, withCallers(t, file), records), newBench(t, budgetRules, upstream, at, withCallers(t, file), records)
	var ended sync.WaitGroup
	ended.Go(func() { one.as("ann", `{"model":"open","max_tokens":40,"messages":[]}`) })
	<-arrived
	if a := one.as("ann", `{"model":"m","max_tokens":300,"messages":[]}`); a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, a.text)
	}
	testserver.Eventually(t, "the ledger", func() bool { return one.proxy.Ledger.Waiting() == 0 && len(one.proxy.open.held()) == 2 })
	other.proxy.asking.until = nil
	r := other.request(http.MethodGet, "/v1/me", "")
	r.Header.Set("Authorization", "Bearer "+tokenOf("ann"))
	var got meAnswer
	testserver.Eventually(t, "what is settled", func() bool {
		other.proxy.asking = askers{}
		if err := json.Unmarshal([]byte(other.send(r).text), &got); err != nil || len(got.Limits) != 2 {
			t.Fatalf("%v %v", got, err)
		}
		return got.Limits[0].Used != "0"
	})
	if l := got.Limits[0]; l.Name != "user" || l.Used != "0.25" || l.Held != "0.04" || l.Remaining != "0.71" {
		t.Errorf("%+v", l)
	}
	close(release)
	ended.Wait()
}

// hooks is a webhook that notes the IDs and texts that it accepts.
type hooks struct {
	*httptest.Server
	up    atomic.Bool
	tries atomic.Int64
	mu    sync.Mutex
	ids   map[string][]string // texts by ID
}

func startHooks(t *testing.T) *hooks {
	h := &hooks{ids: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.tries.Add(1); !h.up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var m struct{ Text string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		id := r.Header.Get("Webhook-Id")
		h.ids[id] = append(h.ids[id], m.Text)
	}))
	t.Cleanup(h.Close)
	return h
}

// texts returns the texts, one for each ID.
func (h *hooks) texts(t *testing.T) (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, texts := range h.ids {
		if len(slices.Compact(slices.Clone(texts))) != 1 {
			t.Errorf("%s has several texts: %v", id, texts)
		}
		all = append(all, texts[0])
	}
	slices.Sort(all)
	return all
}

// TestAlerts has 30 people of a company make 930 requests at two instances, while the webhook is
// down, replies of Redis are lost, Redis stands still for a while, and one instance dies. Each alert
// is recorded once, and delivered under one ID.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const persons, each = 30, 31
	server, h := testserver.StartRedis(t), startHooks(t)
	labels := map[string]string{}
	for i := range persons {
		labels[fmt.Sprint("p", i)] = fmt.Sprintf("user: p%d, company: acme", i)
	}
	file := people(labels)
	var requests atomic.Int64
	between := testserver.StartProxy(t, server.Addr(), func(request []byte) testserver.Fault {
		if n := requests.Add(1); strings.Contains(string(request), "{ledger/llm}") && n%300 == 0 {
			return []testserver.Fault{testserver.Drop, testserver.Refuse, testserver.Cut, testserver.Reset}[n/300%4]
		}
		return testserver.Pass
	})
	// The store is the same for both, without faults and with time for what stands still.
	var store weir.Taker
	both := func(o *Options) {
		if store == nil {
			store = delivering(t, redisAt(t, server.Addr(), "x:"), remote.Options{Patience: 20 * time.Second})
		}
		o.Taker, o.Timeout = store, 30*time.Second
	}
	instance := func() (*bench, *redis.Client) {
		client := redis.NewClient(&redis.Options{Addr: between.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		return newBench(t, budgetRules, reporting(1, 31), both, withCallers(t, file), recording(t, ledger.Options{Client: client, Domain: "llm", Webhook: h.URL})), client
	}
	one, _ := instance()
	other, dies := instance()
	var sent atomic.Int64
	ask := func(times int, instances ...*bench) {
		var done sync.WaitGroup
		for i := range persons {
			done.Go(func() {
				for j := range times {
					if sent.Add(1) == 300 {
						server.Pause()
						time.AfterFunc(1500*time.Millisecond, server.Resume)
					}
					if a := instances[(i+j)%len(instances)].as(fmt.Sprint("p", i), `{"model":"m","max_tokens":31,"messages":[]}`); a.StatusCode != http.StatusOK {
						t.Errorf("%d %s", a.StatusCode, a.text)
					}
				}
			})
		}
		done.Wait()
	}
	ask(28, one, other)
	testserver.Eventually(t, "the settlements of the other instance", func() bool { return other.proxy.Ledger.Waiting() == 0 })
	// It has recorded alerts and delivered none.
	_ = dies.Close()
	ask(each-28, one)
	testserver.Eventually(t, "attempts", func() bool { return h.tries.Load() > 0 })
	h.up.Store(true)
	var want []string
	for i := range persons {
		// 31 requests of $0.031 are $0.961: 80 %, and not 100 %.
		want = append(want, fmt.Sprintf("p%d has used 80 %% of $1 a month (user)", i))
	}
	// 930 of them are $28.83.
	want = append(want, "acme has used 50 % of $28.83 a month (company)", "acme has used 80 % of $28.83 a month (company)", "acme has used up $28.83 a month (company)")
	slices.Sort(want)
	testserver.Eventually(t, "all alerts", func() bool { return len(h.texts(t)) >= len(want) })
	if diff := cmp.Diff(want, h.texts(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAlertOfRaise wants the amount in force at the settlement to count, that of a raise or of a
// lower override.
func TestAlertOfRaise(t *testing.T) {
	t.Parallel()
	h := startHooks(t)
	h.up.Store(true)
	own := override.Wrap(memengine.New(memengine.Options{}), override.Options{})
	b := newBench(t, budgetRules, reporting(1, 85), withCallers(t, people(map[string]string{"ann": "user: ann"})),
		func(o *Options) { o.Taker = own }, recording(t, ledger.Options{Webhook: h.URL}))
	set := func(o override.Override) {
		o.Key, o.Until = "llm/user=ann;user;user", time.Now().Add(time.Hour)
		if err := own.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	ask := func(text ...string) {
		t.Helper()
		if a := b.as("ann", `{"model":"m","max_tokens":85,"messages":[]}`); a.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", a.StatusCode, a.text)
		}
		want = append(want, text...)
		slices.Sort(want)
		testserver.Eventually(t, strings.Join(text, ", "), func() bool { return len(h.texts(t)) >= len(want) })
		if diff := cmp.Diff(want, h.texts(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	set(override.Override{Limit: monthOf(t, 100_000)})
	ask("ann has used 80 % of $0.1 a month (user)")
	set(override.Override{Limit: monthOf(t, 200_000)})
	ask("ann has used 80 % of $0.2 a month (user)")
	set(override.Override{Raise: &override.Raise{ID: "I", Units: 400_000}})
	ask()
}

func monthOf(t *testing.T, micros int64) *weir.Limit {
	t.Helper()
	l, err := weir.Limit{Algorithm: weir.FixedWindow, Count: micros, Period: 30 * 24 * time.Hour, TimeZone: "UTC"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAlertOfRefusal wants the first refusal for what was used to be an alert at 100 %, and a
// refusal for what is held to be none.
func TestAlertOfRefusal(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			h := startHooks(t)
			h.up.Store(true)
			arrived, release := make(chan bool), make(chan bool)
			b := newBench(t, budgetRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"open"`) {
					arrived <- true
					<-release
				}
				fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":500}}`)
			}), open, withCallers(t, people(map[string]string{"ann": "user: ann", "bo": "user: bo"})), recording(t, ledger.Options{Webhook: h.URL}))
			ask := func(who, model string, most, status int) {
				t.Helper()
				if a := b.as(who, fmt.Sprintf(`{"model":"%s","max_tokens":%d,"messages":[]}`, model, most)); a.StatusCode != status {
					t.Errorf("%s: %d %s", who, a.StatusCode, a.text)
				}
			}
			var ended sync.WaitGroup
			ended.Go(func() { ask("bo", "open", 900, http.StatusOK) })
			<-arrived
			ask("bo", "m", 500, http.StatusTooManyRequests) // what is held keeps it out
			close(release)
			ended.Wait()
			ask("ann", "m", 600, http.StatusOK)
			testserver.Eventually(t, "the ledger", func() bool { return b.proxy.Ledger.Waiting() == 0 })
			ask("ann", "m", 501, http.StatusTooManyRequests)
			testserver.Eventually(t, "the alert", func() bool { return len(h.texts(t)) == 1 })
			if got := h.texts(t); got[0] != "ann has used up $1 a month (user)" {
				t.Errorf("%v", got)
			}
		})
	}
}
