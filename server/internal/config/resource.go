package config

import (
	"math"

	yaml "go.yaml.in/yaml/v3"
)

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
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return l.loaded, nil
}
