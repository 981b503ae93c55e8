package topk_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/server/internal/topk"
)

// TestCounter: counts are never too low, too high by at most their error, and every key
// that has more than its share is there. A key that comes anew has no value.
func TestCounter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 8).Draw(t, "most")
		c, exact, total := topk.New[int](most), map[string]uint64{}, uint64(0)
		for _, k := range rapid.SliceOfN(rapid.IntRange(0, 40), 0, 400).Draw(t, "keys") {
			name, n := fmt.Sprint(k*k/40), uint64(k%3)+1
			key := c.Add(name, n)
			exact[name] += n
			total += n
			if key == nil {
				continue
			}
			if key.Value++; key.Name != name || key.Value > 1 && key.Count-key.Error < uint64(key.Value) {
				t.Fatalf("%+v", key)
			}
		}
		kept := map[string]bool{}
		for _, k := range c.Keys() {
			kept[k.Name] = true
			if k.Count < exact[k.Name] || k.Count-k.Error > exact[k.Name] || k.Error > total/uint64(most) {
				t.Fatalf("%+v, exactly %d", k, exact[k.Name])
			}
		}
		for name, count := range exact {
			if count > total/uint64(most) && !kept[name] {
				t.Fatalf("%q has %d of %d and is not kept", name, count, total)
			}
		}
		if len(kept) > most || c.Dropped() != (len(exact) > most) {
			t.Fatalf("%d keys kept of %d, at most %d; dropped: %v", len(kept), len(exact), most, c.Dropped())
		}
	})
}
