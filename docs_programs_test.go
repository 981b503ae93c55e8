package weir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/pages"
	"github.com/weirlimit/weir/internal/testserver"
)

// TestProgramsInPages compiles and runs each whole program of each page as a reader
// would who pastes it. Only the address of Redis is another.
func TestProgramsInPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds programs")
	}
	n := 0
	for _, page := range pages.All(t) {
		for _, b := range pages.Blocks(t, page) {
			if b.Language != "go" || !strings.HasPrefix(b.Text, "package main\n") {
				continue
			}
			n++
			text, want := b.Text, "granted, 2 remain\ngranted, 1 remain\ngranted, 0 remain\nrefused, retry after 20s\n"
			if strings.Contains(text, "127.0.0.1:6379") {
				text = strings.ReplaceAll(text, "127.0.0.1:6379", testserver.StartRedis(t).Addr())
				want = "true 99\n"
			}
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("go", "run", file).CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("%s:%d: %v, %q: want %q", page, b.Line, err, out, want)
			}
		}
	}
	if n < 2 {
		t.Errorf("%d programs were found", n)
	}
}
