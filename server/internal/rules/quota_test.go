package rules_test

import (
	"testing"

	"github.com/weirlimit/weir/server/internal/rules"
)

// TestQuota finds the rule of a bucket id, whose entries have no order.
func TestQuota(t *testing.T) {
	t.Parallel()
	set := rules.MustParse("f", `
domain: d
descriptors:
  - key: user
    descriptors:
      - {key: path, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 9, quota: true}}
      - {key: path, value: "/static/*", rate_limit: {unlimited: true}}
      - {key: path, value: /login, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 1}}
  - key: user
    value: root
  - {key: user-path, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 9, quota: true}}
`)
	e := func(texts ...string) (all []rules.Entry) {
		for i := 0; i < len(texts); i += 2 {
			all = append(all, rules.Entry{Key: texts[i], Value: texts[i+1]})
		}
		return all
	}
	for _, c := range []struct {
		domain string
		id     []rules.Entry
		want   string // the path; empty: none
	}{
		{"d", e("path", "/", "user", "1"), "d/user,path"},
		{"d", e("user", "1", "path", "/"), "d/user,path"},
		{"d", e("path", "/static/a", "user", "1"), "d/user,path=/static/*"},
		{"d", e("path", "/login", "user", "1"), ""},
		{"d", e("path", "/", "user", "root"), ""},
		{"d", e("user", "1"), ""},
		{"d", e("path", "/"), ""},
		{"d", e("path", "/", "user", "1", "x", "y"), ""},
		{"d", e("user-path", "1"), "d/user-path"},
		{"d", nil, ""},
		{"other", e("path", "/", "user", "1"), ""},
	} {
		entries, rule := set.Quota(c.domain, c.id)
		got := ""
		if rule != nil {
			got = rule.Path
			if len(entries) != len(c.id) || entries[0].Key != rule.Entries[0].Key {
				t.Errorf("%v: %v", c.id, entries)
			}
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.id, got, c.want)
		}
	}
	if !set.Has("d") || set.Has("other") || !set.Loaded() || rules.NotLoaded().Loaded() {
		t.Error("wrong about what there is")
	}
}
