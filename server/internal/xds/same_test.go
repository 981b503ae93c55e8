package xds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	yaml "go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/xds"
)

// gateway is the version of Envoy Gateway whose configurations are read.
const gateway = "github.com/envoyproxy/gateway@v1.9.1"

// golden returns the rate limit configurations that Envoy Gateway's own tests expect it to
// send, from its module in the module cache.
func golden(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "go", "mod", "download", "-json", gateway)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err != nil || json.Unmarshal(out, &module) != nil || module.Dir == "" {
		t.Skipf("the module cache has no %s; go mod download %[1]s fetches it", gateway)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "internal/xds/translator/testdata/out/ratelimit-config/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, ".routes.yaml") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimSuffix(filepath.Base(file), ".yaml")] = strings.TrimSpace(string(text))
	}
	return texts
}

// fromFiles reads documents of YAML as rules files, one a document.
func fromFiles(t testing.TB, text string) *rules.Set {
	t.Helper()
	var domains []*config.Domain
	for i, document := range strings.Split(text, "\n---\n") {
		var tree map[string]any
		if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
			t.Fatal(err)
		}
		delete(tree, "name") // of the resource
		file, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		domain, err := config.Parse(fmt.Sprint("file", i), file)
		if err != nil {
			t.Fatal(err)
		}
		domains = append(domains, domain)
	}
	set, err := rules.Compile(domains)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// compare demands that two sets are the same but for where they come from.
func compare(t testing.TB, want, got *rules.Set) {
	t.Helper()
	by := func(set *rules.Set) map[string]*rules.Rule {
		all := map[string]*rules.Rule{}
		for _, r := range set.Rules() {
			all[r.Path] = r
		}
		return all
	}
	if diff := cmp.Diff(by(want), by(got),
		cmpopts.IgnoreFields(rules.Rule{}, "At"), cmpopts.IgnoreUnexported(rules.Rule{}, rules.Limit{}), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b *weir.Limit) bool {
			return a.Name == b.Name && a.Algorithm == b.Algorithm && a.String() == b.String() && a.ChargeRefused == b.ChargeRefused
		})); diff != "" {
		t.Error(diff)
	}
	for _, r := range want.Rules() {
		// The first rule that a request finds, and the keys that it charges.
		if diff := cmp.Diff(keys(t, want, r), keys(t, got, r)); diff != "" {
			t.Errorf("%s: %s", r.Path, diff)
		}
	}
}

// keys are the limits that a request for a rule finds, and what they charge.
func keys(t testing.TB, set *rules.Set, r *rules.Rule) []string {
	t.Helper()
	plan, err := set.Plan(&rules.Request{Domain: r.Domain, Cost: 1, Descriptors: [][]rules.Entry{r.Entries}})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range plan.Applied {
		if a.Act != nil {
			all = append(all, a.Rule.Path+" "+a.Act.Charges[a.Charge].Key)
		}
	}
	return all
}

// TestEnvoyGateway: what Envoy Gateway sends is the same rules as the same text in files.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	texts := golden(t)
	if len(texts) < 20 {
		t.Fatalf("%d configurations", len(texts))
	}
	folder := t.TempDir()
	id := issue(t, folder)
	m := manage(t, id.server(t))
	s := subscribe(t, xds.Options{Server: m.address, TLS: id.tls()})
	for name, text := range texts {
		if text == "" {
			t.Errorf("%s is empty", name)
			continue
		}
		m.publish(messages(t, text)...)
		version := fmt.Sprint(m.version)
		s.until(name, func() bool { return m.last().GetVersionInfo() == version })
		if n := m.nacks(); len(n) > 0 {
			t.Fatalf("%s: %s", name, n[0].GetErrorDetail().GetMessage())
		}
		compare(t, fromFiles(t, text), s.rules())
	}
	t.Logf("%d configurations of %s", len(texts), gateway)
}

// aiGateway is the form of what Envoy AI Gateway sends for a QuotaPolicy: a backend, a
// model, and leaves in quota mode.
const aiGateway = `name: ai-gateway-quota
domain: ai-gateway-quota
descriptors:
  - key: backend_name
    value: default/openai
    descriptors:
      - key: model_name_override
        value: gpt-large
        rate_limit: {requests_per_unit: 100000, unit: HOUR}
        quota_mode: true
        metadata: {tier: standard, weight: 2, fallback: [small, smaller], strict: true}
        descriptors:
          - key: default/openai-gpt-large-rule-0-match-0
            value: default/openai-gpt-large-rule-0-match-0
            rate_limit: {requests_per_unit: 500, unit: MONTH, name: tenant}
            quota_mode: true
            detailed_metric: true
          - key: default/openai-gpt-large-rule-1-match-0
            rate_limit: {unlimited: true, replaces: [{name: tenant}]}
            shadow_mode: true`

// TestAIGateway: in plaintext, with the node of AI Gateway.
func TestAIGateway(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.publish(messages(t, aiGateway)...)
	s := subscribe(t, xds.Options{Server: m.address})
	s.until("loaded", func() bool { return s.Status().Loaded })
	compare(t, fromFiles(t, aiGateway), s.rules())
	for _, r := range s.rules().Rules() {
		if !r.Unlimited && !r.Quota {
			t.Errorf("%s is in no quota mode", r.Path)
		}
	}
}

// TestSameAsYAML compares random resources with the same rules from files.
func TestSameAsYAML(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	s := subscribe(t, xds.Options{Server: m.address})
	rapid.Check(t, func(rt *rapid.T) {
		documents := rapid.SliceOfN(rapid.Custom(randomDomain), 1, 3).Draw(rt, "domains")
		var texts []string
		for i, d := range documents {
			d["domain"] = fmt.Sprintf("%v-%d", d["domain"], i)
			d["name"] = d["domain"]
			text, err := yaml.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		text := strings.Join(texts, "\n---\n")
		var resources []types.Resource
		resources = append(resources, messages(t, text)...)
		m.publish(resources...)
		version := fmt.Sprint(m.version)
		s.until(version, func() bool { return m.last().GetVersionInfo() == version })
		if n := m.nacks(); len(n) > 0 {
			rt.Fatalf("%s\n%s", n[0].GetErrorDetail().GetMessage(), text)
		}
		compare(t, fromFiles(t, text), s.rules())
		if t.Failed() {
			rt.Fatalf("of\n%s", text)
		}
	})
}

func randomDomain(t *rapid.T) map[string]any {
	return map[string]any{"domain": rapid.StringMatching(`[a-z/ é-]{1,12}`).Draw(t, "domain"), "descriptors": randomList(t, 3)}
}

// randomList returns descriptors that nest so deep at most.
func randomList(t *rapid.T, depth int) []any {
	var list []any
	seen := map[string]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "descriptors") {
		d := map[string]any{"key": rapid.StringMatching(`[a-c_]{1,2}\*?`).Draw(t, "key")}
		if rapid.Bool().Draw(t, "valued") {
			d["value"] = rapid.SampledFrom([]string{"x", "404", "yes", "0x1F", "1.10", "a,b=c", "null", "~", "*", "pre*", "192.168.0.0/16", "é\n", " ", "<<", "!!int 5"}).Draw(t, "value")
		}
		if id := fmt.Sprint(d); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		switch rapid.IntRange(0, 4).Draw(t, "limit") {
		case 0:
		case 1:
			d["rate_limit"] = map[string]any{"unlimited": true, "replaces": []any{map[string]any{"name": "elsewhere"}}}
		default:
			d["rate_limit"] = map[string]any{
				"unit":              rapid.SampledFrom([]string{"SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"}).Draw(t, "unit"),
				"requests_per_unit": rapid.Uint32().Draw(t, "requests"),
				"name":              rapid.StringMatching(`[a-z ]{0,4}`).Draw(t, "name"),
			}
		}
		for _, mode := range []string{"shadow_mode", "quota_mode", "detailed_metric"} {
			if rapid.Bool().Draw(t, mode) {
				d[mode] = true
			}
		}
		if rapid.Bool().Draw(t, "metadata") {
			d["metadata"] = map[string]any{"text": "5", "number": 0.5, "is": true, "nothing": nil, "list": []any{"a", map[string]any{"<<": "b"}}}
		}
		if depth > 1 {
			d["descriptors"] = randomList(t, depth-1)
		}
		list = append(list, d)
	}
	return list
}
