package denycache

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

const (
	// ways is how many places a key can be in.
	ways = 8
	// ofNote is how many hits an entry needs to be as safe as it gets.
	ofNote = 15
)

// A table holds entries in sets of places, without locks: entries do not change,
// and a place is one pointer. A newcomer takes the place of the entry in its set
// that was hit least; one that was hit at all it only wears out, so that keys
// which come once cannot push out those that keep coming.
type table struct {
	seed maphash.Seed
	sets []set
}

type set struct {
	places [ways]atomic.Pointer[entry]
	// forgotten is when an entry of the set was last ended, by our clock. A
	// refusal of a question sent before then may be older than what ended it.
	forgotten atomic.Int64
}

func newTable(entries int) table {
	n := max(1, (entries+ways-1)/ways)
	return table{seed: maphash.MakeSeed(), sets: make([]set, 1<<bits.Len(uint(n-1)))}
}

func (t *table) set(hash uint64) *set { return &t.sets[hash&uint64(len(t.sets)-1)] }

// find returns the entry that answers a charge, and its set; nil if there is none.
func (t *table) find(ch *weir.Charge, immediate bool, now int64) (*entry, *set) {
	hash := maphash.String(t.seed, ch.Key)
	s := t.set(hash)
	for i := range s.places {
		e := s.places[i].Load()
		if e != nil && e.hash == hash && e.key == ch.Key && e.refuses(ch, immediate, now) {
			return e, s
		}
	}
	return nil, nil
}

// touch counts a hit as long as that matters.
func (s *set) touch(e *entry) {
	if e.hits.Load() < ofNote {
		e.hits.Add(1)
	}
}

// add puts an entry in its place, if it finds one.
func (t *table) add(e *entry, sent int64) {
	e.hash = maphash.String(t.seed, e.key)
	s := t.set(e.hash)
	if s.forgotten.Load() >= sent {
		return
	}
	place, old := s.choose(e)
	if place == nil || !place.CompareAndSwap(old, e) {
		return
	}
	if s.forgotten.Load() >= sent {
		place.CompareAndSwap(e, nil)
	}
}

// choose returns the place for an entry and what is there; nil if all places have
// entries that matter more.
func (s *set) choose(e *entry) (*atomic.Pointer[entry], *entry) {
	var place *atomic.Pointer[entry]
	var there *entry
	begin, least := rand.IntN(ways), int32(ofNote+1)
	for i := range ways {
		p := &s.places[(begin+i)%ways]
		old := p.Load()
		if old == nil {
			place, there, least = p, nil, -1
			continue
		}
		if old.replacedBy(e) {
			e.hits.Store(old.hits.Load())
			return p, old
		}
		if hits := old.hits.Load(); hits < least {
			place, there, least = p, old, hits
		}
	}
	if least > 0 {
		there.hits.Add(-1)
		return nil, nil
	}
	return place, there
}

// replacedBy reports whether another entry says the same anew.
func (e *entry) replacedBy(other *entry) bool {
	return e.hash == other.hash && e.limit == other.limit && e.cost == other.cost &&
		e.immediate == other.immediate && e.key == other.key
}

// forget ends the entries of a key, those that are still to be added included.
func (t *table) forget(key string, now int64) {
	t.set(maphash.String(t.seed, key)).forgotten.Store(now)
	t.drop(key)
}

// drop ends the entries of a key.
func (t *table) drop(key string) {
	hash := maphash.String(t.seed, key)
	s := t.set(hash)
	for i := range s.places {
		if e := s.places[i].Load(); e != nil && e.hash == hash && e.key == key {
			s.places[i].CompareAndSwap(e, nil)
		}
	}
}

// flush ends all entries.
func (t *table) flush(now int64) {
	for i := range t.sets {
		s := &t.sets[i]
		s.forgotten.Store(now)
		for j := range s.places {
			s.places[j].Store(nil)
		}
	}
}
