package traffic_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/traffic"
)

// TestModelUses wants what each caller used of each model, with the most requests first,
// and a bound for callers who invent names.
func TestModelUses(t *testing.T) {
	t.Parallel()
	var u traffic.ModelUses
	for range 300 {
		u.Settled("a", "m", map[string]int64{"requests": 1, "input": 3, "cached": 1, "output": 2, "usd": 5})
	}
	for i := range 10_000 {
		name := fmt.Sprint(i)
		u.Stream(name, name, 1)
		u.Settled(name, name, map[string]int64{"output": 1})
		u.Stream(name, name, -1)
	}
	u.Stream("b", "m", 1)
	u.Stream("a", "m", 1)
	top, left := u.Top(1)
	want := []traffic.ModelUse{{Key: "a", Model: "m", Requests: 300, Input: 900, Cached: 300, Output: 600, USD: 1500, Priced: true, Streams: 1}}
	if diff := cmp.Diff(want, top); diff != "" || left != 256 {
		t.Errorf("%d more; (-want +got):\n%s", left, diff)
	}
}
