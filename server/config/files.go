package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Load reads rules files, and of folders every *.yaml and *.yml file at any
// depth. Files and folders whose names begin with a dot are left out, as are
// folders behind symbolic links; so the mounts of Kubernetes work. It returns
// the domains in the order of the paths, a folder's by name. The error is of
// type [Problems] and holds the mistakes of all files.
func Load(paths ...string) ([]*Domain, error) {
	l := loader{seen: map[string]bool{}, domains: map[string]Position{}}
	if len(paths) == 0 {
		l.fail("", "no rules file", "the path of a file or a folder")
	}
	for _, path := range paths {
		l.path(path)
	}
	if len(l.files) > maxFiles {
		l.fail(l.files[maxFiles], "too many files", fmt.Sprintf("at most %d", maxFiles))
		l.files = nil
	}
	for _, file := range l.files {
		if l.load(file); l.rules > MaxRules {
			l.fail(file, "too many rules", fmt.Sprintf("at most %d descriptors in all files together", MaxRules))
			break
		}
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return l.loaded, nil
}

type loader struct {
	files    []string
	seen     map[string]bool
	loaded   []*Domain
	domains  map[string]Position
	rules    int
	problems Problems
}

func (l *loader) fail(file, what, want string) {
	l.problems = append(l.problems, Problem{File: file, What: what, Want: want})
}

// path takes a path that the caller named.
func (l *loader) path(path string) {
	info, err := os.Stat(path)
	if err != nil {
		l.fail(path, reason(err), "a file or a folder that can be read")
		return
	}
	if !info.IsDir() {
		l.add(path)
		return
	}
	before := len(l.files)
	l.folder(path)
	if len(l.files) == before {
		l.fail(path, "no rules file in this folder", "at least one *.yaml or *.yml file")
	}
}

func (l *loader) folder(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		l.fail(path, reason(err), "a folder that can be read")
	}
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), "."):
		case entry.IsDir():
			l.folder(name)
		case isRules(name):
			l.add(name)
		}
	}
}

// isRules reports whether the name in a folder is that of a rules file. A link
// that leads nowhere is one: it is a mistake to be told.
func isRules(name string) bool {
	if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
		return false
	}
	info, err := os.Stat(name)
	return err != nil || info.Mode().IsRegular()
}

// add takes a file, once.
func (l *loader) add(file string) {
	if clean := filepath.Clean(file); !l.seen[clean] {
		l.seen[clean] = true
		l.files = append(l.files, file)
	}
}

func (l *loader) load(file string) {
	text, err := read(file)
	if err != nil {
		l.fail(file, reason(err), "a file that can be read")
		return
	}
	domain, problems, rules := parse(file, text)
	l.rules += rules
	l.problems = append(l.problems, problems...)
	if len(problems) == 0 {
		l.accept(domain)
	}
}

func (l *loader) accept(d *Domain) {
	if first, taken := l.domains[d.Name]; taken {
		l.problems = append(l.problems, Problem{
			File: d.At.File, Line: d.At.Line, Column: d.At.Column,
			What: "domain " + quote(d.Name) + " again",
			Want: fmt.Sprintf("one file a domain; %s:%d has it too", first.File, first.Line),
		})
		return
	}
	l.domains[d.Name] = d.At
	l.loaded = append(l.loaded, d)
}

// read reads no more of a file than it takes to see that it is too large.
func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// reason is the error without the path, which the problem names already.
func reason(err error) string {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
