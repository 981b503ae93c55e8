package cli

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/accesslog"
)

func TestReplayProgress(t *testing.T) {
	t.Parallel()
	s := accesslog.Stats{Lines: 1200, Bytes: 3e6}
	for want, c := range map[string]struct{ read, size int64 }{
		"1200 lines, 3 MB, 25%, 30s left": {25, 100},
		"1200 lines, 3 MB, 100%, 0s left": {100, 90}, // the file has grown
		"1200 lines, 3 MB":                {3e6, 0},
	} {
		if got := replayProgress(s, c.read, c.size, 10*time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
