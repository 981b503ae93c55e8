package remote

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

const lastKnownShards = 64

// lastKnown is the last known state of keys in the store, in a table of fixed size: keys
// whose hashes select the same entry replace each other.
type lastKnown struct {
	seed   maphash.Seed
	shards [lastKnownShards]struct {
		mu     sync.Mutex
		states []keyState
		_      [32]byte // to the end of a cache line
	}
}

// A keyState is the state of one key by a decision of the store.
type keyState struct {
	hash      uint64 // 0: the entry is empty
	remaining int64
	at, fresh int64 // when the reply came, and when the key would be as new; µs, our clock
	decided   int64 // when the store decided, by its clock
	blocked   int64 // when its block ends; µs, our clock; 0: it was not blocked
	instances int   // that the local share was seeded for; 0: it was not
}

func newLastKnown(keys int) *lastKnown {
	k := &lastKnown{seed: maphash.MakeSeed()}
	n := 1 << bits.Len(uint(max(1, keys/lastKnownShards)-1))
	for i := range k.shards {
		k.shards[i].states = make([]keyState, n)
	}
	return k
}

// hash names a key under an algorithm. It is never 0.
func (k *lastKnown) hash(c *weir.Charge) uint64 {
	return maphash.String(k.seed, c.Key) ^ uint64(c.Limit.Algorithm)<<1 | 1
}

// learn remembers the store's decisions about keys that have local shares during outages.
func (r *Remote) learn(all []*weir.Act) {
	now := r.now()
	for _, a := range all {
		if a.Err != nil {
			continue
		}
		for i := range a.Charges {
			c, d := &a.Charges[i], &a.Decisions[i]
			if d.Source == acts.SourceStore && r.Policy(c) == Local {
				r.lastKnown.put(c, d, now)
			}
		}
	}
}

// stale is the age, in µs, of a state that every later decision replaces, because the
// store's clock may have been set back.
const stale = int64(time.Second / time.Microsecond)

// put remembers a decision, unless a later one of the same key is known: replies need not
// come here in the order of the decisions.
func (k *lastKnown) put(c *weir.Charge, d *weir.Decision, now int64) {
	if c.Keep > 0 && d.Granted == 0 && d.Remaining == 0 && !d.Blocked {
		return // some of what the charge keeps free may be used
	}
	s := keyState{hash: k.hash(c), remaining: d.Remaining + c.Keep, at: now, fresh: now + d.ResetAfter.Microseconds(), decided: d.At.UnixMicro()}
	sh := &k.shards[s.hash>>58]
	entry := &sh.states[s.hash>>1&uint64(len(sh.states)-1)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case d.RetryAfter > 0 && d.Blocked:
		s.blocked = now + d.RetryAfter.Microseconds()
	case d.Blocked && entry.hash == s.hash && entry.blocked > now:
		s.blocked = entry.blocked
	case d.Blocked:
		s.blocked = now + min(d.ResetAfter, c.Limit.Block).Microseconds()
	}
	if entry.hash == s.hash && (entry.decided > s.decided || entry.decided == s.decided && entry.remaining < s.remaining) && now-entry.at < stale {
		return
	}
	*entry = s
}

// block is how long a key stays blocked by its last known state. news is as of remaining, which
// is to be called after it.
func (k *lastKnown) block(c *weir.Charge, n int, now int64) (left time.Duration, news bool) {
	hash := k.hash(c)
	sh := &k.shards[hash>>58]
	sh.mu.Lock()
	s := sh.states[hash>>1&uint64(len(sh.states)-1)]
	sh.mu.Unlock()
	if s.hash != hash {
		return 0, false
	}
	return time.Duration(max(0, s.blocked-now)) * time.Microsecond, s.instances != n
}

// remaining is how many units of a key must be left by its last known state, as if used
// units drained evenly. A fixed window keeps them until its end, and holders their slots.
// news reports whether the state has come since the local share of one of n instances was
// seeded.
func (k *lastKnown) remaining(c *weir.Charge, n int, now int64) (left int64, news bool) {
	hash, full := k.hash(c), c.Limit.Capacity()
	sh := &k.shards[hash>>58]
	entry := &sh.states[hash>>1&uint64(len(sh.states)-1)]
	sh.mu.Lock()
	s := *entry
	if s.hash == hash {
		entry.instances = n
	}
	sh.mu.Unlock()
	if s.hash != hash || now >= s.fresh || s.remaining >= full {
		return full, false
	}
	used := full - s.remaining
	if !algo.TraitsOf(c.Limit.Algorithm).Windows && !algo.TraitsOf(c.Limit.Algorithm).HoldsSlots && now > s.at {
		// A unit that has drained in part counts as used.
		used = min(used, int64(math.Ceil(float64(used)*float64(s.fresh-now)/float64(s.fresh-s.at))))
	}
	return max(0, full-used), s.instances != n
}
