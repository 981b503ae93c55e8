package weir_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
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
			// The budget is counted exactly, and the class is not.
			{Limit: weir.Limit{Count: 442_184_188, Period: 353_905_814 * time.Millisecond, Burst: 819_885_751}, Guarantees: map[string]int64{"a": 59_040_837}},
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
		for _, c := range shares.Limiter(store, "budget", class).Act(acts.KindTake, "k", 1).Charges {
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
		d, err := shares.Limiter(store, "budget", class).AllowN(t.Context(), key, n)
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
	if _, err := shares.Limiter(store, "budget", "b").AllowN(t.Context(), "k", -1); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestSharesDivide: the parts of all instances are together no more than the whole, and each
// guarantees its part of every guarantee.
func TestSharesDivide(t *testing.T) {
	t.Parallel()
	teams := func(n int) map[string]int64 {
		all := map[string]int64{}
		for i := range n {
			all[string(rune('a'+i))] = 1
		}
		return all
	}
	for name, c := range map[string]struct {
		shares weir.Shares
		n      int
		want   weir.Limit // the budget; none if nothing can be guaranteed
		keep   int64
	}{
		"one":            {weir.Shares{Limit: weir.PerMinute(100), Guarantees: teams(3)}, 1, weir.Limit{Count: 100, Period: time.Minute, Burst: 100}, 3},
		"small ones":     {weir.Shares{Limit: weir.PerMinute(100), Guarantees: teams(3)}, 4, weir.Limit{Count: 100, Period: 4 * time.Minute, Burst: 25}, 3},
		"large ones":     {weir.Shares{Limit: weir.PerMinute(100), Guarantees: map[string]int64{"a": 60, "b": 40}, Headroom: 50}, 4, weir.Limit{Count: 100, Period: 4 * time.Minute, Burst: 25}, 8 + 6},
		"less headroom":  {weir.Shares{Limit: weir.Limit{Count: 100, Period: time.Minute, Burst: 12}, Guarantees: map[string]int64{"a": 50, "b": 50}, Headroom: 10}, 4, weir.Limit{Count: 100, Period: 4 * time.Minute, Burst: 3}, 2},
		"too many teams": {weir.Shares{Limit: weir.Limit{Count: 100, Period: time.Minute, Burst: 12}, Guarantees: teams(3)}, 4, weir.Limit{}, 0},
		"no burst":       {weir.Shares{Limit: weir.PerMinute(100), Guarantees: teams(1)}, 101, weir.Limit{}, 0},
		"long periods":   {weir.Shares{Limit: weir.Limit{Count: 100, Period: 200 * 24 * time.Hour}, Guarantees: map[string]int64{"a": 10}}, 4, weir.Limit{Count: 25, Period: 200 * 24 * time.Hour, Burst: 25}, 1},
		"too long ones":  {weir.Shares{Limit: weir.Limit{Count: 100, Period: 200 * 24 * time.Hour}, Guarantees: teams(1)}, 4, weir.Limit{}, 0},
		"any number":     {weir.Shares{Limit: weir.PerMinute(1_000_000_000), Guarantees: teams(1)}, 1 << 62, weir.Limit{}, 0},
	} {
		shares, err := c.shares.Compile()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		own := shares.Divide(c.n)
		if own == nil || c.want.Count == 0 {
			if own != nil || c.want.Count > 0 {
				t.Errorf("%s: %+v", name, own)
			}
			continue
		}
		if l := own.Pool(); l.Count != c.want.Count || l.Period != c.want.Period || l.Burst != c.want.Burst || own.Keep() != c.keep {
			t.Errorf("%s: %v with a burst of %d, of which %d stay free; want %v and %d", name, l, l.Burst, own.Keep(), c.want, c.keep)
		}
		for class, whole := range shares.Guarantees {
			one, l := shares.Class(class), own.Class(class)
			if most := whole * int64(l.Period); l.Count*int64(one.Period)*int64(c.n) > most || l.Count < 1 {
				t.Errorf("%s: %v of %v", name, l, one)
			}
		}
	}
}

// TestLimitShares: a limit knows its shares under any name, and not with other numbers.
func TestLimitShares(t *testing.T) {
	t.Parallel()
	shares, err := weir.Shares{Limit: weir.PerMinute(100), Guarantees: map[string]int64{"a": 10}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for class, l := range map[string]*weir.Limit{"": shares.Pool(), "a": shares.Class("a")} {
		renamed, larger := *l, *l
		renamed.Name, larger.Count = "other", 90
		if s, of := renamed.MustCompile().Shares(); s != shares || of != class {
			t.Errorf("%q renamed: %v %q", class, s, of)
		}
		if s, of := larger.MustCompile().Shares(); s != nil || of != "" {
			t.Errorf("%q with other numbers: %v %q", class, s, of)
		}
	}
	if s, _ := weir.PerMinute(100).MustCompile().Shares(); s != nil {
		t.Errorf("a limit of its own: %v", s)
	}
}
