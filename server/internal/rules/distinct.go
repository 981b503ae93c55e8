package rules

import "github.com/weirlimit/weir"

// A keyBudget is how many keys of a limit are kept apart, and the key of all others.
type keyBudget struct {
	maxKeys  int
	overflow string
}

// budget notes how many keys the rule's limits have. The key that the others share
// is the rule's path where others have entries: some level of a path lacks its value,
// unless the rule has only one key.
func (s *Set) budget(r *Rule) {
	for i, l := range r.Limits {
		suffix := r.suffixes[i]
		if r.Shadow && r.Unenforced > 0 {
			// Keys that are only watched must not use up what others share.
			suffix += "#outside"
		}
		s.bounded = s.bounded || r.MaxKeys[i] > 0
		s.keys[l] = keyBudget{r.MaxKeys[i], bounded(r.Path, suffix, weir.MaxKeyBytes)}
	}
	if r.counter != nil {
		s.keys[r.counter] = s.keys[r.Limits[0]]
	}
}

// MaxKeys returns how many keys of one of the set's limits are kept apart, and the key
// that all others share. Where its rule does not say it, that is otherwise. 0 is any
// number, as for limits that are not the set's.
func (s *Set) MaxKeys(l *weir.Limit, otherwise int) (maxKeys int, overflow string) {
	if !s.bounded && otherwise == 0 {
		return 0, ""
	}
	b := s.keys[l]
	switch {
	case b.maxKeys == 0 && b.overflow != "":
		return otherwise, b.overflow
	default:
		return b.maxKeys, b.overflow
	}
}
