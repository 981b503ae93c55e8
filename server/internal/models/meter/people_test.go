package meter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// people is a file of callers, each with its labels and the token the-token-of-person-NAME.
func people(labels map[string]string) string {
	text := "callers:\n"
	for name, of := range labels {
		sum := sha256.Sum256([]byte(tokenOf(name)))
		text += fmt.Sprintf("  - {name: %s, labels: {%s}, tokens: [%s], verbs: [take], domains: [llm]}\n", name, of, hex.EncodeToString(sum[:]))
	}
	return text
}

func tokenOf(name string) string { return "the-token-of-person-" + name }

// withCallers checks callers against a file.
func withCallers(t *testing.T, text string) func(*Options) {
	t.Helper()
	change, _ := withCallersIn(t, text)
	return change
}

// withCallersIn checks callers against a file, of which it returns the name. Changes of the file
// come into force.
func withCallersIn(t *testing.T, text string) (func(*Options), string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := callers.OpenFile(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	var refreshing sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	refreshing.Go(func() { file.Refresh(ctx) })
	t.Cleanup(func() { stop(); refreshing.Wait() })
	return func(o *Options) { o.Callers = callers.New(callers.Options{Listener: "models", File: file}) }, name
}

// as makes a request of a caller.
func (b *bench) as(name, body string) answered {
	b.t.Helper()
	r := b.request(http.MethodPost, chatPath, body)
	r.Header.Set("Authorization", "Bearer "+tokenOf(name))
	return b.send(r)
}

const levels = `
domain: llm
models: [{model: "*", input: 1000, output: 1000}]
descriptors:
  - key: user
    rate_limits: [{name: user, requests_per_unit: 6, unit: day, algorithm: fixed_window}]
    descriptors: [{key: model, value: dear, rate_limit: {name: dear, requests_per_unit: 1, unit: day, algorithm: fixed_window}}]
  - {key: team, rate_limit: {name: team, requests_per_unit: 8, unit: day, algorithm: fixed_window}}
  - {key: team, value: research, rate_limit: {name: team, requests_per_unit: 12, unit: day, algorithm: fixed_window}}
  - {key: company, rate_limit: {name: company, requests_per_unit: 15, unit: day, algorithm: fixed_window}}
`

const classes = `
domain: llm
models: [{model: mock, input: 0, output: 100000, max_output: 9000}]
budgets: {month: {count: usd, dollars: 20000, unit: month, algorithm: fixed_window, time_zone: Europe/Berlin}}
descriptors:
  - {key: class, output_guess: 9000, rate_limit: {name: all, budget: month}}
  - {key: class, value: batch, output_guess: 9000, rate_limit: {name: batch, budget: month, keep_dollars: 17300, show: true}}
`

// TestKeepDollars wants a class to leave more dollars to others than one request may cost, to the
// millionth, and its caller to see what is left for it.
func TestKeepDollars(t *testing.T) {
	t.Parallel()
	file := people(map[string]string{"ann": "user: ann, class: interactive", "nightly": "user: nightly, class: batch"})
	const body = `{"model":"mock","max_tokens":9000,"messages":[]}` // costs $900
	for store, open := range stores(t) {
		for _, c := range []struct {
			kept    string
			granted int
			left    string
			remains string
		}{{"17300", 3, "", "0"}, {"17300.000001", 2, "$899.999999 left beside the $17300.000001 that are kept for others", "899.999999"}} {
			t.Run(store+" "+c.kept, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, strings.Replace(classes, "17300", c.kept, 1), reporting(5, 9000), open, withCallers(t, file))
				granted, last := 0, answered{}
				for range 4 {
					if last = b.as("nightly", body); last.StatusCode == http.StatusOK {
						granted++
					}
				}
				if granted != c.granted || last.Header.Get("Weir-Limit") != "batch" || !strings.Contains(last.text, `($20000/month): $900 asked`) || !strings.Contains(last.text, c.left) {
					t.Errorf("%d of 4, the last one %d %v %s", granted, last.StatusCode, last.Header, last.text)
				}
				b.eventually("the settlements", func() bool { return len(b.proxy.open.held()) == 0 })
				r := b.request(http.MethodGet, "/v1/me", "")
				r.Header.Set("Authorization", "Bearer "+tokenOf("nightly"))
				if a := b.send(r); !strings.Contains(a.text, fmt.Sprintf(`"limit":"20000","period":"month","used":"%d","held":"0","remaining":"%s"`, 900*c.granted, c.remains)) {
					t.Errorf("%d %s", a.StatusCode, a.text)
				}
				for range 2 {
					if a := b.as("ann", body); a.StatusCode != http.StatusOK {
						t.Errorf("%d %s", a.StatusCode, a.text)
					}
				}
			})
		}
	}
}

// TestLevels wants each label of a caller to be a descriptor of its own, all of them charged
// together, and a refusal to charge none.
func TestLevels(t *testing.T) {
	t.Parallel()
	file := people(map[string]string{
		"ann": "user: ann, team: web, company: acme", "bo": "user: bo, team: web, company: acme",
		"cy": "user: cy, team: research, company: acme", "di": "user: di, team: research, company: acme",
		"ann2": "user: ann, team: research, company: acme",
	})
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, levels, reporting(1, 1), open, withCallers(t, file))
			for _, c := range []struct {
				who, model string
				asks, want int
				limit      string
			}{
				{"ann", "mock", 7, 6, "user"},
				{"bo", "mock", 3, 2, "team"},
				{"cy", "dear", 2, 1, "dear"},
				{"cy", "mock", 6, 5, "user"},
				{"ann2", "mock", 1, 0, "user"}, // she has used up her own, in whichever team
				{"di", "mock", 2, 1, "company"},
			} {
				granted, refused := 0, ""
				for range c.asks {
					a := b.as(c.who, strings.Replace(chatBody, `"mock"`, `"`+c.model+`"`, 1))
					if a.StatusCode == http.StatusOK {
						granted++
					} else {
						refused = a.Header.Get("Weir-Limit")
					}
				}
				if granted != c.want || refused != c.limit {
					t.Errorf("%s: %d of %d, refused by %q; want %d, %q", c.who, granted, c.asks, refused, c.want, c.limit)
				}
			}
			if a := b.post(chatPath, chatBody); a.StatusCode != http.StatusUnauthorized {
				t.Errorf("%d %s", a.StatusCode, a.text)
			}
		})
	}
}

// TestLastDollars wants no level to be exceeded by callers of two instances that come at once for
// the last cents of user, team and company.
func TestLastDollars(t *testing.T) {
	t.Parallel()
	const text = `
domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors:
  - {key: user, rate_limit: {name: user, count: usd, dollars: 0.016, unit: month, algorithm: fixed_window, time_zone: UTC}}
  - {key: team, rate_limit: {name: team, count: usd, dollars: 0.03, unit: month, algorithm: fixed_window, time_zone: UTC}}
  - {key: company, rate_limit: {name: company, count: usd, dollars: 0.05, unit: month, algorithm: fixed_window, time_zone: UTC}}
`
	labels := map[string]string{}
	for i := range 6 {
		labels[fmt.Sprint("p", i)] = fmt.Sprintf("user: p%d, team: t%d, company: acme", i, i%2)
	}
	file := people(labels)
	both := stores(t)["redis"]
	var store weir.Taker
	one := newBench(t, text, reporting(1, 1), both, withCallers(t, file), func(o *Options) { store = o.Taker })
	other := newBench(t, text, reporting(1, 1), func(o *Options) { o.Taker = store }, withCallers(t, file))
	var users, teams [6]atomic.Int64
	var all atomic.Int64
	var done sync.WaitGroup
	for i := range 60 {
		done.Go(func() {
			b := []*bench{one, other}[i%2]
			if a := b.as(fmt.Sprint("p", i%6), `{"model":"m","max_tokens":1,"messages":[]}`); a.StatusCode == http.StatusOK {
				users[i%6].Add(1)
				teams[i%2].Add(1)
				all.Add(1)
			}
		})
	}
	done.Wait()
	for i := range users {
		if users[i].Load() > 16 || teams[i].Load() > 30 || all.Load() > 50 {
			t.Errorf("user %d: %d, team: %d, in all %d", i, users[i].Load(), teams[i].Load(), all.Load())
		}
	}
	if all.Load() != 50 {
		t.Errorf("%d of 50 are granted", all.Load())
	}
}

// TestEndUser wants whom a client says that it works for to narrow what its key may do, and never
// to give it more.
func TestEndUser(t *testing.T) {
	t.Parallel()
	const text = `
domain: llm
descriptors:
  - key: key
    rate_limit: {name: key, requests_per_unit: 5, unit: day, algorithm: fixed_window}
    descriptors: [{key: end_user, rate_limit: {name: each, requests_per_unit: 2, unit: day, algorithm: fixed_window, max_keys: 1000}}]
`
	for _, c := range []struct{ path, body string }{
		{chatPath, `{"model":"m","user":%s,"messages":[]}`},
		{"/v1/responses", `{"model":"m","user":%s,"input":"x"}`},
		{messagePath, `{"model":"m","max_tokens":5,"metadata":{"user_id":%s},"user":"other","messages":[]}`},
	} {
		b := newBench(t, text, reporting(1, 1))
		got := ""
		for _, user := range []string{`"a"`, `"a"`, `"\u0061"`, `"b"`, `null`, `"c"`, `"d"`} {
			a := b.post(c.path, fmt.Sprintf(c.body, user))
			got += fmt.Sprint(a.StatusCode, a.Header.Get("Weir-Limit"), " ")
		}
		if want := "200 200 429each 200 200 200 429key "; got != want {
			t.Errorf("%s: %s, want %s", c.path, got, want)
		}
		for _, wrong := range []string{`7`, `{}`, `"` + strings.Repeat("x", maxEndUser+1) + `"`} {
			if a := b.post(c.path, fmt.Sprintf(c.body, wrong)); a.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s: %d %s", c.path, shorten(wrong), a.StatusCode, a.text)
			}
		}
	}
	b := newBench(t, text, reporting(1, 1))
	for _, body := range []string{
		`{"model":"m","User":"a"}`, `{"model":"m","max_tokens":5,"metadata":{"userId":"a"}}`, `{"model":"m","max_tokens":5,"metadata":{"user_id":"a","user_id":"b"}}`, `{"model":"m","max_tokens":5,"metadata":[]}`,
	} {
		if a := b.post(messagePath, body); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, a.StatusCode, a.text)
		}
	}
}

// TestCheckRules wants rules that no request can match refused by their position.
func TestCheckRules(t *testing.T) {
	t.Parallel()
	const limit = "rate_limit: {requests_per_unit: 1, unit: day, algorithm: fixed_window}"
	for name, c := range map[string]struct{ descriptor, want string }{
		"a label":               {"{key: team, " + limit + "}", ""},
		"a label's model":       {"{key: team, descriptors: [{key: model, " + limit + "}]}", ""},
		"a key's model":         {"{key: key, descriptors: [{key: model, " + limit + "}]}", ""},
		"any":                   {"{key: \"*\", value: \"*\", " + limit + "}", ""},
		"a class":               {"{key: class, value: batch, " + limit + "}], classes: [interactive, batch", ""},
		"any class":             {"{key: class, value: \"ba*\", " + limit + "}, {key: class, " + limit + "}], classes: [interactive, batch", ""},
		"no such class":         {"{key: class, value: bacth, " + limit + "}], classes: [interactive, batch", `f:2:15: a rule about the class "bacth"; want one of the classes interactive, batch`},
		"no such classes":       {"{key: class, value: \"x*\", " + limit + "}], classes: [interactive, batch", `f:2:15: a rule about the class "x*"; want one of the classes interactive, batch`},
		"nobody's class":        {"{key: class, " + limit + "}", `f:2:15: a rule about "class", which no request has; want key, model, or a label that callers can have`},
		"nobody's label":        {"{key: tema, " + limit + "}", `f:2:15: a rule about "tema", which no request has; want key, model, or a label that callers can have`},
		"end users":             {"{key: end_user, " + limit + "}", "f:2:15: a rule about end_user alone; want key above it: clients choose their end users, which may only narrow what a key may do"},
		"a label's end users":   {"{key: team, descriptors: [{key: end_user, " + limit + "}]}", "f:2:41: a rule about team, end_user, which no request has; want model below team, and nothing below that"},
		"end users without end": {"{key: key, descriptors: [{key: end_user, " + limit + "}]}", "f:2:40: a limit on end_user without max_keys; want max_keys, or --max-keys: clients invent end users"},
		"below a model":         {"{key: model, descriptors: [{key: key, " + limit + "}]}", "f:2:42: a rule about model, key, which no request has; want nothing below model"},
		"two levels":            {"{key: key, descriptors: [{key: model, descriptors: [{key: end_user, " + limit + "}]}]}", "f:2:67: a rule about key, model, end_user, which no request has; want model or end_user below key, and nothing below that"},
	} {
		set, err := rules.Parse("f", []byte("domain: llm\ndescriptors: ["+strings.Replace(c.descriptor, "], classes:", "]\nclasses:", 1)+"]\n"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = CheckRules(set, "llm", func(key string) bool { return key == "team" }, 0)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err := CheckRules(set, "other", func(string) bool { return false }, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
