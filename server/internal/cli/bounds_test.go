package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadersAreBounded: commands do not read more of a file than a good one can have. The file has
// no end worth waiting for, as /dev/zero.
func TestReadersAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	endless, rules := filepath.Join(dir, "endless.yaml"), filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(endless, []byte("key: value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(endless, 32<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rules, []byte("domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", endless},
		{"check", "--callers", endless},
		{"check", "--overlay", endless, rules},
		{"key", "get", "--admin", "http://127.0.0.1:1", "--admin-token-file", endless, "d", "a=b"},
	} {
		var out bytes.Buffer
		if code := Execute(context.Background(), args, &out, &out); code == 0 || !strings.Contains(out.String(), "too large") && !strings.Contains(out.String(), "larger than 1 MiB") {
			t.Errorf("%s: %d %.300s", strings.Join(args, " "), code, &out)
		}
	}
	var read pointedFile
	if line, ok := read.line(endless, 1); ok {
		t.Errorf("shows %q of a file that is too large", line)
	}
	if line, ok := read.line(rules, 3); !ok || !strings.Contains(line, "key: a") {
		t.Errorf("shows %q, %v", line, ok)
	}
}
