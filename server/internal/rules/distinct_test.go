package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

const bounded = `
domain: shop
x-limits: [&one {algorithm: gcra, unit: day, requests_per_unit: 1, max_keys: 5}]
descriptors:
  - {key: user, rate_limit: *one, trial: {<<: *one, max_keys: 6}}
  - {key: named, rate_limits: [{<<: *one, name: n}, {algorithm: gcra, unit: week, requests_per_unit: 1}]}
  - {key: legacy, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: part, rate_limit: *one, enforce: 50%}
  - {key: "sha*", share_threshold: true, rate_limit: *one}
  - {key: path, value: "/a*", descriptors: [{key: user, rate_limit: *one}]}
`

// TestMaxKeys: what each limit says, what holds for the others, and a shared key that
// no key of any request is.
func TestMaxKeys(t *testing.T) {
	t.Parallel()
	set := parse(t, bounded)
	for _, c := range []struct {
		otherwise int
		want      string
	}{
		{0, "5 shop/user;user#1, 6 shop/user;user#trial, 5 shop/named;named;n, 0 shop/named;named#2, 0 shop/legacy;day, " +
			"5 shop/part;part#1, 5 shop/part;part#1#outside, 5 shop/sha*;sha*#1, 5 shop/path=/a*,user;path=/a*,user#1"},
		{9, "5 shop/user;user#1, 6 shop/user;user#trial, 5 shop/named;named;n, 9 shop/named;named#2, 9 shop/legacy;day, " +
			"5 shop/part;part#1, 5 shop/part;part#1#outside, 5 shop/sha*;sha*#1, 5 shop/path=/a*,user;path=/a*,user#1"},
	} {
		var got []string
		for _, r := range set.Rules() {
			for _, form := range r.Forms() {
				for _, l := range form.Limits {
					n, overflow := set.MaxKeys(&weir.Charge{Limit: l.Limit}, c.otherwise)
					got = append(got, fmt.Sprint(n, " ", overflow))
				}
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("otherwise %d:\n got %s\nwant %s", c.otherwise, text, c.want)
		}
	}
	legacy := set.Rules()[2]
	if n, overflow := set.MaxKeys(&weir.Charge{Limit: legacy.Counter()}, 9); n != 9 || overflow != "shop/legacy;day" {
		t.Errorf("a look through a counter: %d %q", n, overflow)
	}
	if n, overflow := set.MaxKeys(&weir.Charge{Limit: weir.PerDay(1).MustCompile()}, 9); n != 0 || overflow != "" {
		t.Errorf("a limit that is not the set's: %d %q", n, overflow)
	}
	if n, overflow := parse(t, rollout).MaxKeys(&weir.Charge{Limit: legacy.Limits[0].Limit}, 0); n != 0 || overflow != "" {
		t.Errorf("a set without bounds: %d %q", n, overflow)
	}
}

// TestNoKeyIsShared: whatever a request says, its keys are not those that others share.
func TestNoKeyIsShared(t *testing.T) {
	t.Parallel()
	set := parse(t, bounded)
	shared := map[string]bool{}
	for _, r := range set.Rules() {
		for _, form := range r.Forms() {
			for _, l := range form.Limits {
				_, overflow := set.MaxKeys(&weir.Charge{Limit: l.Limit}, 1)
				shared[overflow] = true
			}
		}
	}
	for _, value := range []string{"", ";", ";user#1", "*", "=", "user", "/a*", "#trial"} {
		for _, key := range []string{"user", "named", "legacy", "part", "path=/a" + value + ",user"} {
			req := request(key + "=" + value)
			if strings.HasPrefix(key, "path") {
				req.Descriptors = [][]rules.Entry{{{Key: "path", Value: "/a" + value}, {Key: "user", Value: value}}}
			}
			plan, err := set.Plan(req)
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range keysIn(plan) {
				for _, k := range list {
					if shared[k] {
						t.Errorf("%s=%s is charged under %s, which others share", key, value, k)
					}
				}
			}
		}
	}
}
