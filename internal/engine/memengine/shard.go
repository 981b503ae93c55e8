package memengine

import (
	"hash/maphash"
	"math"

	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/spin"
)

// A shard holds the keys of one part of the hash space.
type shard struct {
	mu spin.Mutex
	table
	// ids are the records of IDs; nil if there are none.
	ids *ids
	// last is the latest instant of the store's own clock at which an act was decided
	// here. With it a shard fills a cache line, which keeps neighbours' locks off.
	last int64
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

// nameOf names the key that begins with a prefix. It does not allocate for keys of the
// usual length.
func (s *Store) nameOf(id algo.ID, prefix, key string) name {
	if prefix == "" {
		return s.name(id, key)
	}
	var text [128]byte
	whole := append(append(text[:0], prefix...), key...)
	low := maphash.Bytes(s.seeds[1], whole)
	return name{maphash.Bytes(s.seeds[0], whole), low<<(algorithmBits+1) | 1<<algorithmBits | uint64(id)}
}

func (n name) shard() uint32 { return uint32(n.high >> (64 - shardBits)) }

// load reads the state of a key. It reports whether there is no room for one that
// the store does not know.
func (s *Store) load(t *slot, now int64) (full bool) {
	sh := &s.shards[t.name.shard()]
	p := sh.page(t.name)
	i, known := p.cells.find(t.name)
	if t.known = known; known {
		t.load(p, i)
		return false
	}
	return !s.fits(sh, t, now)
}

// load copies the state at a place.
func (t *slot) load(p *page, i int) {
	p.cells[i].get(&t.state)
	t.state.Ext = p.ext(i)
	t.extBytes = t.state.Ext.Bytes()
}

// age brings the state to now.
func (t *slot) age(now int64) {
	if t.rule.Calendar {
		own := t.limit.RuleAt(now)
		t.rule = &own
	}
	t.dirty = t.rule.Age(&t.state, now)
	t.aged = t.state.Used
}

// save makes the state ready to be stored, and reports whether it has to be.
func (t *slot) save(tight bool, now int64) bool {
	added := t.state.Used - t.aged
	changed := added != 0 || t.dirty
	if changed {
		t.state.Tight = tight
		t.rule.Save(&t.state, now, added)
	}
	t.fresh = t.rule.Fresh(&t.state, now)
	return changed
}

// publish stores the changes of the act.
func (s *Store) publish(t *slot, tight bool, now int64) {
	if !t.save(tight, now) {
		return
	}
	until := seconds(now + t.fresh)
	if t.shared != nil {
		t.shared.set(&t.state, until)
		return
	}
	sh := &s.shards[t.name.shard()]
	more := t.state.Ext.Bytes() - t.extBytes + sh.seat(t, now)
	p := sh.page(t.name)
	i, _ := p.cells.find(t.name)
	s.grew(more + p.set(i, &t.state, until))
}

// seat gives a key a place if it has none: it is new, or another key of its act has
// swept it. It returns how many bytes more that takes.
func (sh *shard) seat(t *slot, now int64) (bytes int64) {
	p := sh.page(t.name)
	if _, seated := p.cells.find(t.name); seated {
		return 0
	}
	if t.known {
		bytes = t.extBytes
	}
	if p.full() {
		bytes -= sh.shed(t.name, second(now))
		if sh.page(t.name).crowded() {
			bytes += sh.grow(t.name)
		}
	}
	sh.keys++
	sh.page(t.name).add(t.name)
	return bytes
}

// tight reports whether the store takes more memory than it should.
func (s *Store) tight() bool { return s.bytes.Load() > s.maxBytes }

// grew counts bytes.
func (s *Store) grew(bytes int64) {
	if bytes != 0 {
		s.bytes.Add(bytes)
	}
}

// fits reports whether there is room for a new key, after looking for some.
func (s *Store) fits(sh *shard, t *slot, now int64) bool {
	if s.free(sh, t) {
		return true
	}
	s.grew(-sh.shed(t.name, second(now)))
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
