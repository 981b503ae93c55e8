package override_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestOverridesLikeAMap compares random histories of changes with a map: no key is missed, with
// any prefix, and as many fit as the bound says, whatever has ended.
func TestOverridesLikeAMap(t *testing.T) {
	t.Parallel()
	const most = 600
	clock := storetest.NewClock()
	layer := override.Wrap(idle{}, override.Options{Max: most, Now: clock.Now})
	rng := rand.New(rand.NewPCG(1, 2))
	key := func() string {
		n := rng.IntN(1000)
		return []string{"", "a:", "long prefix:"}[n%3] + fmt.Sprint(n)[rng.IntN(2):]
	}
	limit := weir.PerHour(10)
	want := map[string]time.Time{}
	for step := range 6000 {
		for k, until := range want {
			if !clock.Now().Before(until) {
				delete(want, k)
			}
		}
		switch n := rng.IntN(20); {
		case n == 0:
			clock.Advance(time.Duration(rng.IntN(5000)) * time.Millisecond)
			continue
		case n < 3:
			k := key()
			_, had := want[k]
			if delete(want, k); layer.Delete(k) != had {
				t.Fatalf("step %d: Delete(%q) is not %v", step, k, had)
			}
		case n == 3 && rng.IntN(40) == 0:
			clear(want)
			var list []override.Override
			for range rng.IntN(most) {
				o := override.Override{Key: key(), Until: clock.Now().Add(time.Duration(1+rng.IntN(9000)) * time.Millisecond)}
				list, want[o.Key] = append(list, o), o.Until
			}
			layer.Replace(list)
		default:
			o := override.Override{Key: key(), Limit: &limit, Until: clock.Now().Add(time.Duration(1+rng.IntN(60_000)) * time.Millisecond)}
			_, had := want[o.Key]
			err := layer.Set(o)
			if full := !had && len(want) == most; errors.Is(err, weir.ErrInvalid) != full {
				t.Fatalf("step %d: %d overrides, set %q: %v", step, len(want), o.Key, err)
			} else if !full {
				want[o.Key] = o.Until
			}
		}
		for range 10 {
			k := key()
			_, has := want[k]
			if o, found := layer.Get(k); found != has || found && !o.Until.Equal(want[k]) {
				t.Fatalf("step %d: Get(%q): %+v, %v", step, k, o, found)
			}
			for _, cut := range []int{0, strings.Index(k, ":") + 1, len(k)} {
				if has && !layer.Has(k[:cut], k[cut:]) {
					t.Fatalf("step %d: %q + %q has an override", step, k[:cut], k[cut:])
				}
			}
			if c := (weir.Charge{Key: k}); has && !layer.Concerns(&c) {
				t.Fatalf("step %d: %q is concerned", step, k)
			}
		}
		if step%500 == 0 && len(layer.List()) != len(want) {
			t.Fatalf("step %d: %d overrides, want %d", step, len(layer.List()), len(want))
		}
	}
	layer.Replace(nil)
	if layer.Has("", "9") {
		t.Error("an override is left")
	}
}
