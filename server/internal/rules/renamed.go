package rules

import "github.com/weirlimit/weir/server/internal/config"

// A Renamed limit seems to have got another name, under which it has used nothing.
type Renamed struct {
	Rule     string // its path
	At       config.Position
	Old, New string
}

// RenamedSince returns the limits of rules with an algorithm of an earlier set that have another name now,
// and start fresh because they do not keep the keys of the earlier one.
func (s *Set) RenamedSince(earlier *Set) []Renamed {
	before := map[string]*Rule{}
	for _, r := range earlier.rules {
		before[r.Path] = r
	}
	var all []Renamed
	for _, r := range s.rules {
		old := before[r.Path]
		if old == nil || !r.Grouped || !old.Grouped {
			continue
		}
		gone, came := without(old, r), without(r, old)
		for i := range min(len(gone), len(came)) {
			all = append(all, Renamed{r.Path, r.At, gone[i].Name, came[i].Name})
		}
	}
	return all
}

// without returns the limits of a rule whose keys the other rule does not have.
func without(r, other *Rule) []*Limit {
	has := map[string]bool{}
	for _, l := range other.Limits {
		has[l.suffix] = true
	}
	var all []*Limit
	for _, l := range r.Limits {
		if l.Budget == nil && !has[l.suffix] {
			all = append(all, l)
		}
	}
	return all
}
