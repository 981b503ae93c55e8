package dashboard

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
)

// TestRaiseIsShown wants a raise shown as what it adds, and not as a key without a limit.
func TestRaiseIsShown(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	none := weir.PerSecond(0)
	all, left := new(Dashboard).overrides([]override.Override{
		{Key: "k", Until: until, Limit: &none},
		{Key: "k", Until: until},
		{Key: "k", Until: until, Raise: &override.Raise{ID: "I", Units: 50_000_000, Meter: "usd"}},
	})
	for i, want := range []string{"blocked", "no limit", "$50 more (raise I)"} {
		if all[i].Limit != want || left != 0 {
			t.Errorf("%q, want %q", all[i].Limit, want)
		}
	}
}
