package config

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// A Source says where the rules files are and how to combine them.
type Source struct {
	// Paths are files and folders. Folders are read at any depth, except behind
	// symbolic links.
	Paths []string
	// Files says which files of a folder are rules files.
	Files Files
	// Merge lets several files name one domain, whose top-level entries are then
	// those of all of them; no key and value may stand in two.
	Merge bool
	// Overlay changes limits as they are read. Nil: none.
	Overlay *Overlay
}

// Files says which files of a folder are rules files.
type Files uint8

const (
	// FilesYAML: *.yaml and *.yml, where neither the file's name nor a folder's
	// begins with a dot. The zero value.
	FilesYAML Files = iota
	// FilesAll: every file whose name does not begin with a dot.
	FilesAll
	// FilesHidden: every file, including those whose names begin with a dot. Names with
	// two dots are still hidden, because Kubernetes uses them for the folders that it
	// swaps in a mount.
	FilesHidden
)

var filesNames = []string{"yaml", "all", "hidden"}

// String returns the word for it in flags.
func (f Files) String() string {
	if int(f) < len(filesNames) {
		return filesNames[f]
	}
	return "unknown"
}

// ParseFiles is the reverse of [Files.String]. The error is a
// [*weir.InvalidError].
func ParseFiles(word string) (Files, error) {
	if i := slices.Index(filesNames, word); i >= 0 {
		return Files(i), nil
	}
	return 0, &weir.InvalidError{Field: "config files", Value: quote(word), Want: "one of " + strings.Join(filesNames, ", ")}
}

func (f Files) want() string {
	if f == FilesYAML {
		return "at least one *.yaml or *.yml file"
	}
	return "at least one file"
}

// maxScans bounds how often a source is read until two readings in a row agree.
const maxScans = 10

// A Reading is the content of a source's files at one time.
type Reading struct{ found *loader }

// Read reads the files until two readings agree, so that all files are from one time.
// [Reading.Domains] returns their mistakes.
func (s Source) Read() *Reading {
	l := s.scan()
	for range maxScans {
		again := s.scan()
		if l.same(again) {
			return &Reading{l}
		}
		l = again
	}
	l.fail(s.Paths[0], "the files change while they are read", "files that are left alone")
	return &Reading{l}
}

// Load is [Source.Read] and [Reading.Domains].
func (s Source) Load() ([]*Domain, error) { return s.Read().Domains() }

// Domains returns the domains in the order of the paths, a folder's by name. The
// error is of type [Problems] and holds the mistakes of all files.
func (r *Reading) Domains() ([]*Domain, error) {
	l := &loader{source: r.found.source, prices: r.found.prices, domains: map[string]*Domain{}, problems: slices.Clone(r.found.problems)}
	for i, f := range r.found.files {
		l.load(f.name, r.found.texts[i])
	}
	return l.finish()
}

// Prices returns the paths of the price files that the rules files name.
func (r *Reading) Prices() []string { return slices.Sorted(maps.Keys(r.found.prices)) }

// Fingerprint identifies a reading: the names and contents of the files, and the reasons
// why some cannot be read.
func (r *Reading) Fingerprint() [sha256.Size]byte {
	h := sha256.New()
	write := func(text string) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		_, _ = io.WriteString(h, text)
	}
	add := func(name string, t text) {
		write(name)
		write(t.content)
		write(t.reason)
	}
	for i, f := range r.found.files {
		add(f.name, r.found.texts[i])
	}
	for _, path := range r.Prices() {
		add(path, r.found.prices[path])
	}
	_, _ = io.WriteString(h, r.found.problems.Error())
	return [sha256.Size]byte(h.Sum(nil))
}

// A State is what the file system says of a source's files, without their contents.
type State struct {
	found *loader
	infos []fs.FileInfo // nil for a file that cannot be read
}

// State looks at the files and at the links to them, and so at files of prices.
func (s Source) State(prices ...string) State {
	state := State{found: s.find()}
	for _, path := range prices {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			real = path
		}
		state.found.files = append(state.found.files, file{path, real})
	}
	for _, f := range state.found.files {
		info, err := os.Stat(f.real)
		if err != nil {
			info = nil
		}
		state.infos = append(state.infos, info)
	}
	return state
}

// Same reports whether the files did not change between two states.
func (s State) Same(other State) bool {
	return slices.Equal(s.found.files, other.found.files) && slices.Equal(s.found.problems, other.found.problems) &&
		slices.EqualFunc(s.infos, other.infos, func(a, b fs.FileInfo) bool {
			if a == nil || b == nil {
				return a == b
			}
			return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
		})
}
