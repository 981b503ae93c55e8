package keylimit

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	shards = 64
	// slack is how much longer than its limit drains a key is tracked: stores keep states
	// for up to a second longer than that.
	slack = 2 * time.Second
)

// limits are the keys of each budget, by its Overflow.
type limits struct {
	all atomic.Pointer[map[string]*keys] // replaced and never written to
	mu  sync.Mutex                       // held by writers
}

// of returns the keys of a budget, without expired ones.
func (l *limits) of(overflow string, limit *weir.Limit, now int64) *keys {
	k := l.list()[overflow]
	if k == nil {
		k = l.add(overflow, limit.Name, now)
	}
	k.age(now)
	k.lasts(limit)
	return k
}

// add adds a budget, and drops those that were not used since all their keys expired.
func (l *limits) add(overflow, limit string, now int64) *keys {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(l.list())
	if all == nil {
		all = map[string]*keys{}
	}
	if all[overflow] == nil {
		maps.DeleteFunc(all, func(_ string, k *keys) bool { return now >= k.until.Load()+k.span.Load() })
		all[overflow] = &keys{limit: limit, seed: maphash.MakeSeed()}
		l.all.Store(&all)
	}
	return all[overflow]
}

func (l *limits) list() map[string]*keys {
	if all := l.all.Load(); all != nil {
		return *all
	}
	return nil
}

// keys are the tracked keys of one budget, as hashes of 64 bits. Two keys with one hash
// count as one; among ten million keys, that happens once in 100 000 times.
type keys struct {
	limit      string // a limit's name
	seed       maphash.Seed
	most       atomic.Int64 // MaxKeys, as last asked for
	size       atomic.Int64
	overflowed atomic.Uint64
	logged     atomic.Bool // that MaxKeys was reached

	span  atomic.Int64 // µs for which the states of recent keys last: limits may differ
	until atomic.Int64 // µs; when old keys expire and recent ones become old
	aging sync.Mutex

	shards [shards]shard
}

type shard struct {
	mu          sync.RWMutex
	recent, old map[uint64]struct{}
}

// isRecent reports whether a key was charged recently.
func (s *shard) isRecent(hash uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, recent := s.recent[hash]
	return recent
}

// isOld reports whether a key was charged before.
func (s *shard) isOld(hash uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, old := s.old[hash]
	return old
}

// bound notes MaxKeys.
func (k *keys) bound(most int) {
	if k.most.Load() != int64(most) {
		k.most.Store(int64(most))
	}
}

// lasts notes how long a state under the limit lasts.
func (k *keys) lasts(limit *weir.Limit) {
	span := max(limit.Rule().Drain, limit.Block.Microseconds()) + slack.Microseconds()
	for before := k.span.Load(); before < span && !k.span.CompareAndSwap(before, span); before = k.span.Load() {
	}
}

// age drops expired keys. Recent keys become old ones for as long as the longest of their
// states lasts.
func (k *keys) age(now int64) {
	if now < k.until.Load() {
		return
	}
	k.aging.Lock()
	defer k.aging.Unlock()
	until, span := k.until.Load(), k.span.Load()
	if now < until {
		return
	}
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		expired := len(s.old)
		if s.old = s.recent; now >= until+span {
			expired, s.old = expired+len(s.old), nil
		}
		s.recent = nil
		s.mu.Unlock()
		k.size.Add(-int64(expired))
	}
	if k.size.Load() < k.most.Load() {
		k.logged.Store(false)
	}
	k.until.Store(now + span)
	k.span.Store(0)
}

// admit reports whether a key is or may be tracked. It tracks the key if makesState is set.
func (k *keys) admit(key string, most int, makesState bool) bool {
	k.bound(most)
	hash := maphash.String(k.seed, key)
	s := &k.shards[hash%shards]
	switch {
	case s.isRecent(hash):
		return true
	case !makesState:
		return s.isOld(hash) || k.size.Load() < int64(most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, recent := s.recent[hash]; recent {
		return true
	}
	if _, old := s.old[hash]; old {
		delete(s.old, hash)
	} else if k.size.Add(1) > int64(most) {
		k.size.Add(-1)
		return false
	}
	if s.recent == nil {
		s.recent = make(map[uint64]struct{})
	}
	s.recent[hash] = struct{}{}
	return true
}
