package traffic

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/server/internal/topk"
)

const (
	// sketchShards is the number of locks: calls of different keys rarely wait for one
	// another.
	sketchShards = 8
	// sketchKeys is the number of keys that a shard tracks. A key with more than a
	// sketchKeys-th of a shard's counts is always among them.
	sketchKeys = 64
	// sketchAge is how long counts are gathered. They are kept for as long again, then
	// dropped.
	sketchAge = 5 * time.Minute
	// maxShown is the most bytes of a key that are shown.
	maxShown = 256
)

// sketch counts the keys that come most often, in shards.
type sketch struct {
	seed    maphash.Seed
	shards  [sketchShards]sketchShard
	turned  time.Time // guarded by the recorder's mu
	started bool
}

type sketchShard struct {
	mu          sync.Mutex
	now, before *topk.Counter[*tally] // nil: no keys
	_           [64]byte              // shards that are used at once are not neighbours
}

// A TopKey is one of the most frequent keys.
type TopKey struct {
	// Domain and Rule name the limit under which it came.
	Domain, Rule string
	Key          string // cut where it is long
	// Count is the number of granted units or of refusals. It may be too large, by at
	// most Error.
	Count, Error uint64
}

func (s *sketch) add(t *tally, key string, n uint64) {
	if n == 0 {
		return
	}
	key = shown(key)
	shard := &s.shards[maphash.String(s.seed, key)%sketchShards]
	shard.mu.Lock()
	if shard.now == nil {
		shard.now = topk.New[*tally](sketchKeys)
	}
	if kept := shard.now.Add(key, n); kept != nil {
		kept.Value = t
	}
	shard.mu.Unlock()
}

// shown returns a key as it is kept. A long key is shortened and gets a digest that tells
// it apart.
func shown(key string) string {
	if len(key) <= maxShown {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxShown-20] + "…" + hex.EncodeToString(sum[:8])
}

// turn drops the previous counts and starts new ones, once the current ones are old enough.
func (s *sketch) turn(now time.Time) {
	if !s.started {
		s.started, s.turned = true, now
	}
	if now.Sub(s.turned) < sketchAge {
		return
	}
	s.turned = now
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		shard.before, shard.now = shard.now, nil
		shard.mu.Unlock()
	}
}

// top returns the n keys with the largest counts.
func (s *sketch) top(n int) []TopKey {
	var all []TopKey
	for i := range s.shards {
		all = append(all, s.shards[i].keys()...)
	}
	slices.SortFunc(all, func(a, b TopKey) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

// keys returns the keys of a shard, each with what was counted now and before.
func (s *sketchShard) keys() []TopKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[string]TopKey{}
	for _, of := range []*topk.Counter[*tally]{s.before, s.now} {
		if of == nil {
			continue
		}
		for _, k := range of.Keys() {
			sum := sums[k.Name]
			sums[k.Name] = TopKey{k.Value.domain, k.Value.rule, k.Name, sum.Count + k.Count, sum.Error + k.Error}
		}
	}
	all := make([]TopKey, 0, len(sums))
	for _, k := range sums {
		all = append(all, k)
	}
	return all
}

// TopUsed returns the n keys that were granted most units in the last five to ten
// minutes, the most first.
func (r *Recorder) TopUsed(n int) []TopKey { return r.used.top(n) }

// TopRefused returns the n keys that were refused most often in the last five to
// ten minutes, the most first.
func (r *Recorder) TopRefused(n int) []TopKey { return r.refused.top(n) }
