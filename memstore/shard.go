package memstore

import (
	"math"
	"strings"
	"sync"

	"github.com/weirlimit/weir/internal/algo"
)

// A shard holds the keys of one part of the hash space. Keys of different
// algorithms never meet.
type shard struct {
	mu    sync.Mutex
	cells [algo.Count]map[string]cell
	// records are what is remembered of ids.
	records map[recordName]*record
	_       [64]byte // keeps neighbours' locks off one cache line
}

// A cell is a key's state, inline where it is small.
type cell struct {
	at, used int64
	ext      *algo.Ext
	rem      uint32
	until    uint32 // seconds since 1970: the state equals a fresh one from then on
}

func (c *cell) state() algo.State {
	return algo.State{At: c.at, Used: c.used, Rem: int64(c.rem), Ext: c.ext}
}

const (
	// keyBytes is what a key costs beside its own bytes: its place in the map at
	// an average load, and the header of its string.
	keyBytes = 96
	// sweepNew and sweepFull are how many keys of a shard are looked at when a
	// key is added: always, and when there is no room.
	sweepNew  = 2
	sweepFull = 128
)

func (sh *shard) count() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := 0
	for _, cells := range sh.cells {
		n += len(cells)
	}
	return n
}

// load reads the state of a key and brings it to now.
func (s *Store) load(c *call, t *slot, now int64) {
	found, known := s.shards[t.shard].cells[t.rule.ID][t.key]
	t.known = known
	if known {
		t.state, t.extBytes = found.state(), found.ext.Bytes()
	} else if full := !s.fits(t, now); full || s.overflow.active.Load() {
		s.overflow.load(c, t, full, now)
	}
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
	if added == 0 && !t.dirty {
		return
	}
	t.state.Tight = s.bytes.Load() > s.maxBytes
	if t.step.Save != nil {
		t.step.Save(&t.state, t.rule, now, added)
	}
	filled := cell{
		at: t.state.At, used: t.state.Used - t.state.Base, ext: t.state.Ext, rem: uint32(t.state.Rem),
		until: seconds(now + t.step.Fresh(&t.state, t.rule, now)),
	}
	if t.shared != nil {
		*t.shared = filled
		return
	}
	s.bytes.Add(t.state.Ext.Bytes() - t.extBytes)
	s.put(t, filled, now)
}

func (s *Store) put(t *slot, filled cell, now int64) {
	cells := &s.shards[t.shard].cells[t.rule.ID]
	if t.known {
		(*cells)[t.key] = filled
		return
	}
	if *cells == nil {
		*cells = make(map[string]cell)
	}
	s.sweep(t, sweepNew, now)
	// A key may be a piece of a larger buffer; do not keep that alive.
	(*cells)[strings.Clone(t.key)] = filled
	s.bytes.Add(keyCost(t.key))
}

// fits reports whether there is room for a new key, after looking for some.
func (s *Store) fits(t *slot, now int64) bool {
	need := keyCost(t.key) + t.rule.ExtBytes()
	if s.bytes.Load()+need <= s.maxBytes {
		return true
	}
	s.sweep(t, sweepFull, now)
	return s.bytes.Load()+need <= s.maxBytes
}

// sweep looks at some keys of a shard, wherever the map begins today, and
// forgets those whose state equals a fresh one.
func (s *Store) sweep(t *slot, most int, now int64) {
	for id := range s.shards[t.shard].cells {
		cells := s.shards[t.shard].cells[id]
		looked := 0
		for key, c := range cells {
			if looked++; looked > most {
				break
			}
			if int64(c.until)*1_000_000 <= now {
				delete(cells, key)
				s.bytes.Add(-keyCost(key) - c.ext.Bytes())
			}
		}
	}
}

func keyCost(key string) int64 { return keyBytes + int64(len(key)+15)&^15 }

// seconds rounds an instant up to whole seconds.
func seconds(micros int64) uint32 { return uint32(min(micros/1_000_000+1, math.MaxUint32)) }
