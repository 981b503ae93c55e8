package rules

import (
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

// failures are what limits answer while their store reaches no decision. Limits
// that keys have at run time instead of a rule's are other limits with the same
// name, and are found by it.
type failures struct {
	byLimit map[*weir.Limit]config.StoreFailure
	byName  map[limitName]config.StoreFailure
}

// A limitName is a limit's name behind what the keys of its domain begin with.
type limitName struct{ prefix, name string }

// note takes over the limits of a rule that names an algorithm.
func (f *failures) note(prefix string, r *Rule) {
	if f.byLimit == nil {
		f.byLimit, f.byName = map[*weir.Limit]config.StoreFailure{}, map[limitName]config.StoreFailure{}
	}
	for i, l := range r.Limits {
		if r.Grouped {
			f.byLimit[l] = r.OnStoreFailure[i]
			f.byName[limitName{prefix, l.Name}] = r.OnStoreFailure[i]
		}
	}
}

// OnStoreFailure returns what a charge is answered while the store reaches no
// decision; false if no rule that names an algorithm has its limit.
func (s *Set) OnStoreFailure(c *weir.Charge) (config.StoreFailure, bool) {
	if failure, ok := s.onFail.byLimit[c.Limit]; ok {
		return failure, true
	}
	end := strings.IndexByte(c.Key, '/')
	if end < 0 || len(s.onFail.byName) == 0 {
		return config.FailError, false
	}
	failure, ok := s.onFail.byName[limitName{c.Key[:end+1], c.Limit.Name}]
	return failure, ok
}
