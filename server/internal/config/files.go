package config

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/server/internal/settingfile"
)

// loader goes through the files of a source.
type loader struct {
	source   Source
	files    []file
	texts    []text          // of the files, in their order
	prices   map[string]text // the price files that they name, by their paths
	seen     map[string]bool
	loaded   []*Domain
	domains  map[string]*Domain
	problems Problems
}

// file is a rules file and its path without links, so that a link that is swapped during
// the load does not mix the files of two folders.
type file struct{ name, real string }

// text is the content of a file, or the reason why it could not be read.
type text struct {
	content string
	reason  string
}

// find lists the files of a source, or the mistakes in the paths.
func (s Source) find() *loader {
	l := &loader{source: s, seen: map[string]bool{}}
	if len(s.Paths) == 0 {
		l.fail("", "no rules file", "the path of a file or a folder")
	}
	for _, path := range s.Paths {
		l.path(path)
	}
	if len(l.files) > maxFiles {
		l.fail(l.files[maxFiles].name, "too many files", fmt.Sprintf("at most %d", maxFiles))
		l.files = nil
	}
	return l
}

// scan finds and reads the files of a source.
func (s Source) scan() *loader {
	l := s.find()
	size := 0
	for _, f := range l.files {
		t := read(f.real)
		if size += len(t.content); size > maxBytes {
			l.fail(f.name, "the files are too large", fmt.Sprintf("at most %d bytes in all files together", maxBytes))
			l.files = nil
			break
		}
		l.texts = append(l.texts, t)
	}
	l.readPrices(size)
	return l
}

// same reports whether two scans of a source found the same files and contents.
func (l *loader) same(other *loader) bool {
	return slices.Equal(l.files, other.files) && slices.Equal(l.texts, other.texts) && maps.Equal(l.prices, other.prices) && slices.Equal(l.problems, other.problems)
}

func (l *loader) fail(file, what, want string) {
	l.problems = append(l.problems, Problem{File: file, What: what, Want: want})
}

// path adds the files of a path that the caller named.
func (l *loader) path(path string) {
	real, err := filepath.EvalSymlinks(path)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(real)
	}
	if err != nil {
		l.fail(path, settingfile.Reason(err), "a file or a folder that can be read")
		return
	}
	if !info.IsDir() {
		l.add(file{path, real})
		return
	}
	before := len(l.files)
	l.folder(file{path, real})
	if len(l.files) == before {
		l.fail(path, "no rules file in this folder", l.source.Files.want())
	}
}

func (l *loader) folder(at file) {
	entries, err := os.ReadDir(at.real)
	if err != nil {
		l.fail(at.name, settingfile.Reason(err), "a folder that can be read")
	}
	for _, entry := range entries {
		f := file{filepath.Join(at.name, entry.Name()), filepath.Join(at.real, entry.Name())}
		switch {
		case !l.source.Files.visible(entry.Name()):
		case entry.IsDir():
			l.folder(f)
		case l.source.Files.isRules(f.real):
			l.add(f)
		}
	}
}

// visible reports whether to read a name in a folder. Kubernetes begins the names of
// the folders that it swaps in a mount with two dots, and links the files from outside.
func (f Files) visible(name string) bool {
	if f == FilesHidden {
		return !strings.HasPrefix(name, "..")
	}
	return !strings.HasPrefix(name, ".")
}

// isRules reports whether a name in a folder is that of a rules file. A broken link is
// one, so that the mistake is reported.
func (f Files) isRules(name string) bool {
	if ext := filepath.Ext(name); f == FilesYAML && ext != ".yaml" && ext != ".yml" {
		return false
	}
	info, err := os.Stat(name)
	return err != nil || info.Mode().IsRegular()
}

// add takes a file, once.
func (l *loader) add(f file) {
	if clean := filepath.Clean(f.name); !l.seen[clean] {
		l.seen[clean] = true
		l.files = append(l.files, f)
	}
}

func (l *loader) load(name string, t text) {
	if t.reason != "" {
		l.fail(name, t.reason, "a file that can be read")
		return
	}
	p := &parser{file: name, overlay: l.source.Overlay, prices: l.prices}
	if p.prices == nil {
		p.prices = map[string]text{}
	}
	l.take(p.parse([]byte(t.content)))
}

// take accepts a domain, unless it has mistakes.
func (l *loader) take(domain *Domain, problems Problems) {
	l.problems = append(l.problems, problems...)
	if len(problems) == 0 {
		l.accept(domain)
	}
}

func (l *loader) accept(d *Domain) {
	first := l.domains[d.Name]
	switch {
	case first == nil:
		l.domains[d.Name] = d
		l.loaded = append(l.loaded, d)
	case l.source.Merge:
		l.merge(first, d)
	default:
		l.again(d.At, "domain "+quote(d.Name)+" again", "one file a domain", first.At)
	}
}

// merge adds the entries of another file to a domain.
func (l *loader) merge(first, d *Domain) {
	taken := make(map[[2]string]Position, len(first.Descriptors))
	for _, e := range first.Descriptors {
		taken[[2]string{e.Key, e.Value}] = e.At
	}
	for _, e := range d.Descriptors {
		if at, again := taken[[2]string{e.Key, e.Value}]; again {
			l.again(e.At, entryText(e)+" again in the same domain", "each pair once", at)
		}
	}
	for _, b := range d.Budgets {
		if i := slices.IndexFunc(first.Budgets, func(a *Budget) bool { return a.Name == b.Name }); i >= 0 {
			l.again(b.At, "budget "+quote(b.Name)+" again in the same domain", "each budget once", first.Budgets[i].At)
		}
	}
	switch {
	case len(d.Models) == 0:
	case len(first.Models) > 0:
		l.again(d.Models[0].At, "prices again in the same domain", "prices once", first.Models[0].At)
	default:
		first.Models, first.AsOf = d.Models, d.AsOf
	}
	switch none := (Position{}); {
	case d.Calls.At == none:
	case first.Calls.At != none:
		l.again(d.Calls.At, "calls again in the same domain", "calls once", first.Calls.At)
	default:
		first.Calls = d.Calls
	}
	first.Descriptors = append(first.Descriptors, d.Descriptors...)
	for _, problem := range quotaOrders(first.Descriptors) {
		if !slices.Contains(l.problems, problem) {
			l.problems = append(l.problems, problem)
		}
	}
	first.Budgets = append(first.Budgets, d.Budgets...)
	first.overlay = append(first.overlay, d.overlay...)
}

// again reports something that another file has already.
func (l *loader) again(at Position, what, want string, first Position) {
	l.problems = append(l.problems, at.problem(what, fmt.Sprintf("%s; %s has it too", want, first.line())))
}

// read reads a file up to the size that is too large.
func read(name string) text {
	content, err := settingfile.Read(name, MaxFileBytes)
	if err != nil {
		return text{reason: settingfile.Reason(err)}
	}
	return text{content: string(content)}
}

// A Resource is a domain that was not read from a file.
type Resource struct {
	// Name stands in problems and positions.
	Name string
	// Root holds the domain as a rules file would.
	Root *yaml.Node
	// Path describes the node with that Line, as "descriptors[0].key".
	Path func(line int) string
}

// Resources checks domains that were not read from files, as [Source.Load] checks
// files, and changes them by the overlay, which may be nil. With merge, several
// resources may name one domain. The error is of type [Problems].
func Resources(list []Resource, merge bool, overlay *Overlay) ([]*Domain, error) {
	l := &loader{source: Source{Merge: merge}, domains: map[string]*Domain{}}
	for _, r := range list {
		// No alias repeats a node, so that the work is bounded by the tree.
		p := &parser{file: r.Name, pathOf: r.Path, most: math.MaxInt, overlay: overlay}
		l.take(p.read(r.Root))
	}
	return l.finish()
}

// finish returns the domains, once all of each is known. The error is of type [Problems].
func (l *loader) finish() ([]*Domain, error) {
	if len(l.problems) == 0 {
		for _, d := range l.loaded {
			l.problems = append(l.problems, d.settleInsteads()...)
		}
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return l.loaded, nil
}
