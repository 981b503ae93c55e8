package rules_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

func override(t *testing.T, count int64, unit string, multiplier uint32) *rules.Rule {
	t.Helper()
	r, err := rules.Override(count, unit, multiplier, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAsks: descriptors of one request that ask differently.
func TestAsks(t *testing.T) {
	t.Parallel()
	set := parse(t, shop)
	hour, ten := override(t, 5, "hour", 1), override(t, 5, "minute", 10)
	type act struct {
		Kind  string
		Keys  []string
		Costs []int64
	}
	for name, c := range map[string]struct {
		descriptors []string
		asks        []rules.Ask
		want        []act
	}{
		"costs": {
			[]string{"user=1", "path=/", "user=2"},
			[]rules.Ask{{Cost: 3}, {Cost: 0}, {Cost: math.MaxInt64}},
			[]act{
				{"take", []string{"shop/user=1;user#1", "shop/user=2;user#1"}, []int64{3, math.MaxInt64}},
				{"take", []string{"shop/path=/;minute"}, []int64{0}},
			},
		},
		"refunds are alone": {
			[]string{"user=1", "tenant=a"},
			[]rules.Ask{{Cost: 3}, {Cost: 2, Refund: true}},
			[]act{
				{"take", []string{"shop/user=1;user#1"}, []int64{3}},
				{"refund", []string{"shop/tenant=a;tenant;daily"}, []int64{2}},
				{"refund", []string{"shop/tenant=a;tenant#2"}, []int64{2}},
			},
		},
		"overrides": {
			[]string{"user=1", "unknown=x,y=z", "ip=10.1.1.1", ""},
			[]rules.Ask{{Cost: 1, Override: hour}, {Cost: 1, Override: hour}, {Cost: 1, Override: ten}, {Cost: 1, Override: ten}},
			[]act{
				{"take", []string{"shop/user=1;hour"}, []int64{1}},
				{"take", []string{"shop/unknown=x,y=z;hour"}, []int64{1}},
				{"take", []string{"shop/ip=10.1.1.1;minute*10"}, []int64{1}},
			},
		},
		"an override does not give way": {
			[]string{"tenant=a", "free=1"},
			[]rules.Ask{{Cost: 1, Override: hour}, {Cost: 1}},
			[]act{{"take", []string{"shop/tenant=a;hour"}, []int64{1}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(c.descriptors...)
			if last := len(req.Descriptors) - 1; c.descriptors[last] == "" {
				req.Descriptors[last] = nil
			}
			req.Each = c.asks
			plan, err := set.Plan(req)
			if err != nil {
				t.Fatal(err)
			}
			var got []act
			for _, a := range plan.Acts {
				shown := act{Kind: a.Kind.String()}
				for _, charge := range a.Charges {
					shown.Keys, shown.Costs = append(shown.Keys, charge.Key), append(shown.Costs, charge.Cost)
				}
				got = append(got, shown)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAsksOfOthers(t *testing.T) {
	t.Parallel()
	req := request("user=1", "user=2")
	req.Each = []rules.Ask{{Cost: 1}}
	_, err := parse(t, shop).Plan(req)
	if invalid := new(weir.InvalidError); !errors.As(err, &invalid) || invalid.Field != "each" {
		t.Errorf("got %v", err)
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	r := override(t, 7, "minute", 10)
	if l := r.Limits[0]; l.Count != 7 || l.Period != 10*time.Minute || !l.ChargeRefused || l.Algorithm != weir.FixedWindow {
		t.Errorf("limit: %+v", l)
	}
	if wide := r.Counter(); wide.Count != math.MaxUint32 || wide.Period != 10*time.Minute {
		t.Errorf("counter: %+v", wide)
	}
	override(t, math.MaxUint32, "year", 1)
	override(t, 0, "second", 365*24*3600)
	for _, c := range []struct {
		count      int64
		unit       string
		multiplier uint32
		field      string
	}{
		{1, "", 1, "unit"},
		{1, "fortnight", 1, "unit"},
		{1, "minute", 0, "unit_multiplier"},
		{1, "year", 2, "unit_multiplier"},
		{1, "second", 365*24*3600 + 1, "unit_multiplier"},
		{-1, "second", 1, "count"},
		{math.MaxUint32 + 1, "second", 1, "count"},
	} {
		_, err := rules.Override(c.count, c.unit, c.multiplier, nil)
		if invalid := new(weir.InvalidError); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%+v: got %v, want an error that names %s", c, err, c.field)
		}
	}
}

// TestOverrideByAlgorithm: another algorithm is another budget, beside rules that name one.
func TestOverrideByAlgorithm(t *testing.T) {
	t.Parallel()
	gcra := weir.GCRA
	r, err := rules.Override(7, "minute", 10, &gcra)
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Limits[0]; l.Algorithm != weir.GCRA || l.Count != 7 || l.Period != 10*time.Minute || l.ChargeRefused || r.Counter() != nil || !r.Grouped {
		t.Errorf("rule %+v, limit %+v", r, l)
	}
	if _, err := rules.Override(math.MaxUint32, "minute", 1, &gcra); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a count above the largest: %v", err)
	}
}

// TestCounter: only rules that name no algorithm have one.
func TestCounter(t *testing.T) {
	t.Parallel()
	for _, r := range parse(t, shop).Rules() {
		if has := r.Counter() != nil; has != (!r.Grouped && !r.Unlimited) {
			t.Errorf("%s: %v", r.Path, has)
		}
	}
}
