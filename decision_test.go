package weir_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/memstore"
)

func granted(left int64) weir.Decision {
	return weir.Decision{Outcome: weir.Granted, Remaining: left}
}

func refused(wait time.Duration) weir.Decision {
	return weir.Decision{Outcome: weir.Refused, RetryAfter: wait}
}

func TestStrictest(t *testing.T) {
	t.Parallel()
	limit := func(count int64) *weir.Limit {
		return weir.Limit{Algorithm: weir.FixedWindow, Count: count, Period: 24 * time.Hour}.MustCompile()
	}
	for name, c := range map[string]struct {
		counts    []int64
		decisions []weir.Decision
		want      int
	}{
		"none":                        {nil, nil, -1},
		"one":                         {[]int64{5}, []weir.Decision{granted(5)}, 0},
		"least share left":            {[]int64{10, 1000}, []weir.Decision{granted(5), granted(400)}, 1},
		"first on a tie":              {[]int64{10, 100}, []weir.Decision{granted(5), granted(50)}, 0},
		"refusal before grant":        {[]int64{10, 10}, []weir.Decision{granted(0), refused(1)}, 1},
		"longest wait":                {[]int64{10, 10, 10}, []weir.Decision{refused(1), refused(3), refused(2)}, 1},
		"never is longest":            {[]int64{10, 10}, []weir.Decision{refused(time.Hour), refused(weir.Never)}, 1},
		"first of equal waits":        {[]int64{10, 10}, []weir.Decision{refused(7), refused(7)}, 0},
		"large counts":                {[]int64{1e9, 1e9}, []weir.Decision{granted(999_999_999), granted(999_999_998)}, 1},
		"large budgets":               {[]int64{5e9, 9e9}, []weir.Decision{granted(2_049_638_231), granted(2)}, 1},
		"largest budgets":             {[]int64{1e15 - 1, 1e15 - 1}, []weir.Decision{granted(1e15 - 1), granted(1e15 - 2)}, 1},
		"not charged does not refuse": {[]int64{10, 10}, []weir.Decision{{Outcome: weir.NotCharged}, refused(1)}, 1},
	} {
		charges := make([]weir.Charge, len(c.counts))
		for i, n := range c.counts {
			charges[i].Limit = limit(n)
		}
		a := weir.Act{Charges: charges, Decisions: c.decisions}
		if got, _ := a.Verdict(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestStrictestOfAlternatives: the alternative that one charge can take most of speaks, with
// the limit that has least.
func TestStrictestOfAlternatives(t *testing.T) {
	t.Parallel()
	charge := func(count int64, group, alt uint8) weir.Charge {
		return weir.Charge{Limit: weir.PerDay(count).MustCompile(), Group: group, Alt: alt}
	}
	none := weir.Decision{}
	for name, c := range map[string]struct {
		charges   []weir.Charge
		decisions []weir.Decision
		want      int
		remaining int64
	}{
		"the larger part of less": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 0, 1)},
			[]weir.Decision{granted(5), granted(200)},
			1, 200,
		},
		"the least of each": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 0, 0), charge(50, 0, 1), charge(50, 0, 1)},
			[]weir.Decision{granted(5), granted(400), granted(8), granted(7)},
			3, 7,
		},
		"the first of equals": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 0, 1)},
			[]weir.Decision{granted(5), granted(5)},
			0, 5,
		},
		"what was granted": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 0, 1), charge(10, 0, 1)},
			[]weir.Decision{none, granted(200), granted(9)},
			2, 9,
		},
		"one that is refused": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 0, 1)},
			[]weir.Decision{refused(1), {Outcome: weir.NotCharged, Remaining: 3}},
			1, 3,
		},
		"the soonest": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 0, 0), charge(10, 0, 1)},
			[]weir.Decision{refused(1), refused(3), refused(2)},
			2, 0,
		},
		"beside another group": {
			[]weir.Charge{charge(10, 0, 0), charge(1000, 1, 0), charge(10, 1, 1)},
			[]weir.Decision{granted(3), granted(200), granted(8)},
			1, 3,
		},
	} {
		a := weir.Act{Charges: c.charges, Decisions: c.decisions}
		if got, _ := a.Verdict(); got != c.want || a.Remaining() != c.remaining {
			t.Errorf("%s: %d with %d remaining, want %d with %d", name, got, a.Remaining(), c.want, c.remaining)
		}
	}
}

func TestNamesInAnswers(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		weir.Granted.String(): "granted", weir.Refused.String(): "refused", weir.NotCharged.String(): "not_charged",
		weir.NotEvaluated.String(): "not_evaluated", weir.Outcome(77).String(): "unknown",
		acts.SourceStore.String(): "store", acts.SourceShadow.String(): "shadow", acts.SourceLimit.String(): "limit",
		acts.SourceDenyCache.String(): "deny_cache", acts.SourceLease.String(): "lease", acts.SourceFallback.String(): "fallback",
		acts.SourceFailOpen.String(): "fail_open", acts.SourceFailClosed.String(): "fail_closed",
		acts.SourceNone.String(): "none", weir.Source(77).String(): "unknown",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	limit := weir.PerMinute(100)
	for want, value := range map[string]any{
		"not_evaluated": weir.Decision{},
		"granted by store, 4 remaining, reset after 12s":                      weir.Decision{Outcome: weir.Granted, Source: acts.SourceStore, Granted: 1, Remaining: 4, ResetAfter: 12 * time.Second},
		"granted by store, 3 units, 4 remaining, delay 2s":                    weir.Decision{Outcome: weir.Granted, Source: acts.SourceStore, Granted: 3, Remaining: 4, Delay: 2 * time.Second},
		"refused by deny_cache, 0 remaining, retry after 3s, reset after 12s": weir.Decision{Outcome: weir.Refused, Source: acts.SourceDenyCache, RetryAfter: 3 * time.Second, ResetAfter: 12 * time.Second},
		"refused by limit, 0 remaining, never granted":                        weir.Decision{Outcome: weir.Refused, Source: acts.SourceLimit, RetryAfter: weir.Never},
		"100/min": limit,
	} {
		if got := fmt.Sprintf("%v", value); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestTakeValid: invalid acts get errors, the others a decision, and none stays marked.
func TestTakeValid(t *testing.T) {
	t.Parallel()
	store, limit := memstore.New(memstore.Options{}), weir.PerHour(10).MustCompile()
	act := func(cost int64) *weir.Act {
		return &weir.Act{Charges: []weir.Charge{{Key: "k", Limit: limit, Cost: cost}}, Decisions: make([]weir.Decision, 1)}
	}
	acts := []*weir.Act{act(1), act(-1), act(2), act(-2)}
	weir.TakeValid(t.Context(), acts, store.Take)
	for i, want := range []bool{true, false, true, false} {
		if got := acts[i].Err == nil && acts[i].Decisions[0].Outcome == weir.Granted; got != want {
			t.Errorf("act %d: %v, %v", i, acts[i].Decisions, acts[i].Err)
		}
	}
	acts[0].Charges[0].Cost = -1
	if store.Take(t.Context(), acts[:1]); !errors.Is(acts[0].Err, weir.ErrInvalid) {
		t.Errorf("changed after its decision: %v", acts[0].Err)
	}
}

// TestStrictestOfWaived: the alternative of a take that was granted without it answers, wherever
// it stands.
func TestStrictestOfWaived(t *testing.T) {
	t.Parallel()
	limit := weir.PerMinute(5).MustCompile()
	charges := []weir.Charge{{Limit: limit}, {Limit: limit, Alt: 1}, {Limit: limit, Alt: 2}}
	for i := range charges {
		decisions := make([]weir.Decision, len(charges))
		decisions[i].Source = acts.SourceStore
		a := weir.Act{Charges: charges, Decisions: decisions}
		if got, _ := a.Verdict(); got != i {
			t.Errorf("alternative %d answers, want %d", got, i)
		}
	}
}

// TestRetrySeconds rounds up, and says that no wait helps where none does.
func TestRetrySeconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    weir.Decision
		want int64
		ok   bool
	}{
		{granted(1), 0, false},
		{refused(weir.Never), 0, false},
		{refused(0), 1, true},
		{refused(time.Nanosecond), 1, true},
		{refused(time.Second), 1, true},
		{refused(time.Second + 1), 2, true},
		{refused(weir.Never - time.Second), int64((weir.Never-time.Second)/time.Second) + 1, true},
		{weir.Decision{Outcome: weir.NotCharged, RetryAfter: time.Second}, 0, false},
	} {
		if seconds, ok := c.d.RetrySeconds(); seconds != c.want || ok != c.ok {
			t.Errorf("%v: %d, %v: want %d, %v", c.d, seconds, ok, c.want, c.ok)
		}
	}
}

// TestLogValue logs words, not numbers, in both formats of slog.
func TestLogValue(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	d := refused(3 * time.Second)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "decision", d)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "decision", d)
	if n := strings.Count(out.String(), d.String()); n != 2 {
		t.Errorf("%q: want %q twice", &out, d)
	}
}
