package weir_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/memstore"
)

// TestInvalidErrorPath holds that errors about a charge or a decision carry the list, the
// index and the field apart, and name all three in their text.
func TestInvalidErrorPath(t *testing.T) {
	t.Parallel()
	limit := weir.PerMinute(10).MustCompile()
	good := weir.Charge{Key: "k", Limit: limit, Cost: 1}
	for want, c := range map[string]struct {
		kind   weir.Kind
		id     string
		bad    weir.Charge
		answer weir.Decision
		list   string
	}{
		"charges[1].limit":     {bad: weir.Charge{Key: "k", Cost: 1}, list: "charges"},
		"charges[1].key":       {bad: weir.Charge{Key: strings.Repeat("k", weir.MaxKeyBytes+1), Limit: limit}, list: "charges"},
		"charges[1].cost":      {bad: weir.Charge{Key: "k", Limit: limit, Cost: -1}, list: "charges"},
		"charges[1].up_to":     {bad: weir.Charge{Key: "k", Limit: limit, Cost: 1, UpTo: 2}, list: "charges"},
		"decisions[1].granted": {kind: acts.KindAmend, id: "a", bad: good, answer: weir.Decision{Outcome: weir.Granted, Granted: -1}, list: "decisions"},
		"decisions[1].outcome": {kind: acts.KindAmend, id: "a", bad: good, answer: weir.Decision{Outcome: 99}, list: "decisions"},
		"id":                   {kind: acts.KindSettle, bad: good},
	} {
		a := &weir.Act{Kind: c.kind, ID: c.id, Scope: algo.Scope{Owner: "owner"}, Charges: []weir.Charge{good, c.bad}, Decisions: []weir.Decision{{}, c.answer}}
		acts.Check(a)
		invalid := new(weir.InvalidError)
		if !errors.As(a.Err, &invalid) || invalid.Path() != want || invalid.List != c.list || c.list != "" && invalid.Index != 1 {
			t.Errorf("%+v, want one of %s", a.Err, want)
			continue
		}
		if c.list != "" && invalid.Field != want[strings.LastIndex(want, ".")+1:] {
			t.Errorf("the field of %s is %q", want, invalid.Field)
		}
		if text := a.Err.Error(); !strings.HasPrefix(text, "weir: "+want+" is ") {
			t.Errorf("%s is not in %q", want, text)
		}
	}
}

// TestKeysOfManyCharges holds that an act of many charges is refused for a key under two limits, or
// for a holder's second slot, wherever the two charges stand, and only then.
func TestKeysOfManyCharges(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	minute, hour := weir.PerMinute(10).MustCompile(), weir.PerHour(10).MustCompile()
	slots := weir.Limit{Algorithm: weir.Concurrency, Count: 10, Period: time.Minute}.MustCompile()
	for n := 2; n <= weir.MaxCharges; n++ {
		for _, c := range []struct {
			first, last *weir.Limit
			key         string
			want        string
		}{
			{minute, minute, "last", ""},
			{minute, minute, "0", ""},
			{minute, slots, "0", ""},
			{minute, hour, "last", ""},
			{minute, hour, "0", "charges[%d].limit"},
			{slots, slots, "last", ""},
			{slots, slots, "0", "charges[%d].key"},
		} {
			a := &weir.Act{ID: fmt.Sprint(n, c), Decisions: make([]weir.Decision, n)}
			a.Scope.Owner = "o"
			for i := range n {
				a.Charges = append(a.Charges, weir.Charge{Key: fmt.Sprint(i), Limit: c.first, Cost: 1})
			}
			a.Charges[n-1].Key, a.Charges[n-1].Limit = c.key, c.last
			store.Take(t.Context(), []*weir.Act{a})
			want := c.want
			if want != "" {
				want = fmt.Sprintf(want, n-1)
			}
			var invalid *weir.InvalidError
			if want == "" && a.Err != nil || want != "" && (!errors.As(a.Err, &invalid) || !strings.Contains(a.Err.Error(), want)) {
				t.Errorf("%d charges, the last of key %s under %v: %v: want %q", n, c.key, c.last, a.Err, want)
			}
		}
	}
}
