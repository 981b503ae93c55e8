package weir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/pages"
)

// TestGoInPages demands that all Go of all pages stands in files that are compiled
// and run: in examples, tests and programs.
func TestGoInPages(t *testing.T) {
	t.Parallel()
	files := goFiles(t)
	n := 0
	for _, page := range pages.All(t) {
		for _, b := range pages.Blocks(t, page) {
			if b.Language != "go" || b.File == "before" || strings.HasPrefix(b.Text, "package main\n") {
				continue // another limiter's, or TestProgramsInPages
			}
			n++
			if !stands(files, b.Text) {
				t.Errorf("%s:%d: no file has this code", b.Page, b.Line)
			}
		}
	}
	if n < 20 || stands(files, "limiter := weir.None()\n") {
		t.Errorf("%d pieces of code were found", n)
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

// goFiles are the texts of all Go files but this one.
func goFiles(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || path == "docs_go_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
