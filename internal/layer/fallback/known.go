package fallback

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

const knownShards = 64

// known is what the store last said about keys, in a table of fixed size: a key
// takes the place of another one that has the same.
type known struct {
	seed   maphash.Seed
	shards [knownShards]struct {
		mu     sync.Mutex
		places []sight
		_      [32]byte // to the end of a cache line
	}
}

// A sight is what the store said about one key.
type sight struct {
	hash      uint64
	remaining int64
	at, fresh int64 // when, and when the key would be as new; µs
	decided   int64 // when, by the store's clock
}

func newKnown(keys int) *known {
	k := &known{seed: maphash.MakeSeed()}
	n := 1 << bits.Len(uint(max(1, keys/knownShards)-1))
	for i := range k.shards {
		k.shards[i].places = make([]sight, n)
	}
	return k
}

// hash names a key under an algorithm. It is never 0, which is an empty place.
func (k *known) hash(c *weir.Charge) uint64 {
	return maphash.String(k.seed, c.Key) ^ uint64(c.Limit.Algorithm)<<1 | 1
}

// put notes what the store said, unless it has said something later of the same key: who
// was answered first need not be the first to come here.
func (k *known) put(c *weir.Charge, d *weir.Decision, now int64) {
	s := sight{k.hash(c), d.Remaining, now, now + d.ResetAfter.Microseconds(), d.At}
	sh := &k.shards[s.hash>>58]
	place := &sh.places[s.hash>>1&uint64(len(sh.places)-1)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if place.hash == s.hash && (place.decided > s.decided || place.decided == s.decided && place.remaining < s.remaining) && now-place.at < stale {
		return
	}
	*place = s
}

// stale is after how long a later sight counts whatever the store's clock said, which may
// have been set back; µs.
const stale = int64(time.Second / time.Microsecond)

// remaining is what must be left of a key's budget by what the store last said, as if
// what was used drained evenly; a window keeps it until its end, and holders keep their
// slots.
func (k *known) remaining(c *weir.Charge, now int64) int64 {
	hash, full := k.hash(c), c.Limit.Capacity()
	sh := &k.shards[hash>>58]
	sh.mu.Lock()
	s := sh.places[hash>>1&uint64(len(sh.places)-1)]
	sh.mu.Unlock()
	if s.hash != hash || now >= s.fresh || s.remaining >= full {
		return full
	}
	used := full - s.remaining
	if c.Limit.Algorithm != weir.FixedWindow && c.Limit.Algorithm != weir.Concurrency && now > s.at {
		// What has drained in part is used as a whole.
		used = min(used, int64(math.Ceil(float64(used)*float64(s.fresh-now)/float64(s.fresh-s.at))))
	}
	return max(0, full-used)
}
