package cputime_test

import (
	"os"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/cputime"
)

// TestWorkIsTold works until both accounts say so.
func TestWorkIsTold(t *testing.T) {
	t.Parallel()
	own := cputime.Own()
	of, err := cputime.Of(os.Getpid())
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		now, err := cputime.Of(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now >= of+50*time.Millisecond && cputime.Own() >= own+50*time.Millisecond {
			return
		}
	}
	t.Error("20 s of work are not told")
}

func TestNoProcess(t *testing.T) {
	t.Parallel()
	if got, err := cputime.Of(-1); err == nil {
		t.Errorf("process -1 has used %v", got)
	}
}
