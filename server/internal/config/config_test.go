package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/server/internal/config"
)

// load reads the domains of files and folders.
func load(paths ...string) ([]*config.Domain, error) { return config.Source{Paths: paths}.Load() }

// TestBad compares, for each bad file, all that is said about it.
func TestBad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			_, err := load(file)
			var problems config.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("Load = %v", err)
			}
			golden := strings.TrimSuffix(file, "yaml") + "txt"
			got := strings.ReplaceAll(problems.Error(), "testdata/bad/", "") + "\n"
			if *pages.Update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAllFiles wants the mistakes of all files in one error.
func TestAllFiles(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"a.yaml": "domain: d\n", "b.yaml": "\ndomain: d\n", "c.yaml": "domain:\n", "d.yaml": strings.Repeat("#", config.MaxFileBytes+1),
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink("nowhere", at("e.yaml")); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	_, err := load(dir, "absent.yaml", empty)
	want := config.Problems{
		{File: "absent.yaml", What: "no such file or directory", Want: "a file or a folder that can be read"},
		{File: empty, What: "no rules file in this folder", Want: "at least one *.yaml or *.yml file"},
		{File: at("b.yaml"), Line: 2, Column: 1, What: `domain "d" again`, Want: "one file a domain; " + at("a.yaml") + ":1 has it too"},
		{File: at("c.yaml"), Line: 1, Column: 1, What: "domain is empty", Want: "the name of the domain"},
		{File: at("d.yaml"), What: "the file is too large", Want: "at most 8388608 bytes"},
		{File: at("e.yaml"), What: "no such file or directory", Want: "a file that can be read"},
	}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Error(diff)
	}
	if _, err := load(); err == nil {
		t.Error("Load of nothing found something")
	}
}
