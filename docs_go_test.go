package weir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// goInPages returns the Go of all pages: whole programs, or pieces of them.
func goInPages(t *testing.T, programs bool) (all []pages.Block) {
	t.Helper()
	for _, page := range pages.All(t) {
		for _, b := range pages.Blocks(t, page) {
			if b.Language == "go" && strings.HasPrefix(b.Text, "package main\n") == programs {
				all = append(all, b)
			}
		}
	}
	return all
}

// TestGoInPages demands that all Go of all pages stands in files that are compiled
// and run: in examples, tests and programs.
func TestGoInPages(t *testing.T) {
	t.Parallel()
	var files []string
	for _, path := range goFiles(t) {
		if path == "docs_go_test.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, string(text))
	}
	blocks := goInPages(t, false)
	for _, b := range blocks {
		if !stands(files, b.Text) {
			t.Errorf("%s:%d: no file has this code", b.Page, b.Line)
		}
	}
	if len(blocks) < 20 || stands(files, "limiter := weir.None()\n") {
		t.Errorf("%d pieces of code were found", len(blocks))
	}
}

// stands says whether code is in one of the files, at some depth.
func stands(files []string, code string) bool {
	for range 4 {
		for _, file := range files {
			if strings.Contains(file, "\n"+code) {
				return true
			}
		}
		code = "\t" + strings.ReplaceAll(strings.TrimSuffix(code, "\n"), "\n", "\n\t") + "\n"
		code = strings.ReplaceAll(code, "\n\t\n", "\n\n")
	}
	return false
}

// TestProgramsInPages compiles and runs each whole program of each page as a reader
// would who pastes it. Only the address of Redis is another.
func TestProgramsInPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds programs")
	}
	programs := goInPages(t, true)
	for _, b := range programs {
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
			t.Errorf("%s:%d: %v, %q: want %q", b.Page, b.Line, err, out, want)
		}
	}
	if len(programs) < 2 {
		t.Errorf("%d programs were found", len(programs))
	}
}
