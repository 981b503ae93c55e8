package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

const works = `
domain: shop
x-limits: [&gcra {algorithm: gcra, unit: minute, requests_per_unit: 100}, &places {algorithm: concurrency, period: 60s, requests_per_unit: 2}]
descriptors:
  - {key: user, rate_limit: *gcra}
  - {key: job, rate_limit: *places}
  - {key: both, rate_limits: [*gcra, *places]}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: watched, shadow_mode: true, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}}
  - {key: watched-job, shadow_mode: true, rate_limit: {<<: *places, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`

// ids returns the ids of a plan's acts.
func ids(plan *rules.Plan) []string {
	all := make([]string, len(plan.Acts))
	for i, act := range plan.Acts {
		all[i] = act.ID
	}
	return all
}

// TestIDs wants each act to have an id of its own, and that of the grouped rules
// to stay whatever stands beside them.
func TestIDs(t *testing.T) {
	t.Parallel()
	set := parse(t, works)
	long := strings.Repeat("x", weir.MaxIDBytes)
	for _, c := range []struct {
		id          string
		descriptors []string
		want        []string
	}{
		{"", []string{"user=1", "plain=1"}, []string{"", ""}},
		{"a", []string{"user=1"}, []string{"a/0"}},
		{"a", []string{"user=1", "both=1"}, []string{"a/0"}},
		{"a", []string{"plain=1", "user=1", "watched=1", "plain=1"}, []string{"a/1", "a/0", "a/3", "a/4"}},
		{"a/0", []string{"user=1"}, []string{"a/0/0"}},
		{long[3:], []string{"user=1"}, []string{long[3:] + "/0"}},
	} {
		req := request(c.descriptors...)
		req.ID = c.id
		plan, err := set.Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, ids(plan)); diff != "" || plan.ID != c.id {
			t.Errorf("%q, %s", plan.ID, diff)
		}
	}
	seen := map[string]bool{}
	for _, id := range []string{long, long[1:], long[2:], "y" + long[1:]} {
		req := request("plain=1", "plain=1", "user=1")
		req.ID = id
		plan, err := set.Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids(plan) {
			if len(id) > weir.MaxIDBytes || seen[id] {
				t.Errorf("%q is too long or another's", id)
			}
			seen[id] = true
		}
	}
}

// TestMadeIDs wants an id where a hold or a place needs one, and nowhere else.
func TestMadeIDs(t *testing.T) {
	t.Parallel()
	set := parse(t, works)
	for name, c := range map[string]struct {
		req  rules.Request
		made bool
	}{
		"a take":               {rules.Request{Cost: 1, Descriptors: request("user=1", "plain=1").Descriptors}, false},
		"a place":              {rules.Request{Cost: 1, Descriptors: request("user=1", "job=1").Descriptors}, true},
		"a watched place":      {rules.Request{Cost: 1, Descriptors: request("watched-job=1").Descriptors}, true},
		"a look at a place":    {rules.Request{Descriptors: request("job=1").Descriptors}, false},
		"a hold":               {rules.Request{Cost: 1, Hold: time.Second, Descriptors: request("user=1").Descriptors}, true},
		"a hold of nothing":    {rules.Request{Cost: 1, Hold: time.Second, Descriptors: request("free=1").Descriptors}, true},
		"a reset of places":    {rules.Request{Kind: acts.KindReset, Descriptors: request("job=1").Descriptors}, false},
		"nothing where no one": {rules.Request{Cost: 1, Descriptors: request("nobody=1").Descriptors}, false},
	} {
		c.req.Domain = "shop"
		first, err := set.Plan(&c.req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		second, err := set.Plan(&c.req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if made := len(first.ID) >= 26 && first.ID != second.ID; made != c.made || !c.made && first.ID != "" {
			t.Errorf("%s: ids %q and %q", name, first.ID, second.ID)
		}
	}
	other, err := set.Plan(&rules.Request{Domain: "other", Cost: 1, Hold: time.Second, Descriptors: request("user=1").Descriptors})
	if err != nil || other.ID == "" || len(other.Acts) != 0 {
		t.Errorf("unknown domain: %+v, %v", other, err)
	}
}

// TestPlaces wants a place to be taken by a request, whatever it costs, and given
// up by whatever ends it.
func TestPlaces(t *testing.T) {
	t.Parallel()
	set := parse(t, works)
	for kind, want := range map[weir.Kind]string{
		acts.KindTake: "40 1", acts.KindRefund: "40 1", acts.KindSettle: "40 0", acts.KindRelease: "40 1",
	} {
		req := request("both=1")
		req.Kind, req.Cost, req.ID = kind, 40, "a"
		plan, err := set.Plan(req)
		if err != nil {
			t.Fatal(err)
		}
		c := plan.Acts[0].Charges
		if got := fmt.Sprint(c[0].Cost, " ", c[1].Cost); got != want {
			t.Errorf("%v: costs %s, want %s", kind, got, want)
		}
	}
}

func TestPlanRefusesOptions(t *testing.T) {
	t.Parallel()
	set := parse(t, works)
	for name, c := range map[string]struct {
		req         rules.Request
		descriptors []string
		want        string // the field; empty if all is well
	}{
		"a long id":                  {rules.Request{ID: strings.Repeat("x", 129)}, []string{"user=1"}, "id"},
		"a long id for nobody":       {rules.Request{ID: strings.Repeat("x", 129)}, []string{"nobody=1"}, "id"},
		"settle without id":          {rules.Request{Kind: acts.KindSettle}, []string{"nobody=1"}, "id"},
		"release without id":         {rules.Request{Kind: acts.KindRelease}, []string{"user=1"}, "id"},
		"renew without id":           {rules.Request{Kind: acts.KindRenew}, []string{"user=1"}, "id"},
		"refund without id":          {rules.Request{Kind: acts.KindRefund}, []string{"user=1"}, "id"},
		"reset with id":              {rules.Request{Kind: acts.KindReset, ID: "a"}, []string{"user=1"}, "id"},
		"record with id":             {rules.Request{Kind: acts.KindRecord, ID: "a"}, []string{"user=1"}, "id"},
		"record of places":           {rules.Request{Kind: acts.KindRecord}, []string{"job=1"}, "kind"},
		"another kind":               {rules.Request{Kind: 99}, []string{"user=1"}, "kind"},
		"hold too long":              {rules.Request{Hold: 25 * time.Hour}, []string{"user=1"}, "hold"},
		"hold of a release":          {rules.Request{Kind: acts.KindRelease, ID: "a", Hold: time.Second}, []string{"user=1"}, "hold"},
		"wait too long":              {rules.Request{MaxWait: 25 * time.Hour}, []string{"user=1"}, "max_wait"},
		"booking":                    {rules.Request{MaxWait: time.Second}, []string{"user=1"}, ""},
		"booking a window":           {rules.Request{MaxWait: time.Second}, []string{"user=1", "log=1"}, "max_wait"},
		"booking a window, alone":    {rules.Request{MaxWait: time.Second}, []string{"user=1", "plain=1"}, "max_wait"},
		"booking a place":            {rules.Request{MaxWait: time.Second}, []string{"job=1"}, "max_wait"},
		"booking, a window watched":  {rules.Request{MaxWait: time.Second}, []string{"user=1", "watched=1"}, ""},
		"up to over places":          {rules.Request{UpTo: 2}, []string{"user=1", "both=1"}, "up_to"},
		"up to over watched places":  {rules.Request{UpTo: 2}, []string{"user=1", "watched-job=1"}, ""},
		"up to one":                  {rules.Request{UpTo: 1}, []string{"both=1"}, ""},
		"up to and booking":          {rules.Request{UpTo: 2, MaxWait: time.Second}, []string{"user=1"}, "up_to"},
		"a place twice":              {rules.Request{}, []string{"user=1", "job=1", "job=1"}, "descriptors[2]"},
		"a watched place twice":      {rules.Request{}, []string{"watched-job=1", "watched-job=1"}, ""},
		"a cost beyond one act's":    {rules.Request{Cost: weir.MaxCost + 1}, []string{"plain=1", "user=1"}, "cost"},
		"a cost that is only stated": {rules.Request{Cost: weir.MaxCost + 1}, []string{"plain=1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := c.req
			req.Domain, req.Cost, req.Descriptors = "shop", max(1, req.Cost), request(c.descriptors...).Descriptors
			plan, err := set.Plan(&req)
			var invalid *weir.InvalidError
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &invalid) || invalid.Field != c.want || plan != nil):
				t.Errorf("%v, want an error that names %s", err, c.want)
			}
		})
	}
}

// TestPlanErr wants the mistakes that matter: those of live rules, and an unknown
// id only where no live act knew it.
func TestPlanErr(t *testing.T) {
	t.Parallel()
	set := parse(t, works)
	for name, c := range map[string]struct {
		descriptors []string
		errs        []error
		want        error
	}{
		"all well":              {[]string{"user=1", "plain=1"}, []error{nil, nil}, nil},
		"the store":             {[]string{"user=1", "plain=1"}, []error{nil, weir.ErrAmbiguous}, weir.ErrAmbiguous},
		"the store, watched":    {[]string{"watched=1"}, []error{weir.ErrNotApplied}, weir.ErrNotApplied},
		"unknown to one":        {[]string{"user=1", "plain=1"}, []error{weir.ErrUnknownID, nil}, nil},
		"unknown to the other":  {[]string{"user=1", "plain=1"}, []error{nil, weir.ErrUnknownID}, nil},
		"unknown to all":        {[]string{"user=1", "plain=1"}, []error{weir.ErrUnknownID, weir.ErrUnknownID}, weir.ErrUnknownID},
		"known to the watched":  {[]string{"user=1", "watched=1"}, []error{weir.ErrUnknownID, nil}, weir.ErrUnknownID},
		"settled":               {[]string{"user=1", "plain=1"}, []error{nil, weir.ErrSettled}, weir.ErrSettled},
		"settled, but watched":  {[]string{"user=1", "watched=1"}, []error{nil, weir.ErrSettled}, nil},
		"unlimited beside them": {[]string{"free=1", "user=1"}, []error{weir.ErrReleased}, weir.ErrReleased},
	} {
		plan, err := set.Plan(request(c.descriptors...))
		if err != nil {
			t.Fatal(err)
		}
		for i, act := range plan.Acts {
			act.Err = c.errs[i]
			act.Decisions[0] = weir.Decision{Outcome: weir.Granted, Granted: 7}
		}
		if got := plan.Err(); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for i := range plan.Applied {
			if a := &plan.Applied[i]; a.Act != nil && a.Act.Err != nil && a.Decision().Granted != 0 {
				t.Errorf("%s: an act with an error has granted %+v", name, a.Decision())
			}
		}
	}
}
