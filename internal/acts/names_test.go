package acts_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/acts"
)

// TestNames holds the values against the names that package weir gives its own.
func TestNames(t *testing.T) {
	t.Parallel()
	for value, want := range map[fmt.Stringer]string{
		acts.KindTake: "take", acts.KindRefund: "refund", acts.KindSettle: "settle", acts.KindRelease: "release",
		acts.KindRenew: "renew", acts.KindReset: "reset", acts.KindRecord: "record", acts.KindAmend: "amend",
		acts.KindWithdraw: "withdraw", acts.KindWithdraw + 1: "unknown",
		acts.SourceNone: "none", acts.SourceLimit: "limit", acts.SourceStore: "store", acts.SourceShadow: "shadow",
		acts.SourceDenyCache: "deny_cache", acts.SourceLease: "lease", acts.SourceFallback: "fallback",
		acts.SourceFailOpen: "fail_open", acts.SourceFailClosed: "fail_closed",
		acts.SourceFailClosed + 1: "unknown",
	} {
		if got := value.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
