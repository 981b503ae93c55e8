package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// planned returns the plan of limits in a call.
func planned(t interface{ Fatal(...any) }, s *rules.Set, req *rules.Request) *rules.Plan {
	plan, err := s.Plan(req)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestCallKeys holds the keys in the store, which must stay: they hold the budgets.
func TestCallKeys(t *testing.T) {
	t.Parallel()
	s := parse(t, "domain: shop\n")
	long := strings.Repeat("é", 512) // 1 KiB, 3 KiB if it were escaped
	for _, test := range []struct{ domain, key, limit, want, tag string }{
		{"shop", "user:42", "10/s", "shop/call;user:42;gcra/1s", "shop/call;user:42"},
		{"shop", "user:42", "99/s burst 7", "shop/call;user:42;gcra/1s", "shop/call;user:42"},
		{"shop", "user:42", "10/min sliding_log", "shop/call;user:42;sliding_log/1m0s", "shop/call;user:42"},
		{"shop", "user:42", "login=10/s", "shop/call;user:42;gcra#login", "shop/call;user:42"},
		{"shop", "user:42", "login=10/day", "shop/call;user:42;gcra#login", "shop/call;user:42"},
		{"shop", "user:42", "login=10/s fixed_window", "shop/call;user:42;fixed_window#login", "shop/call;user:42"},
		{"shop", "u", "9/day fixed_window time_zone Europe/Paris", "shop/call;u;fixed_window/24h0m0s/Europe/Paris", "shop/call;u"},
		{"shop", "u", "9/month fixed_window time_zone UTC anchor_day 3", "shop/call;u;fixed_window/720h0m0s/UTC/3", "shop/call;u"},
		{"shop", "{t7}/user:42", "10/s", "shop/call;%7Bt7%7D/user:42;gcra/1s", "shop/call;t7"},
		{"shop", "a{t7}{b}", "10/s", "shop/call;a%7Bt7%7D%7Bb%7D;gcra/1s", "shop/call;t7"},
		{"shop", "{}{b}", "10/s", "shop/call;%7B%7D%7Bb%7D;gcra/1s", "shop/call;%7B%7D%7Bb%7D"},
		{"shop", "a;gcra#login;#*%", "10/s", "shop/call;a%3Bgcra%23login%3B%23%2A%25;gcra/1s", "shop/call;a%3Bgcra%23login%3B%23%2A%25"},
		{"a/b", "k", "10/s", "a%2Fb/call;k;gcra/1s", "a%2Fb/call;k"},
		{"shop", long, "10/s", "shop/call;" + long + ";gcra/1s", "shop/call;" + long},
		{"shop", strings.Repeat("\x00", 1024), "10/s", "shop/call;#sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef;gcra/1s", "shop/call;#sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"},
	} {
		charge := &planned(t, s, &rules.Request{Domain: test.domain, Calls: []rules.Call{{Key: test.key, Limit: test.limit, Cost: 1}}}).Acts[0].Charges[0]
		if charge.Key != test.want || charge.HashTag != test.tag {
			t.Errorf("%.40q %s: key %q of %q,\nwant %q of %q", test.key, test.limit, charge.Key, charge.HashTag, test.want, test.tag)
		}
	}
}

// TestCallsAreApart wants each domain, key and name to have a key of its own, which no rule
// has, however they are spelled.
func TestCallsAreApart(t *testing.T) {
	t.Parallel()
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ac;/=#*{}%,\x00é")), 1, 8, -1)
	limits := []string{"1/s", "1/min", "a=1/s", "b=1/s", "a=1/s sliding_log", "1/s sliding_log"}
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]string{}
		note := func(key, whose string) {
			if other, taken := seen[key]; taken && other != whose {
				t.Fatalf("%q is the key of %s and of %s", key, other, whose)
			}
			seen[key] = whose
		}
		for range 8 {
			domain, key, limit := text.Draw(t, "domain"), text.Draw(t, "key"), rapid.SampledFrom(limits).Draw(t, "limit")
			s := rules.MustParse("f", fmt.Sprintf("domain: %q\ndescriptors: [{key: call, rate_limit: {unit: second, requests_per_unit: 1}}, {key: \"c*\", share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}}, {key: \"a*\", rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 1}}]", domain))
			own := planned(t, s, &rules.Request{Domain: domain, Calls: []rules.Call{{Key: key, Limit: limit, Cost: 1}}})
			note(own.Acts[0].Charges[0].Key, fmt.Sprintf("the limit %s of %q in %q", limit, key, domain))
			entry := rules.Entry{Key: rapid.SampledFrom([]string{"call", "call;" + key, "c" + key, "a" + key}).Draw(t, "entry"), Value: text.Draw(t, "value")}
			plan := planned(t, s, &rules.Request{Domain: domain, Cost: 1, Descriptors: [][]rules.Entry{{entry}}})
			for i := range plan.Applied {
				a := &plan.Applied[i]
				if charge := &a.Act.Charges[a.Charge]; strings.Contains(charge.Key, "/call;") && !strings.Contains(charge.Key, "=") {
					t.Fatalf("the rule for %q has the key %q", entry, charge.Key)
				} else if own.Acts[0].Charges[0].Key == charge.Key {
					t.Fatalf("%q is the key of a rule, too", charge.Key)
				}
			}
		}
	})
}

// TestCallsShareAnAct wants the limits of rules and of the call in one act, whose ID belongs
// to the keys and names of both, and not to numbers.
func TestCallsShareAnAct(t *testing.T) {
	t.Parallel()
	s := parse(t, "domain: shop\ndescriptors: [{key: user, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 9}}]")
	scope := func(limit, key, name string) string {
		req := request("shop", "user=1")
		req.Cost, req.ID = 1, "job"
		req.Calls = []rules.Call{{Key: key, Limit: limit, Name: name, Cost: 2}}
		plan := planned(t, s, req)
		if len(plan.Acts) != 1 || len(plan.Shared.Charges) != 2 || plan.Shared.Charges[0].Cost != 1 || plan.Shared.Charges[1].Cost != 2 {
			t.Fatalf("%+v", plan.Acts)
		}
		return plan.Shared.Scope.Owner
	}
	want := scope("10/s", "k", "login")
	for _, same := range []string{scope("99/s burst 3", "k", "login"), scope("login=10/s", "k", ""), scope("10/h sliding_log", "k", "login")} {
		if same != want {
			t.Errorf("the scope is %q, want %q", same, want)
		}
	}
	for _, other := range []string{scope("10/s", "l", "login"), scope("10/s", "k", ""), scope("10/s", "k", "search"), scope("10/h", "k", "")} {
		if other == want {
			t.Errorf("another scope is the same: %q", other)
		}
	}
	if scope("10/s", "k", "") != scope("20/s", "k", "") {
		t.Error("a number changes the scope of a limit without a name")
	}
}

// TestCallsRefuse holds mistakes to the field of the limit that they are about.
func TestCallsRefuse(t *testing.T) {
	t.Parallel()
	s := parse(t, "domain: shop\n")
	good := rules.Call{Key: "k", Limit: "1/s", Cost: 1}
	for want, change := range map[string]func(r *rules.Request){
		`limits[1].limit is "1/x": want its period to be s, min, h, day, week, month, year or a duration such as 30s`: func(r *rules.Request) { r.Calls[1].Limit = "1/x" },
		`limits[1].name is "a b": want a name of at most 64 letters, digits and any of _ - . :`:                       func(r *rules.Request) { r.Calls[1].Name = "a b" },
		`limits[1].name is "b": want none beside the name "a" in the limit`:                                           func(r *rules.Request) { r.Calls[1].Name, r.Calls[1].Limit = "b", "a=1/s" },
		`limits[1] is "2/s" for the same key and budget as "1/s": want a name of its own, as in "name=100/min"`:       func(r *rules.Request) { r.Calls[1].Limit = "2/s" },
		`limits[1].key is 0 bytes: want at least 1 byte`:                                                              func(r *rules.Request) { r.Calls[1].Key = "" },
		`limits[1].cost is -1: want 0 … 1000000000`:                                                                   func(r *rules.Request) { r.Calls[1].Cost = -1 },
		`limits[1].cost is 1000000001: want 0 … 1000000000`:                                                           func(r *rules.Request) { r.Calls[1].Key, r.Calls[1].Cost = "l", 1000000001 },
		`limits[1].keep is -1: want 0 … 999999999999999`:                                                              func(r *rules.Request) { r.Calls[1].Key, r.Calls[1].Keep = "l", -1 },
		`limits is 65: want at most 64 limits`:                                                                        func(r *rules.Request) { r.Calls = make([]rules.Call, 65) },
		`domain is 1025 bytes: want at most 1024 bytes`:                                                               func(r *rules.Request) { r.Domain = strings.Repeat("d", 1025) },
		`limits[1].limit is "1/s concurrency": want a limit that counts units: a slot of concurrency has a holder, and is released by its id`: func(r *rules.Request) {
			r.Kind, r.Calls[1].Limit = acts.KindRecord, "1/s concurrency"
		},
		`id is missing: want the id of the take to settle`: func(r *rules.Request) { r.Kind = acts.KindSettle },
	} {
		req := &rules.Request{Domain: "shop", Calls: []rules.Call{good, good}}
		change(req)
		if _, err := s.Plan(req); err == nil || strings.TrimPrefix(err.Error(), "weir: ") != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestManyCallLimits wants few limits compiled once, and many to be forgotten one by one.
func TestManyCallLimits(t *testing.T) {
	t.Parallel()
	s := parse(t, "domain: shop\n")
	limit := func(n int) *weir.Limit {
		return planned(t, s, &rules.Request{Domain: "shop", Calls: []rules.Call{{Key: "k", Limit: fmt.Sprintf("%d/s", n), Cost: 1}}}).Acts[0].Charges[0].Limit
	}
	first := limit(1)
	for n := 2; n < 5000; n++ {
		if got := limit(n); got.Count != int64(n) {
			t.Fatalf("limit %d grants %d", n, got.Count)
		}
		if limit(1) != first {
			t.Fatalf("a limit in use was forgotten after %d others", n)
		}
	}
	if n := rules.CompiledCalls(s); n != rules.MaxCompiled {
		t.Errorf("%d limits are kept, want %d", n, rules.MaxCompiled)
	}
}

func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 1000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := rules.MustParse("f", "domain: shop\n")
			texts := make([]string, n)
			for i := range texts {
				texts[i] = fmt.Sprintf("%d/min", i+1)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				plan, err := s.Plan(&rules.Request{Domain: "shop", Calls: []rules.Call{{Key: "user:42", Limit: texts[i%n], Cost: 1}}})
				if err != nil {
					b.Fatal(err)
				}
				plan.Free()
				i++
			}
		})
	}
}
