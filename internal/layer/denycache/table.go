package denycache

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

const (
	// ways is how many cells a key can be in.
	ways = 8
	// maxHits is the number of hits at which an entry is safest from replacement.
	maxHits = 15
)

// A table holds entries in sets of cells, without locks: entries do not change, and a cell
// is one pointer. A new entry replaces the entry of its set with the fewest hits, if that
// has none; otherwise it only lowers them, so that keys used once cannot displace keys that
// are used often.
type table struct {
	seed maphash.Seed
	sets []set
}

type set struct {
	cells [ways]atomic.Pointer[entry]
	// forgotten is when a key of the set was last forgotten, by our clock. A refusal of an
	// act sent before then may be older than the cause.
	forgotten atomic.Int64
}

func newTable(entries int) table {
	n := max(1, (entries+ways-1)/ways)
	return table{seed: maphash.MakeSeed(), sets: make([]set, 1<<bits.Len(uint(n-1)))}
}

func (t *table) set(hash uint64) *set { return &t.sets[hash&uint64(len(t.sets)-1)] }

// actOf returns a hash of all that an act asks of its keys. All acts of one charge have the
// same, because nothing else can make them wait.
func (t *table) actOf(a *weir.Act) uint64 {
	sum := uint64(1)
	if len(a.Charges) == 1 {
		return sum
	}
	for i := range a.Charges {
		ch := &a.Charges[i]
		for _, n := range [...]uint64{maphash.String(t.seed, ch.Key), uint64(ch.Cost), uint64(ch.UpTo), uint64(ch.Keep), uint64(ch.Group)<<8 | uint64(ch.Alt)} {
			sum = maphash.Comparable(t.seed, [2]uint64{sum, n})
		}
	}
	return sum
}

// find returns an entry that refuses a charge, that of the act if there is one; nil if there is
// none.
func (t *table) find(ch *weir.Charge, immediate bool, act uint64, now int64) *entry {
	hash := maphash.String(t.seed, ch.Key)
	s := t.set(hash)
	var found *entry
	for i := range s.cells {
		e := s.cells[i].Load()
		if e == nil || e.hash != hash || e.key != ch.Key || !e.refuses(ch, immediate, now) {
			continue
		}
		if found = e; e.act == act {
			break
		}
	}
	return found
}

// touch counts a hit, up to maxHits.
func (e *entry) touch() {
	if e.hits.Load() < maxHits {
		e.hits.Add(1)
	}
}

// add adds an entry, if it finds a cell.
func (t *table) add(e *entry, sent int64) {
	e.hash = maphash.String(t.seed, e.key)
	s := t.set(e.hash)
	if s.forgotten.Load() >= sent {
		return
	}
	cell, old := s.choose(e)
	if cell == nil || !cell.CompareAndSwap(old, e) {
		return
	}
	if s.forgotten.Load() >= sent {
		cell.CompareAndSwap(e, nil)
	}
}

// choose returns the cell for an entry and its content; nil if all cells have entries with
// hits.
func (s *set) choose(e *entry) (*atomic.Pointer[entry], *entry) {
	var cell *atomic.Pointer[entry]
	var there *entry
	begin, least := rand.IntN(ways), int32(maxHits+1)
	for i := range ways {
		p := &s.cells[(begin+i)%ways]
		old := p.Load()
		if old == nil {
			cell, there, least = p, nil, -1
			continue
		}
		if old.replacedBy(e) {
			e.hits.Store(old.hits.Load())
			return p, old
		}
		if hits := old.hits.Load(); hits < least {
			cell, there, least = p, old, hits
		}
	}
	if least > 0 {
		there.hits.Add(-1)
		return nil, nil
	}
	return cell, there
}

// replacedBy reports whether another entry is a newer refusal of the same act.
func (e *entry) replacedBy(other *entry) bool {
	return e.hash == other.hash && e.act == other.act && e.need == other.need && e.immediate == other.immediate && e.key == other.key &&
		e.limit.Alike(other.limit)
}

// forget drops the entries of a key, and keeps those of acts sent before now from being
// added.
func (t *table) forget(key string, now int64) {
	t.set(maphash.String(t.seed, key)).forgotten.Store(now)
	t.drop(key)
}

// drop drops the entries of a key.
func (t *table) drop(key string) { t.replace(key, func(*entry) *entry { return nil }) }

// replace replaces each entry of a key by the result of f, or removes it if that is nil.
func (t *table) replace(key string, f func(*entry) *entry) {
	hash := maphash.String(t.seed, key)
	s := t.set(hash)
	for i := range s.cells {
		if e := s.cells[i].Load(); e != nil && e.hash == hash && e.key == key {
			s.cells[i].CompareAndSwap(e, f(e))
		}
	}
}
