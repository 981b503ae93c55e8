package weir

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Override replaces one limit of a key until an instant.
type Override struct {
	// Name is the Name of the limit or, if it has none, its position among the limiter's
	// limits. It may be empty if there is only one.
	Name string
	// Limit gives another Count, Period and Burst; everything else remains as in the
	// key's own limit. A Count of 0 blocks the key. Nil: no limit; every take is granted
	// and charges nothing, neither now nor when a hold is settled. A guarantee of [Shares] can only be lowered or blocked.
	Limit *Limit
	// Until is the time from which the key's own limit applies again.
	Until time.Time
}

// overrider is the part of a store that has overrides of keys.
type overrider interface {
	// ChangeOverride puts an override of a key in force, or ends it if o is nil, and reports
	// whether the key had one.
	ChangeOverride(key string, o *Override) (had bool, err error)
}

// SetOverride puts an override of a key in force in this process, in place of its last one.
// It applies from the next charge on, and units used stay used. The error is an
// [*InvalidError]: of the limit, of a name that no limit has, of an instant that has passed,
// of a store without overrides, or because there are too many.
func (l *Limiter) SetOverride(key string, o Override) error {
	store, found := l.taker.(overrider)
	if !found {
		return invalid("store", "without overrides", "one that has them")
	}
	i, err := l.limitOf(o.Name)
	if err != nil {
		return err
	}
	_, err = store.ChangeOverride(l.prefixes[i]+key, &o)
	return err
}

// RemoveOverride ends all overrides of a key and reports whether there was one. The limiter of
// a class of [Shares] leaves an override of the budget in force, which is that of all classes:
// remove it with the limiter of the class "".
func (l *Limiter) RemoveOverride(key string) bool {
	store, found := l.taker.(overrider)
	if !found {
		return false
	}
	removed := false
	for i := range l.prefixes {
		if l.isOfAllClasses(i) {
			continue
		}
		had, _ := store.ChangeOverride(l.prefixes[i]+key, nil)
		removed = removed || had
	}
	return removed
}

// isOfAllClasses reports whether the i-th limit is the budget of shares, and the limiter is one
// class's.
func (l *Limiter) isOfAllClasses(i int) bool {
	shares, class := l.limits[i].Shares()
	return shares != nil && class == "" && (l.class != "" || slices.ContainsFunc(l.limits, func(other *Limit) bool {
		_, class := other.Shares()
		return class != ""
	}))
}

// limitOf returns the index of the limit with a name.
func (l *Limiter) limitOf(name string) (int, error) {
	var names []string
	for i, limit := range l.limits {
		names = append(names, cmp.Or(limit.Name, strconv.Itoa(i)))
	}
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	if name == "" && len(names) == 1 {
		return 0, nil
	}
	return 0, invalid("name", quoted(name), "one of "+strings.Join(names, ", "))
}
