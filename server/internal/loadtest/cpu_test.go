package loadtest_test

import (
	"os"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/loadtest"
)

// TestCPUTimeOfWork works until both figures show it.
func TestCPUTimeOfWork(t *testing.T) {
	t.Parallel()
	own := loadtest.OwnCPU()
	of, err := loadtest.CPUOf(os.Getpid())
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		now, err := loadtest.CPUOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now >= of+50*time.Millisecond && loadtest.OwnCPU() >= own+50*time.Millisecond {
			return
		}
	}
	t.Error("20 s of work do not show")
}

func TestCPUTimeOfMissingProcess(t *testing.T) {
	t.Parallel()
	if got, err := loadtest.CPUOf(-1); err == nil {
		t.Errorf("process -1 has used %v", got)
	}
}
