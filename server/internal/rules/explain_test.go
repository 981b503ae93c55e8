package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/rules"
)

// TestExplainChoosesAsMatch wants the explanation to name what the plan applies,
// and to call it the first of those that fit.
func TestExplainChoosesAsMatch(t *testing.T) {
	t.Parallel()
	set := parse(t, matching)
	for _, text := range []string{
		"a=exact", "a=other", "a=x", "a=xyy", "a=xavier", "a=x*y", "a=abba", "a=exempt", "a=", "b=c",
		"n=hiding,m=v", "n=hidden,m=v", "n=x,m=v", "n=x,m=w,o=z", "n=x,m=v,o=z,p=q", "wild=x", "wild=y", "any=", "w=1", "s=a",
	} {
		e, err := explain(set, text)
		if err != nil {
			t.Fatal(err)
		}
		search := e.Descriptors[0]
		if (search.Rule != nil) != (len(e.Plan.Applied) == 1) || search.Rule != nil && e.Plan.Applied[0].Rule != search.Rule {
			t.Errorf("%s: found %v, planned %v", text, search.Rule, e.Plan.Applied)
		}
		for _, level := range search.Levels {
			for _, other := range level.Rejected {
				if c := level.Chosen; c == nil && other.Match != rules.MatchNone ||
					c != nil && (other.Match < c.Match || other.Match == c.Match && other.At.Line < c.At.Line) {
					t.Errorf("%s: %+v was chosen before %+v", text, c, other)
				}
			}
			if level.Chosen != nil && level.Chosen.Match == rules.MatchNone {
				t.Errorf("%s: %+v does not fit", text, level.Chosen)
			}
		}
	}
}

func explain(set *rules.Set, descriptors ...string) (*rules.Explanation, error) {
	req := request(descriptors...)
	req.Domain = "d"
	return set.Explain(req)
}

// searchText is a search on one line: what was chosen, after "!" what was not,
// and after "/" the keys below.
func searchText(s rules.Search) string {
	var b strings.Builder
	for _, level := range s.Levels {
		if level.Chosen == nil {
			fmt.Fprintf(&b, "nothing of %v", level.Keys)
		} else {
			fmt.Fprintf(&b, "%s=%s(%d)", level.Chosen.Entry.Key, level.Chosen.Entry.Value, level.Chosen.Match)
		}
		for _, other := range level.Rejected {
			fmt.Fprintf(&b, " !%s=%s(%d)", other.Entry.Key, other.Entry.Value, other.Match)
		}
		b.WriteString("; ")
	}
	fmt.Fprintf(&b, "below %v", s.Below)
	if s.Rule != nil {
		b.WriteString("; rule " + s.Rule.Path)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
descriptors:
  - {key: a, value: "x*", rate_limit: &limit {unit: hour, requests_per_unit: 1}}
  - {key: a, value: xa, descriptors: [{key: b, rate_limit: *limit}, {key: c, value: "1"}]}
  - {key: a}
  - {key: "*", rate_limit: *limit}
`)
	for text, want := range map[string]string{
		"a=xa":         "a=xa(0) !a=x*(1) !a=(2) !*=(1); below [b c]",
		"a=xa,b=2":     "a=xa(0) !a=x*(1) !a=(2) !*=(1); b=(2); below []; rule d/a=xa,b",
		"a=xa,c=2":     "a=xa(0) !a=x*(1) !a=(2) !*=(1); nothing of [b c] !c=1(3); below []",
		"a=xb":         "a=x*(1) !a=xa(3) !a=(2) !*=(1); below []; rule d/a=x*",
		"a=y,b=1":      "*=(1) !a=x*(3) !a=xa(3) !a=(2); below []",
		"z=y":          "*=(1); below []; rule d/*",
		"a=xa,b=2,c=3": "a=xa(0) !a=x*(1) !a=(2) !*=(1); b=(2); below []",
	} {
		e, err := explain(set, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, searchText(e.Descriptors[0])); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestExplainReplaced(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1, name: wide}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: wide}]}}
  - {key: c, rate_limit: {unlimited: true, name: wide}}
`)
	e, err := explain(set, "a=1", "b=1", "c=1")
	if err != nil {
		t.Fatal(err)
	}
	got := [][]string{e.Descriptors[0].Replaced, e.Descriptors[1].Replaced, e.Descriptors[2].Replaced}
	if diff := cmp.Diff([][]string{{"wide"}, nil, {"wide"}}, got); diff != "" {
		t.Error(diff)
	}
	nowhere := request("a=1")
	nowhere.Domain = "nowhere"
	if e, err := set.Explain(nowhere); err != nil || e.Known || len(e.Plan.Applied) != 0 {
		t.Errorf("an unknown domain: %+v, %v", e, err)
	}
	nowhere.Domain = ""
	if _, err := set.Explain(nowhere); err == nil {
		t.Error("a request without domain was explained")
	}
}
