package metrics_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// whole is a server's metrics with everything that there can be.
func whole(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	f := newFixture(t, "domain: d\nbudgets: {m: {algorithm: gcra, requests_per_unit: 1, unit: minute}}\ndescriptors:\n  - {key: b, rate_limit: {budget: m}}\n  - key: a\n"+rule+"    trial: {algorithm: gcra, requests_per_unit: 1, unit: minute}\n")
	f.Watch(watched())
	f.ask(t, "d", "a=1", 1)
	f.hold(t, "b", "1", 1, -1)
	limit := f.set.Rules()[0].Limits[0].Limit
	f.FrontEnd("http", true).Observe(&observe.Call{Acts: []*weir.Act{{Charges: []weir.Charge{{Limit: limit, Cost: 1}}, Err: weir.ErrAmbiguous}}, Limits: []*weir.Limit{limit}})
	f.HTTP(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	called := f.Method("/s/ShouldRateLimit")
	called.End(called.Begin(), io.EOF)
	f.AuthFailures("http")()
	f.CallerRequests("http")("edge", callers.Admitted)
	f.Rejected("grpc", "memory")
	f.Retired("idle")
	f.Panicked("grpc")()
	models := f.Models()
	f.PricesAge(func() time.Duration { return time.Hour })
	models.Answered("openai", http.StatusOK)
	models.Settled("k", "m", "*", map[string]int64{"input": 1, "usd": 1})
	models.Charged("output", "*", "output", 1)
	models.UsageMissing("absent")
	models.Replaced("user", "*", "cheap")
	models.Underestimated("output", 1)
	models.Unrecorded("output", 1)
	ledger := f.Ledger(func() int { return 0 })
	ledger.Lost()
	ledger.Delivered()
	ledger.Failed()
	ledger.Dropped()
	journal := f.Journal()
	journal.Failed()
	journal.Lost()
	f.Unmatched("d", rules.UnmatchedRule)
	f.Compared("same")
	return f.scrape(t)
}

// TestDocs writes, or compares, the table of docs/metrics.md.
func TestDocs(t *testing.T) {
	t.Parallel()
	families := whole(t)
	tables := map[string]*strings.Builder{"weir": {}, "ratelimit": {}}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		prefix, _, _ := strings.Cut(name, "_")
		if table := tables[prefix]; table != nil {
			family := families[name]
			fmt.Fprintf(table, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(family.GetType().String()), labelNames(family), strings.TrimPrefix(family.GetHelp(), "envoyproxy/ratelimit: "))
		}
	}
	for name, table := range tables {
		pages.Section(t, "docs/metrics.md", name, "| metric | kind | labels | meaning |\n|---|---|---|---|\n"+table.String())
	}
}

func labelNames(family *dto.MetricFamily) string {
	names := map[string]bool{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			names["`"+l.GetName()+"`"] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// An expression is one that is deployed, and where it stands.
type expression struct{ place, text string }

// deployed are all expressions of deploy/.
func deployed(t *testing.T) []expression {
	t.Helper()
	var all []expression
	for _, file := range []string{"alerts.yml", "rules.yml"} {
		text, err := os.ReadFile("../../../deploy/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var groups struct {
			Groups []struct {
				Rules []struct{ Alert, Record, Expr string }
			}
		}
		if err := yaml.Unmarshal(text, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				all = append(all, expression{file + " " + r.Alert + r.Record, r.Expr})
			}
		}
	}
	text, err := os.ReadFile("../../../deploy/grafana/weir.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Expr string } }
		Templating  struct{ List []struct{ Query any } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, expression{"weir.json " + p.Title, target.Expr})
		}
	}
	for _, a := range board.Annotations.List {
		all = append(all, expression{"weir.json, annotations", a.Expr})
	}
	for _, v := range board.Templating.List {
		if query, ok := v.Query.(map[string]any); ok {
			all = append(all, expression{"weir.json, variables", fmt.Sprint(query["query"])})
		}
	}
	return all
}

var (
	metric   = regexp.MustCompile(`\b(?:weir|ratelimit|go|process)_[a-z0-9_]+\b(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!=|!~|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	suffix   = regexp.MustCompile(`_(?:bucket|sum|count)$`)
)

// TestDeployed holds every metric and label that dashboards and alerts name against
// what a server has.
func TestDeployed(t *testing.T) {
	t.Parallel()
	families, all := whole(t), deployed(t)
	if len(all) < 30 {
		t.Fatalf("%d expressions were found", len(all))
	}
	for _, e := range all {
		known := map[string]bool{"instance": true, "job": true}
		found := metric.FindAllStringSubmatch(e.text, -1)
		for _, m := range found {
			name, _, _ := strings.Cut(m[0], "{")
			family := families[name]
			if base := suffix.ReplaceAllString(name, ""); family == nil && families[base].GetType() == dto.MetricType_HISTOGRAM {
				family = families[base]
				known["le"] = true
			}
			if family == nil {
				t.Errorf("%s: there is no %s", e.place, name)
				continue
			}
			for _, sample := range family.GetMetric() {
				for _, l := range sample.GetLabel() {
					known[l.GetName()] = true
				}
			}
			for _, label := range matcher.FindAllStringSubmatch(m[1], -1) {
				if !known[label[1]] {
					t.Errorf("%s: %s has no label %s", e.place, name, label[1])
				}
			}
		}
		if len(found) == 0 {
			t.Errorf("%s names no metric: %s", e.place, e.text)
		}
		for _, by := range grouping.FindAllStringSubmatch(e.text, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				if !known[strings.TrimSpace(label)] {
					t.Errorf("%s: grouped by %s, which none has", e.place, label)
				}
			}
		}
	}
}

// TestExpressionsAreRead: the test above must see what is wrong.
func TestExpressionsAreRead(t *testing.T) {
	t.Parallel()
	m := metric.FindStringSubmatch(`sum by (le, x) (rate(weir_decision_seconds_bucket{a="b",c!~"d"}[5m]))`)
	if m == nil || suffix.ReplaceAllString("weir_decision_seconds_bucket", "") != "weir_decision_seconds" || len(matcher.FindAllString(m[1], -1)) != 2 {
		t.Errorf("read as %q", m)
	}
}
