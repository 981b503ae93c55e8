// Package override gives single keys other limits at run time, each until an instant: a
// customer who was promised more for a day, a client to block for an hour, a key without
// a limit while something is repaired.
package override

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// DefaultMax is the default of Options.Max.
const DefaultMax = 10_000

// Options configure a [Layer]. The zero value is good.
type Options struct {
	// Max bounds the number of overrides. Zero: [DefaultMax].
	Max int
	// Now is the clock by which overrides end. Nil: [time.Now].
	Now func() time.Time
}

// An Override replaces the limit of one key until an instant, or raises it.
type Override struct {
	// Key is the charge's key: that of a [weir.Limiter], followed by "#" and the limit's
	// name. Of several limits without a name, the index from 0 stands in its place; a
	// single one adds nothing.
	Key string
	// Limit gives the Count, Period and Burst that hold instead; everything else stays
	// the key's own limit's, see [Fit]. A Count of 0 blocks the key: every take is
	// refused. Nil: no limit; every take is granted and charges nothing. Only a block or
	// no limit is for an owner, see [weir.Charge]: it holds in place of all limits that
	// its charges have.
	Limit *weir.Limit
	// Until is when the key's own limit holds again.
	Until time.Time
	// Raise, if not nil, adds to the limit that the key has otherwise, its own or that of an
	// override, in place of Limit. A key may have several raises.
	Raise *Raise
}

// A Raise adds units to the Count of a fixed_window until an instant. Limits of other
// algorithms, those that charge refused requests, and blocked keys stay as they are. The sum
// of the limit and its raises ends at the largest count of a fixed_window.
type Raise struct {
	// ID tells the raises of a key apart. It must not be empty.
	ID string
	// Units are added to the Count, at least 1.
	Units int64
	// Meter is what the units are, as in [weir.Limit], and Note says why. Both are for people,
	// and may be empty.
	Meter, Note string
}

// Name identifies an override among all: its key, and the ID of a raise.
func (o Override) Name() string {
	if o.Raise == nil {
		return o.Key
	}
	return o.Key + "\x00" + o.Raise.ID
}

// A Change is an override that was set, or that was removed before its end.
type Change struct {
	Override
	// Ended: the override was removed; only its Key is set, and the ID of a raise.
	Ended bool
}

// ErrFull is the error of an [Announcer] that has room for no more overrides.
var ErrFull = errors.New("weir: the instances have as many overrides as they can")

// An Announcer shares a change that was made here with other instances. An error other
// than [ErrFull] says that they may not have received it yet.
type Announcer interface {
	Announce(ctx context.Context, c Change) error
}

// A Layer asks the next Taker, under other limits for the keys that have overrides. The
// overrides are in its memory, not in the store: each process has its own. It is safe for
// concurrent use; without overrides, a Take costs one atomic load more, and with some, a look-up. Create it with Wrap.
//
// The Limit of a charge's decision is the override's fitted to the key's own limit.
type Layer struct {
	next weir.Taker
	max  int
	now  func() time.Time

	mu sync.Mutex // held by writers
	// current is nil if there are no overrides.
	current atomic.Pointer[overrides]
}

// overrides are the overrides by key: a table of chains, of which a writer replaces one at a
// time, and readers take no lock. Those that have ended are among them until a take finds them,
// the table grows or there is no room.
type overrides struct {
	chains []atomic.Pointer[link] // as many as a power of two
	size   int                    // with each raise; only writers read it
	// seen has a bit for each key's length and end, so that most other keys need no look-up.
	seen [16]atomic.Uint64
}

// A link is an entry of a chain. It is never written to.
type link struct {
	*entry
	next *link
}

// fewest is the number of chains of the smallest table.
const fewest = 16

// tableFor returns an empty table for so many overrides.
func tableFor(n int) *overrides {
	chains := fewest
	for chains < n {
		chains *= 2
	}
	return &overrides{chains: make([]atomic.Pointer[link], chains)}
}

// bitOf returns the bit of seen for the last four bytes of a key of so many bytes.
func bitOf(end string, bytes int) uint32 {
	tail := uint32(end[0]) | uint32(end[1])<<8 | uint32(end[2])<<16 | uint32(end[3])<<24
	return (tail ^ uint32(bytes)<<25) * 0x9E3779B1 >> 22
}

// note sets the bit of a key.
func (all *overrides) note(key string) {
	if n := len(key); n >= 4 {
		bit := bitOf(key[n-4:], n)
		all.seen[bit/64].Or(1 << (bit % 64))
	}
}

var tableSeed = maphash.MakeSeed()

// chain returns the chain of the keys with a hash.
func (all *overrides) chain(hash uint64) *atomic.Pointer[link] {
	return &all.chains[hash&uint64(len(all.chains)-1)]
}

// get returns the override of a key, or nil.
func (all *overrides) get(key string) *entry {
	if all == nil {
		return nil
	}
	for at := all.chain(maphash.String(tableSeed, key)).Load(); at != nil; at = at.next {
		if at.Key == key {
			return at.entry
		}
	}
	return nil
}

// put gives a key an entry in place of its last one, or none if e is nil.
func (all *overrides) put(key string, e *entry) {
	var changed *link
	if e != nil {
		all.note(key)
		changed = &link{entry: e}
	}
	chain := all.chain(maphash.String(tableSeed, key))
	all.size += e.parts()
	for at := chain.Load(); at != nil; at = at.next {
		if at.Key == key {
			all.size -= at.parts()
			continue
		}
		changed = &link{at.entry, changed}
	}
	chain.Store(changed)
}

// lasting returns a table of the overrides that have not ended, with room for more.
func (all *overrides) lasting(now time.Time) *overrides {
	if all == nil {
		return tableFor(0)
	}
	rest := tableFor(2 * all.size)
	for e := range all.each {
		if e = e.at(now); e != nil {
			rest.put(e.Key, e)
		}
	}
	return rest
}

// each yields all overrides.
func (all *overrides) each(yield func(*entry) bool) {
	if all == nil {
		return
	}
	for i := range all.chains {
		for at := all.chains[i].Load(); at != nil; at = at.next {
			if !yield(at.entry) {
				return
			}
		}
	}
}

// Wrap returns a Layer that asks next.
func Wrap(next weir.Taker, o Options) *Layer {
	l := &Layer{next: next, max: o.Max, now: o.Now}
	if l.max <= 0 {
		l.max = DefaultMax
	}
	if l.now == nil {
		l.now = time.Now
	}
	return l
}

// Set puts an override in force in place of the key's last one, or a raise in place of the
// key's raise of that ID. It applies from the next
// charge on, to the state that the key has: units used stay used, now and when the
// override ends.
//
// The error is a [*weir.InvalidError]: of the limit, of an instant that has passed, or, with
// the field overrides, because there are as many as Options.Max allows.
func (l *Layer) Set(o Override) error {
	if o.Limit != nil {
		compiled, err := o.Limit.Compile()
		if err != nil {
			return err
		}
		o.Limit = compiled
	}
	if r := o.Raise; r != nil && (r.ID == "" || r.Units < 1 || r.Units > algo.MaxWindow) {
		return &weir.InvalidError{Field: "raise", Value: strconv.FormatInt(r.Units, 10), Want: fmt.Sprintf("an ID, and 1 … %d units", int64(algo.MaxWindow))}
	}
	if len(o.Key) > weir.MaxKeyBytes {
		return &weir.InvalidError{
			Field: "key", Value: fmt.Sprintf("%d bytes", len(o.Key)), Want: fmt.Sprintf("at most %d bytes", weir.MaxKeyBytes),
		}
	}
	now := l.now()
	if !now.Before(o.Until) {
		return &weir.InvalidError{Field: "until", Value: o.Until.Format(time.RFC3339), Want: "an instant in the future"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.current.Load()
	e := all.get(o.Key).at(now)
	if !e.has(o) {
		if all == nil || all.size >= min(len(all.chains), l.max) {
			all = all.lasting(now)
		}
		if all.size >= l.max {
			return tooMany(all.size+1, l.max)
		}
	}
	all.put(o.Key, e.with(o))
	l.store(all)
	return nil
}

// ChangeOverride is Set or Delete, as a [weir.Limiter] calls it.
func (l *Layer) ChangeOverride(key string, o *weir.Override) (had bool, err error) {
	if o == nil {
		return l.Delete(key), nil
	}
	_, had = l.Get(key)
	return had, l.Set(Override{Key: key, Limit: o.Limit, Until: o.Until})
}

// Room returns the error that Set would return if so many more keys had overrides, nil if
// there is room for them.
func (l *Layer) Room(keys int) error {
	if n := len(l.List()) + len(l.Raises()) + keys; keys > 0 && n > l.max {
		return tooMany(n, l.max)
	}
	return nil
}

func tooMany(n, most int) error {
	return &weir.InvalidError{Field: "overrides", Value: strconv.Itoa(n), Want: fmt.Sprintf("at most %d at a time", most)}
}

// Delete removes the override of a key, but not its raises, and reports whether there was one.
func (l *Layer) Delete(key string) bool { return l.End(Override{Key: key}) }

// End removes the override of o.Key or, if o is a raise, the key's raise of that ID, and reports
// whether there was one.
func (l *Layer) End(o Override) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.current.Load()
	e := all.get(o.Key).at(now)
	if !e.has(o) {
		return false
	}
	all.put(o.Key, e.without(o))
	l.store(all)
	return true
}

// Replace atomically replaces all overrides with a list. It skips overrides that Set would
// refuse or that exceed Options.Max.
func (l *Layer) Replace(list []Override) {
	now, all := l.now(), tableFor(min(len(list), l.max))
	for _, o := range list {
		if all.size < l.max && now.Before(o.Until) && (o.Limit == nil || o.Limit.Rule() != nil) {
			all.put(o.Key, all.get(o.Key).with(o))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store(all)
}

// Get returns the override of a key, which is no raise; false if it has none.
func (l *Layer) Get(key string) (Override, bool) {
	if e := l.current.Load().get(key).at(l.now()); e != nil && e.set() {
		return e.Override, true
	}
	return Override{}, false
}

// RaisesOf returns the raises of a key that are in force, in the order in which they end.
func (l *Layer) RaisesOf(key string) []Override {
	e := l.current.Load().get(key).at(l.now())
	if e == nil {
		return nil
	}
	return inOrder(slices.Clone(e.raises))
}

// Raises returns all raises in force, by key.
func (l *Layer) Raises() []Override {
	now := l.now()
	var list []Override
	for e := range l.current.Load().each {
		if e = e.at(now); e != nil {
			list = append(list, e.raises...)
		}
	}
	return inOrder(list)
}

func inOrder(raises []Override) []Override {
	slices.SortFunc(raises, func(a, b Override) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.Until.Compare(b.Until), cmp.Compare(a.Raise.ID, b.Raise.ID))
	})
	return raises
}

// List returns the overrides in force that are no raises, by key.
func (l *Layer) List() []Override {
	now := l.now()
	var list []Override
	for e := range l.current.Load().each {
		if e = e.at(now); e != nil && e.set() {
			list = append(list, e.Override)
		}
	}
	slices.SortFunc(list, func(a, b Override) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// All returns the overrides in force as a store of the library tells them, by key.
func (l *Layer) All() []weir.Override {
	var all []weir.Override
	for _, o := range l.List() {
		all = append(all, weir.Override{Name: o.Key, Limit: o.Limit, Until: o.Until})
	}
	return all
}

// Has reports whether the key that begins with a prefix has an override, without a call of the
// clock: it may have ended. It does not allocate for keys of the usual length.
func (l *Layer) Has(prefix, key string) bool {
	all := l.current.Load()
	if all == nil {
		return false
	}
	if n := len(key); n >= 4 {
		if bit := bitOf(key[n-4:], len(prefix)+n); all.seen[bit/64].Load()&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return all.has(prefix, key)
}

func (all *overrides) has(prefix, key string) bool {
	var text [128]byte
	whole := append(append(text[:0], prefix...), key...)
	for at := all.chain(maphash.Bytes(tableSeed, whole)).Load(); at != nil; at = at.next {
		if at.Key == string(whole) {
			return true
		}
	}
	return false
}

// Concerns reports whether a charge's key or its owner has an override.
func (l *Layer) Concerns(c *weir.Charge) bool {
	all := l.current.Load()
	return all != nil && (all.get(c.Key) != nil || c.Owner != "" && all.get(c.Owner) != nil)
}

// store puts overrides in force.
func (l *Layer) store(all *overrides) {
	if all.size == 0 {
		all = nil
	}
	l.current.Store(all)
}

// forget removes what has ended of the overrides of a key.
func (l *Layer) forget(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.current.Load()
	if all == nil {
		return
	}
	all.put(key, all.get(key).at(now))
	l.store(all)
}

// An entry is what one key has: an override, raises or both, with the limits that were fitted
// to them. Its parts are never written to.
type entry struct {
	Override                           // without an Until if there are only raises
	raises   []Override                // each once
	added    int64                     // their units, at most the largest count
	ends     time.Time                 // when the first of the parts ends
	fitted   atomic.Pointer[[]fitting] // replaced and never written to
}

// newEntry returns the entry of these overrides of one key, of which at most one is no raise;
// nil if there are none.
func newEntry(parts []Override) *entry {
	if len(parts) == 0 {
		return nil
	}
	e := &entry{Override: Override{Key: parts[0].Key}, ends: parts[0].Until}
	for _, o := range parts {
		if o.Until.Before(e.ends) {
			e.ends = o.Until
		}
		if o.Raise == nil {
			e.Override = o
			continue
		}
		e.raises = append(e.raises, o)
		e.added = min(e.added+o.Raise.Units, algo.MaxWindow)
	}
	return e
}

// all returns the parts of an entry, which may be nil.
func (e *entry) all() (parts []Override) {
	if e == nil {
		return nil
	}
	if e.set() {
		parts = append(parts, e.Override)
	}
	return append(parts, e.raises...)
}

// set reports whether the key has an override that is no raise.
func (e *entry) set() bool { return !e.Until.IsZero() }

// parts returns how many overrides and raises there are.
func (e *entry) parts() int {
	switch {
	case e == nil:
		return 0
	case e.set():
		return 1 + len(e.raises)
	}
	return len(e.raises)
}

// has reports whether there is a part with the name of o.
func (e *entry) has(o Override) bool {
	if e == nil || o.Raise == nil {
		return e != nil && e.set()
	}
	return slices.ContainsFunc(e.raises, func(other Override) bool { return other.Raise.ID == o.Raise.ID })
}

// without returns the entry without the part that has the name of o; nil if none is left.
func (e *entry) without(o Override) *entry {
	name := o.Name()
	return newEntry(slices.DeleteFunc(e.all(), func(other Override) bool { return other.Name() == name }))
}

// with returns the entry with o in place of the part that has its name.
func (e *entry) with(o Override) *entry { return newEntry(append(e.without(o).all(), o)) }

// at returns the entry of the parts that are in force; nil if none is.
func (e *entry) at(now time.Time) *entry {
	if e == nil || now.Before(e.ends) {
		return e
	}
	return newEntry(slices.DeleteFunc(e.all(), func(o Override) bool { return !now.Before(o.Until) }))
}

// A fitting is the limit that holds instead of a key's own. Rules that charge one budget
// have limits that differ in their names, and so have the limits fitted to them.
type fitting struct{ own, instead *weir.Limit }

// maxFittings is how many are kept before all are dropped: each reload has other limits.
const maxFittings = 64

// instead returns the limit that holds instead of a key's own; its own if that cannot have
// the override's numbers.
func (e *entry) instead(own *weir.Limit) *weir.Limit {
	var all []fitting
	if known := e.fitted.Load(); known != nil {
		all = *known
	}
	for _, f := range all {
		if f.own == own {
			return f.instead
		}
	}
	f := fitting{own, own}
	if e.frees() {
		f.instead = unlimited(own)
	} else if e.Limit != nil {
		if fitted, err := Fit(e.Limit, own); err == nil {
			f.instead = fitted
		}
	}
	if e.added > 0 && !e.frees() && Raisable(own) && f.instead.Count > 0 {
		f.instead = raised(f.instead, e.added)
	}
	if len(all) == maxFittings {
		all = nil
	}
	all = append(slices.Clip(all), f)
	e.fitted.Store(&all)
	return f.instead
}

// Raisable reports whether a limit is one that raises add to.
func Raisable(l *weir.Limit) bool { return l.Algorithm == weir.FixedWindow && !l.ChargeRefused }

// raised returns a limit with so many more units, as far as it can count.
func raised(l *weir.Limit, units int64) *weir.Limit {
	more := *l
	more.Count = min(l.Count+units, algo.MaxWindow)
	if compiled, err := more.Compile(); err == nil {
		return compiled
	}
	return l
}

// frees reports whether the override grants every take.
func (e *entry) frees() bool { return e.set() && e.Limit == nil }

// blocks reports whether the override refuses every take.
func (e *entry) blocks() bool { return e.Limit != nil && e.Limit.Count == 0 }

// Fit returns own with the Count, Period and Burst of limit, compiled: the limit that holds
// for a key with that override. The key keeps its algorithm and its state, and a reload
// that changes its limit leaves the override in force. Units used under own stay used, however
// many they are, and debts are bounded by the larger of the two limits. An algorithm without
// bursts ignores the Burst, and a Count of 0 needs nothing else. The error is a [*weir.InvalidError], of
// the field guarantee if own is guaranteed to a class of [weir.Shares] and limit is more
// than that.
func Fit(limit, own *weir.Limit) (*weir.Limit, error) {
	fitted := *own
	fitted.Count, fitted.Burst = limit.Count, 0
	if limit.Count == 0 {
		return fitted.Compile()
	}
	fitted.Period = limit.Period
	if algo.TraitsOf(own.Algorithm).Bursts {
		fitted.Burst = limit.Burst
	}
	compiled, err := fitted.Compile()
	if err != nil {
		return nil, err
	}
	compiled.Rule().Admit(own.Rule())
	compiled.WithoutBlock().Rule().Admit(own.Rule())
	if Guaranteed(own) && exceeds(compiled, own) {
		err = &weir.InvalidError{Field: "guarantee", Value: compiled.String(), Want: "at most " + own.String() + ", which is what the shares have room for"}
	}
	return compiled, err
}

// Guaranteed reports whether a limit is what [weir.Shares] guarantee to a class. It can only
// be lowered or blocked: more for one class would be taken from what others are guaranteed.
func Guaranteed(l *weir.Limit) bool {
	_, class := l.Shares()
	return class != ""
}

// holdsGuarantees reports whether a limit in place of the budget of [weir.Shares] has room for
// all that they guarantee.
func holdsGuarantees(limit, pool *weir.Limit) bool {
	shares, _ := pool.Shares()
	if shares == nil {
		return true // nothing is guaranteed; a charge that says otherwise is the store's to refuse
	}
	if limit.Burst < shares.Keep() {
		return false
	}
	sum := int64(0)
	for _, units := range shares.Guarantees {
		sum += units
	}
	return !faster(sum, pool.Period, limit.Count, limit.Period)
}

// exceeds reports whether a gcra limit grants at any time what own would not.
func exceeds(l, own *weir.Limit) bool {
	// Shares reserve enough for the tick of each guarantee. A coarser one needs more.
	return faster(l.Count, l.Period, own.Count, own.Period) || l.Burst > own.Burst || l.Rule().Tick > own.Rule().Tick
}

// faster reports whether n units in a period are more than m units in another one.
func faster(n int64, period time.Duration, m int64, other time.Duration) bool {
	high, low := bits.Mul64(uint64(n), uint64(other))
	otherHigh, otherLow := bits.Mul64(uint64(m), uint64(period))
	return high > otherHigh || high == otherHigh && low > otherLow
}

// unlimited returns own with the largest count that is valid with its period. It is never
// own itself, so that a decision shows that an override made it.
func unlimited(own *weir.Limit) *weir.Limit {
	most := *own
	most.Burst, most.Count, most.Block = 0, weir.MaxCost, 0
	if own.Count >= most.Count {
		most.Count = algo.MaxWindow
	}
	for ; most.Count > own.Count; most.Count /= 10 {
		if compiled, err := most.Compile(); err == nil {
			return compiled
		}
	}
	same := *own
	return &same
}
