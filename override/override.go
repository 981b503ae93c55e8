// Package override gives single keys other limits at run time, each until an
// instant: a customer who was promised more for a day, a key to block for an
// hour. It wraps any [weir.Taker].
package override

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// DefaultMax is how many overrides a Taker keeps by default.
const DefaultMax = 10_000

// Options are the settings of a [Taker]. The zero value is a good one.
type Options struct {
	// Max bounds the number of overrides. Zero: [DefaultMax].
	Max int
	// Now is the clock by which overrides end. Nil: the machine's.
	Now func() time.Time
}

// An Override is what one key has instead of a limit.
type Override struct {
	Key   string
	Limit *weir.Limit
	Until time.Time
}

// A Taker asks another one, with other limits for the keys that have overrides.
// Overrides are its own: they are in no store, and each process has its own. It
// is safe for concurrent use; a Take while there is no override costs one atomic
// load. Create it with Wrap.
type Taker struct {
	next weir.Taker
	max  int
	now  func() time.Time

	mu sync.Mutex // held by writers
	// current is replaced and never written to; nil if there is none.
	current atomic.Pointer[overrides]
}

type overrides map[name]Override

// name is what an override replaces: the limit of that name, for that key.
type name struct{ key, limit string }

// Wrap returns a Taker that asks next. The zero Options are good ones.
func Wrap(next weir.Taker, o Options) *Taker {
	t := &Taker{next: next, max: o.Max, now: o.Now}
	if t.max <= 0 {
		t.max = DefaultMax
	}
	if t.now == nil {
		t.now = time.Now
	}
	return t
}

// Set puts limit in the place of the limit that has the same Name and the same
// Algorithm in charges of that very key, until an instant. Another Set for the
// key and the name replaces it. The key is the charge's: a [weir.Limiter] of
// several limits charges its key followed by "#" and the limit's name, or its
// place from 0 on.
//
// The override acts on the next charge, and on the state that there is: limits
// say what may be used, states what was, so that nothing used is forgotten, now
// or when the override ends.
//
// A limit with a Count of 0 blocks the key: it refuses every take, whatever the
// Algorithm; what else is done to the key, such as settling and releasing, goes
// on under its own limit. [Unlimited] lets everything in.
//
// The error is a [*weir.InvalidError]: of the limit, of an instant that has
// passed, or because there are as many overrides as Options.Max allows.
func (t *Taker) Set(key string, limit weir.Limit, until time.Time) error {
	compiled, err := limit.Compile()
	if err != nil {
		return err
	}
	if len(key) > weir.MaxKeyBytes {
		return &weir.InvalidError{
			Field: "key", Value: fmt.Sprintf("%d bytes", len(key)), Want: fmt.Sprintf("at most %d bytes", weir.MaxKeyBytes),
		}
	}
	now := t.now()
	if !now.Before(until) {
		return &weir.InvalidError{Field: "until", Value: until.Format(time.RFC3339), Want: "an instant that is still to come"}
	}
	return t.change(now, func(all overrides) error {
		n := name{key, limit.Name}
		if _, replaces := all[n]; !replaces && len(all) >= t.max {
			return &weir.InvalidError{Field: "overrides", Value: fmt.Sprint(len(all) + 1), Want: fmt.Sprintf("at most %d at a time", t.max)}
		}
		all[n] = Override{Key: key, Limit: compiled, Until: until}
		return nil
	})
}

// Delete ends all overrides of a key, and reports whether there were any.
func (t *Taker) Delete(key string) bool {
	found := false
	// The change has no error.
	_ = t.change(t.now(), func(all overrides) error {
		for n := range all {
			if n.key == key {
				delete(all, n)
				found = true
			}
		}
		return nil
	})
	return found
}

// List returns the overrides in force, by key and name.
func (t *Taker) List() []Override {
	now := t.now()
	var list []Override
	for _, o := range t.snapshot() {
		if now.Before(o.Until) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b Override) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Limit.Name, b.Limit.Name))
	})
	return list
}

func (t *Taker) snapshot() overrides {
	if current := t.current.Load(); current != nil {
		return *current
	}
	return nil
}

// change replaces the overrides by a changed copy without those that have ended.
// An error leaves them as they are.
func (t *Taker) change(now time.Time, edit func(overrides) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(overrides, len(t.snapshot())+1)
	for n, o := range t.snapshot() {
		if now.Before(o.Until) {
			all[n] = o
		}
	}
	if err := edit(all); err != nil {
		return err
	}
	if len(all) == 0 {
		t.current.Store(nil)
	} else {
		t.current.Store(&all)
	}
	return nil
}
