package traffic_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const calling = `
domain: shop
calls: {names: {login: {algorithm: gcra, unit: minute, requests_per_unit: 1}, search: {shadow_mode: true}}}
`

// bring charges a limit in a call.
func (f *fixture) bring(tb testing.TB, domain, key, limit string) {
	tb.Helper()
	plan, err := f.set.Plan(&rules.Request{Domain: domain, Calls: []rules.Call{{Key: key, Limit: limit, Cost: 1}}})
	if err != nil {
		tb.Fatal(err)
	}
	_ = plan.Take(context.Background(), f.taker)
}

// TestCallsAreNamed counts limits in calls by domain and name, and never by key.
func TestCallsAreNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, calling, traffic.Options{})
	for range 2 {
		f.bring(t, "shop", "user:42", "login=9/s")
		f.bring(t, "shop", "user:42", "search=1/h")
		f.bring(t, "shop", "user:42", "own=1/h")
		f.bring(t, "shop", "user:42", "1/day")
		f.bring(t, "default", "user:42", "1/day")
		f.bring(t, "made up", "user:42", "1/day")
	}
	f.bring(t, "shop", "user:43", "own=2/h")
	want := []string{
		"(request)/* granted by store: 1", "(request)/* refused by store: 1",
		"default/call;gcra/24h0m0s granted by store: 1", "default/call;gcra/24h0m0s refused by store: 1",
		"shop/call;gcra/24h0m0s granted by store: 1", "shop/call;gcra/24h0m0s refused by store: 1",
		"shop/call;login granted by store: 1", "shop/call;login refused by store: 1",
		"shop/call;own granted by store: 2", "shop/call;own refused by store: 1",
		"shop/call;search granted by store: 1", "shop/call;search shadow_refused by store: 1",
	}
	check := func() {
		t.Helper()
		got := f.totals()
		for _, line := range want {
			if !strings.Contains(got, line) {
				t.Errorf("no %q in\n%s", line, got)
			}
		}
		if strings.Contains(got, "user:4") {
			t.Errorf("a key is a label:\n%s", got)
		}
	}
	check()
	f.Follow(rules.MustParse("shop.yaml", calling)) // a reload keeps the counts
	check()
}

// TestCallNamesAreBounded makes up names, from several clients at once.
func TestCallNamesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, calling, traffic.Options{})
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := range 200 {
				f.bring(t, "shop", "k", fmt.Sprintf("n%d=9/s", c*200+i))
				f.bring(t, fmt.Sprint("domain ", i), "k", "9/s")
			}
		})
	}
	clients.Wait()
	names, sum := map[string]bool{}, uint64(0)
	for _, n := range f.Totals() {
		if n.Count > 0 && n.Domain == "shop" {
			names[n.Rule] = true
			sum += n.Count
		}
	}
	if len(names) > 101 || !names["call;other"] || sum != 800 {
		t.Errorf("%d names with %d charges, want 101 and 800", len(names), sum)
	}
}
