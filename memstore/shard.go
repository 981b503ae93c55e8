package memstore

import (
	"hash/maphash"
	"math"
	"sync"

	"github.com/weirlimit/weir/internal/algo"
)

// A shard holds the keys of one part of the hash space.
type shard struct {
	mu sync.Mutex
	table
	one slot // the scratch copy of a single charge
	// records are what is remembered of ids.
	records map[recordName]*record
	_       [64]byte // keeps neighbours' locks off one cache line
}

const (
	shardBits  = 8
	shardCount = 1 << shardBits
)

// name names a key. Its first bits say which shard it belongs to.
func (s *Store) name(id algo.ID, key string) name {
	low := maphash.String(s.seeds[1], key)
	return name{maphash.String(s.seeds[0], key), low<<(algorithmBits+1) | 1<<algorithmBits | uint64(id)}
}

func (n name) shard() uint32 { return uint32(n.high >> (64 - shardBits)) }

// load reads the state of a key. It reports whether there is no room for one that
// the store does not have.
func (s *Store) load(t *slot, now int64) (full bool) {
	sh := &s.shards[t.name.shard()]
	t.page = sh.page(t.name)
	if t.place, t.known = t.page.find(t.name); !t.known {
		t.state, t.extBytes = algo.State{}, 0
		return !s.fits(sh, t, now)
	}
	t.page.cells[t.place].get(&t.state)
	t.state.Ext = t.page.ext(t.place)
	t.extBytes = t.state.Ext.Bytes()
	return false
}

// age brings the state to now.
func (t *slot) age(now int64) {
	if t.rule.Calendar {
		own := t.limit.RuleAt(now)
		t.rule = &own
	}
	t.dirty = t.step.Age(&t.state, t.rule, now)
	t.aged = t.state.Used
}

// publish stores what the act has changed.
func (s *Store) publish(t *slot, now int64) {
	added := t.state.Used - t.aged
	changed := added != 0 || t.dirty
	if changed && t.step.Save != nil {
		t.state.Tight = s.bytes.Load() > s.maxBytes
		t.step.Save(&t.state, t.rule, now, added)
	}
	t.fresh = t.step.Fresh(&t.state, t.rule, now)
	if changed {
		s.put(t, now)
	}
}

func (s *Store) put(t *slot, now int64) {
	until := seconds(now + t.fresh)
	if t.shared != nil {
		t.shared.set(&t.state, until)
		return
	}
	bytes := t.state.Ext.Bytes() - t.extBytes
	sh := &s.shards[t.name.shard()]
	if !t.known || sh.page(t.name) != t.page {
		bytes += sh.seat(t, now)
	}
	if bytes += t.page.set(t.place, &t.state, until); bytes != 0 {
		s.bytes.Add(bytes)
	}
}

// seat gives the key a place: a new one, or the one to which another key of the
// act has moved it since, unless that has swept it. It returns how many bytes
// more that takes.
func (sh *shard) seat(t *slot, now int64) (bytes int64) {
	t.page = sh.page(t.name)
	i, found := t.page.find(t.name)
	if t.place = i; found {
		return 0
	}
	if t.known {
		bytes = t.extBytes
	}
	if t.page.full() {
		bytes -= sh.shed(t.name, second(now))
		if sh.page(t.name).crowded() {
			bytes += sh.grow(t.name)
		}
		t.page = sh.page(t.name)
	}
	sh.keys++
	t.place = t.page.add(t.name)
	return bytes
}

// fits reports whether there is room for a new key, after looking for some.
func (s *Store) fits(sh *shard, t *slot, now int64) bool {
	if s.free(sh, t) {
		return true
	}
	s.bytes.Add(-sh.shed(t.name, second(now)))
	return s.free(sh, t)
}

func (s *Store) free(sh *shard, t *slot) bool {
	ext := t.rule.ExtBytes()
	need := ext + sh.growth(sh.page(t.name), ext > 0)
	return need == 0 || s.bytes.Load()+need <= s.maxBytes
}

// seconds rounds an instant up to whole seconds.
func seconds(micros int64) uint32 { return uint32(min(micros/1_000_000+1, math.MaxUint32)) }

// second is the second that an instant lies in.
func second(micros int64) uint32 { return uint32(micros / 1_000_000) }
