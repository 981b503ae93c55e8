package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A target is one limit of a key that was named.
type target struct {
	rule      *rules.Rule // nil for what CL.THROTTLE charges
	limit     *weir.Limit // nil where the rule is unlimited
	key, slot string
	failure   config.StoreFailure
}

// throttled stands for the limit that comes with each CL.THROTTLE.
var throttled = weir.Limit{Name: ThrottleDomain, Count: 1, Period: 1e9}.MustCompile()

// find returns what the request names. The error is a [*problem.Document] or a
// [*weir.InvalidError].
func (a *api) find(req *request) ([]target, error) {
	set := a.Rules()
	known := slices.Contains(set.Domains(), req.domain)
	if !known && req.domain == ThrottleDomain && a.ThrottleKey != nil {
		return a.throttleTarget(req)
	}
	if !known {
		return nil, &problem.Document{
			Status: http.StatusNotFound, Code: "unknown_domain", Field: "domain",
			Detail: fmt.Sprintf("there are no rules for the domain %s: want one of %s", strconv.Quote(short(req.domain)), short(strings.Join(set.Domains(), ", "))),
		}
	}
	plan, err := set.Plan(&rules.Request{Domain: req.domain, Descriptors: [][]rules.Entry{req.entries}})
	if err != nil {
		return nil, err
	}
	all := targetsOf(plan)
	if len(all) == 0 {
		return nil, &problem.Document{
			Status: http.StatusNotFound, Code: "no_rule", Field: "entries",
			Detail: fmt.Sprintf("no rule of the domain %s is for these entries: they are not limited", strconv.Quote(req.domain)),
		}
	}
	return named(all, req.name)
}

func targetsOf(plan *rules.Plan) []target {
	var all []target
	for i := range plan.Applied {
		applied := &plan.Applied[i]
		t := target{rule: applied.Rule, limit: applied.Limit}
		if applied.Act != nil {
			charge := &applied.Act.Charges[applied.Charge]
			t.key, t.slot = charge.Key, charge.HashTag
			t.failure = applied.Rule.OnStoreFailure[slices.Index(applied.Rule.Limits, applied.Limit)]
		}
		all = append(all, t)
	}
	return all
}

// named keeps the targets of that name, all if it is empty.
func named(all []target, name string) ([]target, error) {
	if name == "" {
		return all, nil
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(t target) bool { return t.limit == nil || t.limit.Name != name })
	if len(kept) == 0 {
		return nil, invalid("name", strconv.Quote(name), "one of "+namesOf(all))
	}
	return kept, nil
}

func namesOf(all []target) string {
	var names []string
	for _, t := range all {
		if t.limit != nil {
			names = append(names, strconv.Quote(t.limit.Name))
		}
	}
	return strings.Join(names, ", ")
}

// throttleTarget is the key of a CL.THROTTLE, whose limit nobody knows beforehand.
func (a *api) throttleTarget(req *request) ([]target, error) {
	if len(req.entries) != 1 || req.entries[0].Key != "key" {
		return nil, invalid("entries", "others", `one entry "key", with the key of CL.THROTTLE as its value`)
	}
	return []target{{limit: throttled, key: a.ThrottleKey(req.entries[0].Value)}}, nil
}

// limited returns the targets that the store knows, those on trial only if they are
// wanted. The error says that there are none.
func limited(all []target, trials bool) ([]target, error) {
	kept := slices.DeleteFunc(slices.Clone(all), func(t target) bool {
		return t.limit == nil || !trials && t.rule != nil && t.rule.OnTrial
	})
	if len(kept) == 0 {
		return nil, &problem.Document{
			Status: http.StatusConflict, Code: "unlimited",
			Detail: fmt.Sprintf("the rule %s at %s is unlimited: nothing is counted there that could be changed", all[0].rule.Path, place(all[0].rule)),
		}
	}
	return kept, nil
}

// place is where a rule stands in its file.
func place(r *rules.Rule) string {
	return fmt.Sprintf("%s:%d:%d", r.At.File, r.At.Line, r.At.Column)
}
