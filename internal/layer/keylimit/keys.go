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
	shards = 16
	// slack is how much longer than its state a key is known: stores keep states
	// for up to a second longer than they mean anything.
	slack = 2 * time.Second
)

// limits are the keys of each budget.
type limits struct {
	known atomic.Pointer[map[string]*keys] // replaced and never written to
	mu    sync.Mutex                       // held by writers
}

// of returns the keys of a budget, without those that are forgotten by now.
func (l *limits) of(overflow string, limit *weir.Limit, now int64) *keys {
	k := l.list()[overflow]
	if k == nil {
		k = l.add(overflow, limit.Name, now)
	}
	k.lasts(limit)
	k.age(now)
	return k
}

// add makes room for the keys of one more budget, and drops those that nobody has
// asked for since all of their keys were forgotten.
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
		l.known.Store(&all)
	}
	return all[overflow]
}

// list returns all of them.
func (l *limits) list() map[string]*keys {
	if known := l.known.Load(); known != nil {
		return *known
	}
	return nil
}

// keys are those of one budget that were asked for lately, as hashes of 64 bits: two
// keys with one hash, of ten million one in a hundred thousand times, count as one.
type keys struct {
	limit      string // a limit's name
	seed       maphash.Seed
	most       atomic.Int64 // as last asked for
	size       atomic.Int64
	overflowed atomic.Uint64
	told       atomic.Bool // that there are as many as there may be

	span  atomic.Int64 // µs for which a state lasts
	until atomic.Int64 // µs; when the old ones are forgotten and the recent ones old
	aging sync.Mutex

	shards [shards]struct {
		mu          sync.RWMutex
		recent, old map[uint64]struct{}
	}
}

// lasts notes how long a state under the limit lasts, as a reload may change it.
func (k *keys) lasts(limit *weir.Limit) {
	if span := limit.Rule().Drain + slack.Microseconds(); k.span.Load() != span {
		k.span.Store(span)
	}
}

// age forgets what is to be forgotten by now.
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
		forgotten := len(s.old)
		if s.old = s.recent; now >= until+span {
			forgotten, s.old = forgotten+len(s.old), nil
		}
		s.recent = nil
		s.mu.Unlock()
		k.size.Add(-int64(forgotten))
	}
	if k.size.Load() < k.most.Load() {
		k.told.Store(false)
	}
	k.until.Store(now + span)
}

// admit reports whether a key may be itself: because it is known, or because there
// is room, which it takes if it charges.
func (k *keys) admit(key string, most int, charges bool) bool {
	if k.most.Load() != int64(most) {
		k.most.Store(int64(most))
	}
	hash := maphash.String(k.seed, key)
	s := &k.shards[hash%shards]
	s.mu.RLock()
	_, recent := s.recent[hash]
	_, old := s.old[hash]
	s.mu.RUnlock()
	switch {
	case recent:
		return true
	case !charges:
		return old || k.size.Load() < int64(most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, recent = s.recent[hash]; recent {
		return true
	}
	if _, old = s.old[hash]; old {
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
