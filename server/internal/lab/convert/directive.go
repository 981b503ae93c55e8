package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/internal/settingfile"
)

// Bounds of what is read, so that no text costs more than a large honest one.
const (
	maxFileBytes  = 4 << 20
	maxDirectives = 200_000
	maxNesting    = 32
)

// A position is a line of a file.
type position struct {
	file string
	line int
}

func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// A directive is one statement of a configuration.
type directive struct {
	at    position
	words []string // its name and its arguments, without quotes
	block []directive
}

func (d *directive) name() string { return d.words[0] }

// A reader reads files and what they include.
type reader struct {
	// folder is the main file's: nginx looks there for what any file includes.
	folder string
	open   []string // the files being read, each included by the one before
	count  int
}

// read returns the directives of a configuration, with what it includes in place.
func read(file string) ([]directive, error) {
	r := &reader{folder: filepath.Dir(file)}
	return r.file(file)
}

func (r *reader) file(name string) ([]directive, error) {
	if slices.Contains(r.open, name) || len(r.open) == maxNesting {
		return nil, fmt.Errorf("%s includes itself", name)
	}
	text, err := settingfile.Read(name, maxFileBytes)
	if err != nil {
		return nil, unreadable(name, err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxFileBytes)
	}
	list, err := parse(name, string(text))
	if err != nil {
		return nil, err
	}
	r.open = append(r.open, name)
	defer func() { r.open = r.open[:len(r.open)-1] }()
	return r.included(list)
}

func unreadable(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// included puts the files that directives include in their places.
func (r *reader) included(list []directive) ([]directive, error) {
	var all []directive
	for _, d := range list {
		if r.count++; r.count > maxDirectives {
			return nil, fmt.Errorf("%s: more than %d directives", d.at, maxDirectives)
		}
		var err error
		if d.block, err = r.included(d.block); err != nil {
			return nil, err
		}
		if d.name() != "include" || len(d.words) != 2 {
			all = append(all, d)
			continue
		}
		inner, err := r.include(d)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

func (r *reader) include(d directive) ([]directive, error) {
	pattern := d.words[1]
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(r.folder, pattern)
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: include %s: %w", d.at, d.words[1], err)
	}
	if len(files) == 0 && !strings.ContainsAny(pattern, "*?[") {
		files = []string{pattern} // to say that it cannot be read
	}
	var all []directive
	for _, file := range files {
		list, err := r.file(file)
		if err != nil {
			return nil, fmt.Errorf("%s: include: %w", d.at, err)
		}
		all = append(all, list...)
	}
	return all, nil
}
