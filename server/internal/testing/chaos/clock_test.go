package chaos

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A steppedClock is the wall clock of a Redis, moved by what stands in a file. Its
// other clocks, and ours, go on as they do.
type steppedClock struct {
	t      *testing.T
	env    []string
	file   *os.File
	offset int64 // µs
}

// shim builds once what stands between Redis and the clock.
var shim = sync.OnceValues(func() (string, error) {
	source, path := filepath.Join("testdata", "clockshim.c"), filepath.Join(buildDir, "clockshim.so")
	out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", path, source, "-ldl").CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return path, err
})

func newSteppedClock(t *testing.T) *steppedClock {
	t.Helper()
	testserver.Require(t, "cc")
	library, err := shim()
	if err != nil {
		t.Fatalf("cc: %v", err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "offset"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	c := &steppedClock{t: t, file: file, env: []string{"LD_PRELOAD=" + library, "CLOCKSHIM_FILE=" + file.Name()}}
	c.step(0)
	return c
}

// step moves the clock, back if d is negative.
func (c *steppedClock) step(d time.Duration) {
	c.t.Helper()
	c.offset += d.Microseconds()
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.offset)), 0); err != nil {
		c.t.Fatal(err)
	}
}

// stepped steps the clock, once for each d.
func stepped(steps ...time.Duration) func(*world) {
	return func(w *world) {
		w.history.stepClock()
		for _, d := range steps {
			if d > 0 {
				w.history.lose()
			}
			w.clock.step(d)
			time.Sleep(struck / 2)
		}
	}
}

func (h *history) stepClock() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = true
}
