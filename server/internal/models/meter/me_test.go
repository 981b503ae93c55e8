package meter

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/override"
)

const meRules = `
domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors:
  - key: user
    rate_limits:
      - {name: user, count: usd, dollars: 200, unit: month, algorithm: fixed_window, time_zone: UTC}
      - {name: open, requests_per_unit: 8, period: 30s, algorithm: concurrency}
    descriptors: [{key: model, rate_limit: {name: of a model, requests_per_unit: 1000, unit: day, algorithm: gcra}}]
  - key: team
    rate_limit: {name: team, count: usd, dollars: 3000.5, unit: month, algorithm: fixed_window, time_zone: UTC, show: true}
  - key: company
    rate_limit: {name: company, count: usd, dollars: 20000, unit: month, algorithm: fixed_window, time_zone: UTC}
`

// TestMe wants a caller told what it has left of its own limits and of those that its rules show,
// with what its open requests hold, and nothing charged or forwarded.
func TestMe(t *testing.T) {
	t.Parallel()
	file := people(map[string]string{"ann": "user: ann, team: web, company: acme"})
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan bool), make(chan bool)
			b := newBench(t, meRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), `"open"`) {
					arrived <- true
					<-release
				}
				fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":250}}`)
			}), open, withCallers(t, file))
			var ended sync.WaitGroup
			ended.Go(func() { b.as("ann", `{"model":"open","max_tokens":40,"messages":[]}`) })
			<-arrived
			if a := b.as("ann", `{"model":"m","max_tokens":300,"messages":[]}`); a.StatusCode != http.StatusOK {
				t.Errorf("%d %s", a.StatusCode, a.text)
			}
			b.eventually("the settlement", func() bool { return len(b.proxy.open.held()) == 4 })
			r := b.request(http.MethodGet, "/v1/me", "")
			r.Header.Set("Authorization", "Bearer "+tokenOf("ann"))
			a := b.send(r)
			var got meAnswer
			if err := json.Unmarshal([]byte(a.text), &got); err != nil || a.StatusCode != http.StatusOK || a.Header.Get("Weir-Source") != "weir" {
				t.Fatalf("%d %s %v", a.StatusCode, a.text, err)
			}
			for i := range got.Limits {
				l := &got.Limits[i]
				if at, err := time.Parse(time.RFC3339, l.ResetsAt); l.Name != "open" && (err != nil || time.Until(at) > 32*24*time.Hour) {
					t.Errorf("%s resets at %q", l.Name, l.ResetsAt)
				}
				l.ResetsAt = ""
			}
			want := meAnswer{Key: "ann", Labels: map[string]string{"user": "ann", "team": "web", "company": "acme"}, Limits: []meLimit{
				{Name: "team", Descriptor: "team=web", Count: "usd", Limit: "3000.5", Period: "month", Used: "0.25", Held: "0.04", Remaining: "3000.21"},
				{Name: "user", Descriptor: "user=ann", Count: "usd", Limit: "200", Period: "month", Used: "0.25", Held: "0.04", Remaining: "199.71"},
				{Name: "open", Descriptor: "user=ann", Count: "requests", Limit: 8.0, Used: 0.0, Held: 1.0, Remaining: 7.0},
			}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			close(release)
			ended.Wait()
			for path, status := range map[string]int{"/v1/me": http.StatusUnauthorized, "/v1/me/": http.StatusNotFound} {
				if a := b.send(b.request(http.MethodGet, path, "")); a.StatusCode != status {
					t.Errorf("%s: %d %s", path, a.StatusCode, a.text)
				}
			}
		})
	}
}

// TestMeIsAskedSeldom wants a caller to ask once a second at most, and callers to take bounded
// memory.
func TestMeIsAskedSeldom(t *testing.T) {
	t.Parallel()
	b := newBench(t, testRules, reporting(1, 1))
	ask := func() answered { return b.send(b.request(http.MethodGet, "/v1/me", "")) }
	b.proxy.asking.may(secretKey, time.Now().Add(time.Hour))
	if a := ask(); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", a.StatusCode, a.text)
	}
	synctest.Test(t, func(t *testing.T) {
		var a askers
		for i := range 2 * maxAsking {
			if may := a.may(fmt.Sprint(i), time.Now()); may != (i < maxAsking) {
				t.Fatalf("caller %d: %t", i, may)
			}
		}
		if time.Sleep(meEvery); !a.may("0", time.Now()) || a.may("0", time.Now()) || len(a.until) != 1 {
			t.Errorf("%d are remembered", len(a.until))
		}
	})
}

// TestMeUnderRaise wants the limit in force shown to a caller with a raise, and what is left of it.
func TestMeUnderRaise(t *testing.T) {
	t.Parallel()
	own := override.Wrap(memengine.New(memengine.Options{}), override.Options{})
	b := newBench(t, meRules, reporting(1, 250), withCallers(t, people(map[string]string{"ann": "user: ann"})), func(o *Options) { o.Taker = own })
	if a := b.as("ann", `{"model":"m","max_tokens":300,"messages":[]}`); a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, a.text)
	}
	raise := override.Raise{ID: "I", Units: 50_000_000}
	if err := own.Set(override.Override{Key: "llm/user=ann;user;user", Until: time.Now().Add(time.Hour), Raise: &raise}); err != nil {
		t.Fatal(err)
	}
	r := b.request(http.MethodGet, "/v1/me", "")
	r.Header.Set("Authorization", "Bearer "+tokenOf("ann"))
	if a := b.send(r); !strings.Contains(a.text, `"limit":"250","period":"month","used":"0.25","held":"0","remaining":"249.75"`) {
		t.Error(a.text)
	}
}
