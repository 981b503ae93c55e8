package acts_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// TestNames holds the values against the names that package weir gives its own.
func TestNames(t *testing.T) {
	t.Parallel()
	kinds := []weir.Kind{
		acts.KindTake, acts.KindRefund, acts.KindSettle, acts.KindRelease,
		acts.KindRenew, acts.KindReset, acts.KindRecord, acts.KindAmend,
	}
	hold(t, kinds, "take refund settle release renew reset record amend unknown")
	sources := []weir.Source{
		acts.SourceNone, acts.SourceLimit, acts.SourceStore, acts.SourceShadow, acts.SourceDenyCache,
		acts.SourceLease, acts.SourceFallback, acts.SourceFailOpen, acts.SourceFailClosed,
	}
	hold(t, sources, "none limit store shadow deny_cache lease fallback fail_open fail_closed unknown")
}

// hold fails if the texts of the values, and of the one after them, are not want.
func hold[T interface {
	~uint8
	fmt.Stringer
}](t *testing.T, values []T, want string) {
	t.Helper()
	values = append(slices.Clip(values), T(len(values)))
	got := ""
	for _, v := range values {
		got += " " + v.String()
	}
	if got[1:] != want {
		t.Errorf("%s, want %s", got[1:], want)
	}
}
