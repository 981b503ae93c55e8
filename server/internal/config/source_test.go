package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/config"
)

// put writes files, by their names below a new folder, and returns the folder.
func put(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFilesOfAFolder reads each file of a folder once, by name, and follows links as
// Kubernetes makes them where it mounts a ConfigMap.
func TestFilesOfAFolder(t *testing.T) {
	t.Parallel()
	files := map[string]string{"..2026/link.yaml": "domain: linked"}
	for _, name := range []string{"a.yaml", "b.yml", "c.json", "d", "README", ".e.yaml", "sub/f.yaml", "sub/.g", ".sub/h.yaml", "..i.yaml", "..2026/a.yaml"} {
		files[name] = "domain: " + strings.TrimSuffix(filepath.Base(name), ".yaml")
	}
	dir := put(t, files)
	for name, target := range map[string]string{"..data": "..2026", "z.yaml": "..data/link.yaml", "linked-folder": "sub"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for which, want := range map[config.Files][]string{
		config.FilesYAML:   {"a", "b.yml", "f", "linked"},
		config.FilesAll:    {"README", "a", "b.yml", "c.json", "d", "f", "linked"},
		config.FilesHidden: {".e", "h", "README", "a", "b.yml", "c.json", "d", ".g", "f", "linked"},
	} {
		domains, err := config.Source{Paths: []string{dir, filepath.Join(dir, "a.yaml")}, Files: which}.Load()
		if err != nil {
			t.Errorf("%s: %v", which, err)
			continue
		}
		var got []string
		for _, d := range domains {
			got = append(got, d.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", which, diff)
		}
	}
}

// TestEveryFileCounts: a file that is no rules file refuses the whole folder
// where every file is one.
func TestEveryFileCounts(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{"a.yaml": "domain: a", "README": "# only a comment\n"})
	if _, err := load(dir); err != nil {
		t.Error(err)
	}
	_, err := config.Source{Paths: []string{dir}, Files: config.FilesAll}.Load()
	if err == nil || !strings.Contains(err.Error(), "README:1:1: the file is empty") {
		t.Errorf("got %v", err)
	}
	empty := t.TempDir()
	if _, err := (config.Source{Paths: []string{empty}, Files: config.FilesAll}).Load(); err == nil || !strings.Contains(err.Error(), "want at least one file") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestParseFiles(t *testing.T) {
	t.Parallel()
	for _, f := range []config.Files{config.FilesYAML, config.FilesAll, config.FilesHidden} {
		if got, err := config.ParseFiles(f.String()); err != nil || got != f {
			t.Errorf("%s: %v, %v", f, got, err)
		}
	}
	if _, err := config.ParseFiles("every"); err == nil || !strings.Contains(err.Error(), `"every"`) {
		t.Errorf("got %v", err)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{
		"1.yaml": "domain: d\ndescriptors: [{key: a, value: x*}, {key: b, descriptors: [{key: c}]}]",
		"2.yaml": "domain: d\ndescriptors: [{key: a, value: x}, {key: a}]",
		"3.yaml": "domain: e\ndescriptors: [{key: a}]",
	})
	if _, err := load(dir); err == nil || !strings.Contains(err.Error(), `2.yaml:1:1: domain "d" again; want one file a domain; `+filepath.Join(dir, "1.yaml")+":1 has it too") {
		t.Errorf("not merged: %v", err)
	}
	source := config.Source{Paths: []string{dir}, Merge: true}
	domains, err := source.Load()
	if err != nil || len(domains) != 2 {
		t.Fatalf("%v, %v", domains, err)
	}
	var got []string
	for _, d := range domains[0].Descriptors {
		got = append(got, d.Key+"_"+d.Value)
	}
	if diff := cmp.Diff([]string{"a_x*", "b_", "a_x", "a_"}, got); diff != "" {
		t.Error(diff)
	}
	// Nested lists are not merged: the entry itself stands twice.
	if err := os.WriteFile(filepath.Join(dir, "4.yaml"), []byte("domain: d\ndescriptors: [{key: b, descriptors: [{key: e}]}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = source.Load()
	want := `4.yaml:2:15: key "b" without value again in the same domain; want each pair once; ` + filepath.Join(dir, "1.yaml") + ":2 has it too"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestLoadIsOfOneTime swaps a folder of two files as fast as it can: what is
// loaded is never one file of the one and another of the other revision.
func TestLoadIsOfOneTime(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, revision := range []string{"r1", "r2", "r3"} {
		files[revision+"/a.yaml"] = "domain: " + revision + "-a"
		files[revision+"/b.yaml"] = "domain: " + revision + "-b"
	}
	dir := put(t, files)
	current := filepath.Join(dir, "current")
	flip := func(n int) error {
		return errors.Join(os.Symlink([]string{"r1", "r2", "r3"}[n%3], current+".new"), os.Rename(current+".new", current))
	}
	if err := flip(0); err != nil {
		t.Fatal(err)
	}
	done, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			if err := flip(n); err != nil {
				failed <- err
				return
			}
		}
	}()
	loaded := 0
	for range 500 {
		domains, err := load(current)
		if err != nil {
			continue // The files changed all the time, which it says.
		}
		loaded++
		if one, other := domains[0].Name, domains[1].Name; one[:2] != other[:2] {
			t.Errorf("loaded %s together with %s", one, other)
		}
	}
	close(done)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of 500 loads", loaded)
}

// TestFingerprint: what is told apart is what was read, not when.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	dir := put(t, map[string]string{"a.yaml": "domain: a"})
	source := config.Source{Paths: []string{dir}}
	file := filepath.Join(dir, "a.yaml")
	first := source.Read().Fingerprint()
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change("domain: b")
	if source.Read().Fingerprint() == first {
		t.Error("another content has the same fingerprint")
	}
	change("domain: a")
	if source.Read().Fingerprint() != first {
		t.Error("the same content has another fingerprint")
	}
	if err := os.Rename(file, filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if source.Read().Fingerprint() == first {
		t.Error("another name has the same fingerprint")
	}
	reading := source.Read()
	change("domain: [")
	if domains, err := reading.Domains(); err != nil || len(domains) != 1 || domains[0].Name != "a" {
		t.Errorf("a reading changed after it was made: %v, %v", domains, err)
	}
}

// TestFilesTogether bounds what a load holds in memory.
func TestFilesTogether(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for n := range 5 {
		files[string(rune('a'+n))+".yaml"] = "domain: " + string(rune('a'+n)) + "\n#" + strings.Repeat("x", config.MaxFileBytes-100)
	}
	if _, err := load(put(t, files)); err == nil || !strings.Contains(err.Error(), "e.yaml: the files are too large; want at most 33554432 bytes") {
		t.Errorf("got %v", err)
	}
}
