// Package override gives single keys other limits at run time, each until an
// instant: a customer who was promised more for a day, a key to block for an
// hour, one to let pass while something is repaired. It wraps any [weir.Taker].
package override

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// An Override is what one key has instead of its limit, until an instant.
type Override struct {
	// Key is the charge's: a [weir.Limiter] of several limits charges its key
	// followed by "#" and the limit's name, or its place from 0 on.
	Key string
	// Limit says with its Count, Period and Burst what holds instead; the key's
	// own limit says everything else, see [Fit]. A Count of 0 blocks the key: it
	// refuses every take. Nil: no limit at all, every take is granted and
	// charges nothing.
	Limit *weir.Limit
	// Until is when the key's own limit holds again.
	Until time.Time
}

// A Change is an override that was made, or that was ended before its time.
type Change struct {
	Override
	// Ended overrides have nothing but a Key.
	Ended bool
}

// ErrFull is the error of an [Announcer] that has room for no more.
var ErrFull = errors.New("override: the instances have as many overrides as there may be")

// An Announcer tells other instances of a change that was made here. An error,
// other than [ErrFull], says that they may not know yet.
type Announcer interface {
	Announce(ctx context.Context, c Change) error
}

// A Taker asks another one, with other limits for the keys that have overrides.
// Overrides are its own: they are in no store, and each process has its own. It
// is safe for concurrent use; a Take while there is no override costs one atomic
// load. Create it with Wrap.
//
// Where a charge came under an override, its Limit afterwards is the one that
// decided.
type Taker struct {
	next weir.Taker
	max  int
	now  func() time.Time

	mu sync.Mutex // held by writers
	// current is replaced and never written to; nil if there is none.
	current atomic.Pointer[overrides]
}

// overrides are those of each key.
type overrides map[string]*entry

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

// Set puts an override in force, in the place of the key's last one. It acts on
// the next charge, and on the state that there is: limits say what may be used,
// states what was, so that nothing used is forgotten, now or when the override
// ends.
//
// The error is a [*weir.InvalidError]: of the limit, of an instant that has
// passed, or, with the field overrides, because there are as many as Options.Max
// allows.
func (t *Taker) Set(o Override) error {
	if o.Limit != nil {
		compiled, err := o.Limit.Compile()
		if err != nil {
			return err
		}
		o.Limit = compiled
	}
	if len(o.Key) > weir.MaxKeyBytes {
		return &weir.InvalidError{
			Field: "key", Value: fmt.Sprintf("%d bytes", len(o.Key)), Want: fmt.Sprintf("at most %d bytes", weir.MaxKeyBytes),
		}
	}
	now := t.now()
	if !now.Before(o.Until) {
		return &weir.InvalidError{Field: "until", Value: o.Until.Format(time.RFC3339), Want: "an instant that is still to come"}
	}
	return t.change(now, func(all overrides) error {
		if all[o.Key] == nil && len(all) >= t.max {
			return tooMany(len(all)+1, t.max)
		}
		all[o.Key] = &entry{Override: o}
		return nil
	})
}

// Room returns the error that Set has where more keys are to get overrides than
// there is room for, nil if there is.
func (t *Taker) Room(keys int) error {
	if n := len(t.List()) + keys; keys > 0 && n > t.max {
		return tooMany(n, t.max)
	}
	return nil
}

func tooMany(n, most int) error {
	return &weir.InvalidError{Field: "overrides", Value: strconv.Itoa(n), Want: fmt.Sprintf("at most %d at a time", most)}
}

// Delete ends the override of a key, and reports whether there was one.
func (t *Taker) Delete(key string) bool {
	found := false
	// The change has no error.
	_ = t.change(t.now(), func(all overrides) error {
		found = all[key] != nil
		delete(all, key)
		return nil
	})
	return found
}

// Replace puts a list of overrides in force and ends all others, at one instant.
// It passes over what Set would refuse, and over what is beyond Options.Max. It
// is for lists that were good when they were made: see package
// override/shared.
func (t *Taker) Replace(list []Override) {
	now := t.now()
	// The change has no error.
	_ = t.change(now, func(all overrides) error {
		clear(all)
		for _, o := range list {
			if len(all) == t.max || !now.Before(o.Until) || o.Limit != nil && o.Limit.Rule() == nil {
				continue
			}
			all[o.Key] = &entry{Override: o}
		}
		return nil
	})
}

// Get returns the override of a key; false if it has none.
func (t *Taker) Get(key string) (Override, bool) {
	if e := t.snapshot()[key]; e != nil && t.now().Before(e.Until) {
		return e.Override, true
	}
	return Override{}, false
}

// List returns the overrides in force, by key.
func (t *Taker) List() []Override {
	now := t.now()
	var list []Override
	for _, e := range t.snapshot() {
		if now.Before(e.Until) {
			list = append(list, e.Override)
		}
	}
	slices.SortFunc(list, func(a, b Override) int { return cmp.Compare(a.Key, b.Key) })
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
	for key, e := range t.snapshot() {
		if now.Before(e.Until) {
			all[key] = e
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
