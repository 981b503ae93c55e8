package override_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/layer/override"
)

// raise adds units to the limit of the key "ann".
func raise(t testing.TB, taker *override.Layer, id string, units int64, until time.Time) {
	t.Helper()
	if err := taker.Set(override.Override{Key: "ann", Until: until, Raise: &override.Raise{ID: id, Units: units}}); err != nil {
		t.Fatal(err)
	}
}

// TestRaise wants raises to add to the limit of a key or to its override until each ends or is
// ended, and what was used to stay used.
func TestRaise(t *testing.T) {
	t.Parallel()
	limit := weir.Limit{Name: "user", Algorithm: weir.FixedWindow, Count: 200, Period: 720 * time.Hour, TimeZone: "UTC"}.MustCompile()
	taker, clock := place(override.Options{})
	start := clock.Now()
	inAll := func(want, remaining int64) {
		t.Helper()
		d := charge(t, taker, "ann", limit, 0)
		count := limit.Count
		if d.Limit != nil {
			count = d.Limit.Count
		}
		if count != want || d.Remaining != remaining {
			t.Errorf("%d, of which %d remain; want %d and %d", count, d.Remaining, want, remaining)
		}
	}
	if !charge(t, taker, "ann", limit, 180).Allowed() || charge(t, taker, "ann", limit, 21).Allowed() {
		t.Fatal("180 of 200, and 21 more")
	}
	raise(t, taker, "one", 50, start.Add(time.Hour))
	inAll(250, 70)
	if !charge(t, taker, "ann", limit, 50).Allowed() {
		t.Error("230 of 250 are refused")
	}
	raise(t, taker, "two", 20, start.Add(2*time.Hour))
	inAll(270, 40)
	raise(t, taker, "two", 30, start.Add(2*time.Hour))
	inAll(280, 50)
	// An override sets, and a raise adds to it; a block and an allowance stand alone.
	set(t, taker, "ann", weir.Limit{Count: 300, Period: limit.Period}, start.Add(3*time.Hour))
	inAll(380, 150)
	set(t, taker, "ann", weir.PerSecond(0), start.Add(3*time.Hour))
	if charge(t, taker, "ann", limit, 1).Allowed() {
		t.Error("a raise opened a blocked key")
	}
	if err := taker.Set(override.Override{Key: "ann", Until: start.Add(3 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if !charge(t, taker, "ann", limit, 10_000).Allowed() {
		t.Error("a raise bounds a key without a limit")
	}
	if !taker.Delete("ann") || taker.Delete("ann") {
		t.Error("an override was not there, or twice")
	}
	inAll(280, 50)
	clock.Advance(time.Hour)
	inAll(230, 0)
	if two := (override.Override{Key: "ann", Raise: &override.Raise{ID: "two"}}); !taker.End(two) || taker.End(two) {
		t.Error("a raise was not there, or twice")
	}
	inAll(200, 0)
	if charge(t, taker, "ann", limit, 1).Allowed() {
		t.Error("230 of 200 are used, and 1 more is granted")
	}
	// A raise that outlives the month counts once in the new one.
	raise(t, taker, "three", 50, start.Add(60*24*time.Hour))
	clock.Advance(32 * 24 * time.Hour)
	inAll(250, 250)
	raise(t, taker, "four", algo.MaxWindow, start.Add(60*24*time.Hour))
	inAll(algo.MaxWindow, algo.MaxWindow)
}

// TestRaiseOfOthers wants limits that nothing can be added to left as they are.
func TestRaiseOfOthers(t *testing.T) {
	t.Parallel()
	all := limits()
	refused := weir.Limit{Name: "counted", Algorithm: weir.FixedWindow, ChargeRefused: true, Count: 10, Period: time.Hour}.MustCompile()
	for _, limit := range append(all, refused, weir.Limit{Algorithm: weir.FixedWindow, Period: time.Hour}.MustCompile()) {
		taker, clock := place(override.Options{})
		raise(t, taker, "one", 5, clock.Now().Add(time.Minute))
		want := limit.Count > 0 && override.Raisable(limit)
		if got := charge(t, taker, "ann", limit, 0).Limit; (got != nil) != want {
			t.Errorf("%v: %v, want a raised limit: %v", limit, got, want)
		}
	}
	for _, r := range []override.Raise{{Units: 1}, {ID: "x"}, {ID: "x", Units: -1}, {ID: "x", Units: algo.MaxWindow + 1}} {
		taker, clock := place(override.Options{})
		if err := taker.Set(override.Override{Key: "ann", Until: clock.Now().Add(time.Hour), Raise: &r}); !errors.Is(err, weir.ErrInvalid) || taker.Raises() != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestRaisesLikeAMap compares random histories of raises and overrides with a map of their names:
// no one is lost or stays, and as many fit as the bound says.
func TestRaisesLikeAMap(t *testing.T) {
	t.Parallel()
	const most = 60
	layer, clock := place(override.Options{Max: most})
	rng := rand.New(rand.NewPCG(3, 4))
	limit := weir.PerHour(10).MustCompile()
	want := map[string]override.Override{}
	for step := range 6000 {
		maps.DeleteFunc(want, func(_ string, o override.Override) bool { return !clock.Now().Before(o.Until) })
		o := override.Override{Key: fmt.Sprint("key", rng.IntN(20)), Limit: limit, Until: clock.Now().Add(time.Duration(1+rng.IntN(60_000)) * time.Millisecond)}
		if n := rng.IntN(6); n > 0 {
			o.Limit, o.Raise = nil, &override.Raise{ID: fmt.Sprint(n), Units: int64(1 + rng.IntN(9))}
		}
		_, had := want[o.Name()]
		switch n := rng.IntN(20); {
		case n == 0:
			clock.Advance(time.Duration(rng.IntN(5000)) * time.Millisecond)
			continue
		case n < 4:
			if delete(want, o.Name()); layer.End(o) != had {
				t.Fatalf("step %d: End(%q) is not %v", step, o.Name(), had)
			}
		case n == 4:
			layer.Replace(slices.Collect(maps.Values(want)))
		default:
			full := !had && len(want) == most
			if err := layer.Set(o); errors.Is(err, weir.ErrInvalid) != full {
				t.Fatalf("step %d: %d overrides, set %q: %v", step, len(want), o.Name(), err)
			} else if !full {
				want[o.Name()] = o
			}
		}
		got := map[string]override.Override{}
		for _, o := range append(layer.List(), layer.Raises()...) {
			got[o.Name()] = o
		}
		if len(got) != len(want) || len(got) != len(layer.List())+len(layer.Raises()) {
			t.Fatalf("step %d: %d overrides, want %d", step, len(got), len(want))
		}
		for name, o := range want {
			if other := got[name]; !other.Until.Equal(o.Until) || o.Raise != nil && other.Raise.Units != o.Raise.Units {
				t.Fatalf("step %d: %q is %+v, want %+v", step, name, other, o)
			}
		}
	}
}
