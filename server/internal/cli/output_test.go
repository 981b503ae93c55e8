package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/server/internal/config"
)

func TestPointAt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for _, test := range []struct {
		line   string
		column int
		want   string
	}{
		{"  key: user", 3, "      key: user\n      ^\n"},
		{"key: größe!", 11, "    key: größe!\n              ^\n"},
		{"\tkey:", 2, "     key:\n     ^\n"},
		{"a\x1b[2Jb", 6, "    a\ufffd[2Jb\n         ^\n"},
		{"ab", 3, "    ab\n      ^\n"},
		{"ab", 4, ""},
		{"ab", 0, ""},
		{long, 2, "    " + long[:shownColumns] + "…\n     ^\n"},
		{long, 150, ""},
	} {
		if got := pointAt(test.line, test.column); got != test.want {
			t.Errorf("%q at %d: got\n%s\nwant\n%s", test.line, test.column, got, test.want)
		}
	}
}

func TestPrintError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(file, []byte("domain: d\r\nfoo: 1\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, err := range map[string]error{
		"weir: nothing works\n": errors.New("weir: nothing works"),
		file + ":2:1: unknown; did you mean \"food\"?\n    foo: 1\n    ^\n" +
			"away.yaml: no such file\n" + "weir: 2 problems\n": &problemsFound{config.Problems{
			{File: file, Line: 2, Column: 1, What: "unknown", Suggestion: "food"},
			{File: "away.yaml", What: "no such file"},
		}},
		file + ":9:1: beyond\nweir: 1 problem\n": config.Problems{{File: file, Line: 9, Column: 1, What: "beyond"}},
	} {
		var got bytes.Buffer
		printError(&got, err)
		if got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &got, want)
		}
	}
}

func TestNewLogger(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ format, level, want string }{
		{"auto", "info", `"level":"INFO","msg":"hello"`}, // a buffer is no terminal
		{"json", "INFO", `"msg":"hello"`},
		{"text", "debug", "INF hello unreachable_for=4.001s\n"},
		{"json", "info", `"unreachable_for":"4.001s"`},
		{"json", "warn", ""},
	} {
		var got bytes.Buffer
		logger, err := newLogger(&got, test.format, test.level)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("hello", "unreachable_for", 4001*time.Millisecond)
		if !strings.Contains(got.String(), test.want) || test.want == "" && got.Len() > 0 {
			t.Errorf("%s, %s: got %q, want %q", test.format, test.level, &got, test.want)
		}
	}
}

// TestReachable: the printed calls work from the machine that prints them.
func TestReachable(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080",
		"[::]:8080":      "localhost:8080",
		"0.0.0.0:1":      "localhost:1",
		"[::1]:8080":     "[::1]:8080",
	} {
		if got := reachable(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

// TestHelp: every subcommand explains itself and shows how it is used.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, cmd := range everyCommand(newRoot()) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: no summary or no example", cmd.Name())
		}
		_, page, found := strings.Cut(cmd.Long, "\n\nMore: "+docs)
		if why := pages.Broken(t, "docs/README.md", page); !found || page == "" || why != "" {
			t.Errorf("%s: more at %q: %s", cmd.Name(), page, why)
		}
	}
	if code := Execute(context.Background(), []string{"check"}, io.Discard, io.Discard); code != ExitUsage {
		t.Errorf("check without a path: exit code %d, want %d", code, ExitUsage)
	}
}
