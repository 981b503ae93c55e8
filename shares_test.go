package weir_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func TestSharesCompile(t *testing.T) {
	t.Parallel()
	pool := weir.Limit{Count: 1000, Period: time.Minute, Burst: 200}
	for name, c := range map[string]struct {
		shares weir.Shares
		keep   int64
		bursts map[string]int64
	}{
		"none":       {weir.Shares{Limit: pool}, 0, nil},
		"headroom":   {weir.Shares{Limit: pool, Headroom: 60, Guarantees: map[string]int64{"search": 300, "ads": 500}}, 18 + 30, map[string]int64{"search": 18, "ads": 30}},
		"a fifth":    {weir.Shares{Limit: pool, Guarantees: map[string]int64{"search": 300, "ads": 501}}, 12 + 21, map[string]int64{"search": 12, "ads": 21}},
		"at least 1": {weir.Shares{Limit: pool, Headroom: 1, Guarantees: map[string]int64{"a": 1, "b": 2, "c": 997}}, 3, map[string]int64{"a": 1, "b": 1, "c": 1}},
		// The budget is counted in ms, the class in µs.
		"resolutions": {weir.Shares{Limit: weir.Limit{Count: 999_983, Period: 24 * time.Hour, Burst: 200_000}, Headroom: 100, Guarantees: map[string]int64{"a": 99_999}}, 11 + 2, map[string]int64{"a": 11}},
	} {
		shares, err := c.shares.Compile()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if shares.Keep() != c.keep || shares.Pool().Burst != c.shares.Limit.Burst {
			t.Errorf("%s: %d stay free of %v, want %d", name, shares.Keep(), shares.Pool(), c.keep)
		}
		for class, burst := range c.bursts {
			if l := shares.Class(class); l == nil || l.Burst != burst || l.Count != c.shares.Guarantees[class] || l.Period != c.shares.Limit.Period {
				t.Errorf("%s: %s has %v, want a burst of %d", name, class, l, burst)
			}
		}
		if shares.Class("others") != nil {
			t.Errorf("%s: others have a guarantee", name)
		}
	}
}

func TestSharesAreInvalid(t *testing.T) {
	t.Parallel()
	pool := weir.Limit{Count: 10, Period: time.Minute}
	some := map[string]int64{"a": 5}
	for field, all := range map[string][]weir.Shares{
		"algorithm":      {{Limit: weir.Limit{Count: 10, Period: time.Minute, Algorithm: weir.FixedWindow}, Guarantees: some}},
		"charge_refused": {{Limit: weir.Limit{Count: 10, Period: time.Minute, ChargeRefused: true}, Guarantees: some}},
		"count":          {{Limit: weir.Limit{Period: time.Minute}}, {Limit: weir.Per(-1, time.Minute)}},
		"period":         {{Limit: weir.Per(1, 0)}},
		"headroom": {
			{Limit: pool, Headroom: -1, Guarantees: some},
			{Limit: pool, Headroom: 11, Guarantees: some},
			{Limit: pool, Headroom: 10, Guarantees: map[string]int64{"a": 5, "b": 5}}, // nothing is left to lend
			{Limit: weir.Limit{Count: 10, Period: time.Minute, Burst: 1}, Guarantees: some},
		},
		"guarantee": {
			{Limit: pool, Guarantees: map[string]int64{"a": 5, "b": 6}},
			{Limit: pool, Guarantees: map[string]int64{"a": 0}},
			{Limit: pool, Guarantees: map[string]int64{"a": 11}},
			{Limit: pool, Guarantees: map[string]int64{"": 1}},
			{Limit: pool, Guarantees: map[string]int64{"a#b": 1}},
		},
	} {
		for _, shares := range all {
			_, err := shares.Compile()
			var invalid *weir.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%+v: %v, want an error of %s", shares, err, field)
			}
		}
	}
}

// TestSharesKeys: classes of one key share its budget and nothing else.
func TestSharesKeys(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	shares, err := weir.Shares{Limit: weir.Limit{Name: "tokens", Count: 100, Period: time.Hour}, Guarantees: map[string]int64{"pool": 50, "b": 20}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, class := range []string{"pool", "b", "c"} {
		for _, c := range shares.Charges("k", class, 1) {
			if c.HashTag != "k" {
				t.Errorf("%v has the hash tag %q", c, c.HashTag)
			}
			seen[c.Key] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("keys %v, want one for the budget and one for each of two classes", seen)
	}
	allow := func(key, class string, n int64) weir.Decision {
		d, err := shares.AllowN(t.Context(), store, key, class, n)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := allow("k", "c", 100-shares.Keep()); !d.Allowed() || d.Remaining != 0 {
		t.Errorf("all that is lent: %v", d)
	}
	if d := allow("k", "c", 1); d.Allowed() || d.RetryAfter == weir.Never {
		t.Errorf("more than is lent: %v", d)
	}
	if d := allow("k", "b", 0); !d.Allowed() || d.Remaining != shares.Class("b").Burst {
		t.Errorf("a peek: %v", d)
	}
	if d := allow("k", "b", shares.Class("b").Burst); !d.Allowed() {
		t.Errorf("a guarantee: %v", d)
	}
	if d := allow("other", "c", 1); !d.Allowed() {
		t.Errorf("another budget: %v", d)
	}
	if _, err := shares.AllowN(t.Context(), store, "k", "b", -1); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
