package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/pages"
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

func TestGood(t *testing.T) {
	t.Parallel()
	domains, err := load("testdata/good")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range domains {
		names = append(names, d.Name)
	}
	if diff := cmp.Diff([]string{"algorithms", "budgets", "calendar", "5", "mongo_cps", "json", "llm", "otherwise", "shares", "shop"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	domains, err := load("testdata/folder", "testdata/folder/a.yaml")
	if err != nil || len(domains) != 2 || domains[0].Name != "a" || domains[1].Name != "b" {
		t.Fatalf("Load = %v, %v", domains, err)
	}
}

// TestMount reads a folder laid out as Kubernetes mounts a ConfigMap.
func TestMount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := filepath.Join(dir, "..2026_01_01")
	steps := []error{
		os.Mkdir(version, 0o755),
		os.WriteFile(filepath.Join(version, "x.yaml"), []byte("domain: x"), 0o644),
		os.Symlink("..2026_01_01", filepath.Join(dir, "..data")),
		os.Symlink("..data/x.yaml", filepath.Join(dir, "x.yaml")),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	domains, err := load(dir)
	if err != nil || len(domains) != 1 || domains[0].Name != "x" {
		t.Fatalf("Load = %v, %v", domains, err)
	}
}

// TestAllFiles wants the mistakes of all files in one error.
func TestAllFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := write("a.yaml", "domain: d\n"), write("b.yaml", "\ndomain: d\n")
	c, large := write("c.yaml", "domain:\n"), write("d.yaml", strings.Repeat("#", config.MaxFileBytes+1))
	if err := os.Symlink("nowhere", filepath.Join(dir, "e.yaml")); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	_, err := load(dir, "absent.yaml", empty)
	want := config.Problems{
		{File: "absent.yaml", What: "no such file or directory", Want: "a file or a folder that can be read"},
		{File: empty, What: "no rules file in this folder", Want: "at least one *.yaml or *.yml file"},
		{File: b, Line: 2, Column: 1, What: `domain "d" again`, Want: "one file a domain; " + a + ":1 has it too"},
		{File: c, Line: 1, Column: 1, What: "domain is empty", Want: "the name of the domain"},
		{File: large, What: "the file is too large", Want: "at most 8388608 bytes"},
		{File: filepath.Join(dir, "e.yaml"), What: "no such file or directory", Want: "a file that can be read"},
	}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Error(diff)
	}
	if _, err := load(); err == nil {
		t.Error("Load of nothing found something")
	}
}
