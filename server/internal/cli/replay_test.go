package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimit/weir/server/internal/lab/accesslog"
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

// A log of a format with fixed fields need not be read to its end to find that it lacks
// a field.
func TestReplayUnknownFieldAtOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("domain: shop\ndescriptors:\n  - {key: client, rate_limit: {unit: minute, requests_per_unit: 3}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const lines = `192.0.2.1 - - [01/Mar/2024:10:00:00 +0000] "GET / HTTP/1.1" 200 5
192.0.2.1 - - [01/Mar/2024:10:01:00 +0000] "GET / HTTP/1.1" 200 5
`
	root := newRoot()
	root.SetArgs([]string{"replay", "-", "--config", file, "--descriptor", "shop client=$remot_addr"})
	root.SetIn(io.MultiReader(strings.NewReader(lines), iotest.ErrReader(errors.New("the whole log was read"))))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	const want = "descriptor is $remot_addr: want a field of the log: its first line has remote_addr, "
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s…", err, want)
	}
}
