package fallback

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// deciding are the decisions that are being made here. Who asks the store of a key waits
// for those of the key that began before: what they grant is to be told to the store
// first.
type deciding struct {
	some   atomic.Int64
	shards [debtShards]sync.RWMutex
}

// begin locks the shards of an act's keys, in order, and end unlocks them. Nothing that
// waits is done in between.
func (d *deciding) begin(a *weir.Act, debts *debts) (shards uint64) {
	d.some.Add(1)
	for i := range a.Charges {
		shards |= 1 << debts.shard(a.Charges[i].Key)
	}
	for i := range d.shards {
		if shards&(1<<i) != 0 {
			d.shards[i].RLock()
		}
	}
	return shards
}

func (d *deciding) end(shards uint64) {
	for i := range d.shards {
		if shards&(1<<i) != 0 {
			d.shards[i].RUnlock()
		}
	}
	d.some.Add(-1)
}

// wait waits for the decisions of a shard that are being made.
func (d *deciding) wait(shard int) {
	if d.some.Load() > 0 {
		d.shards[shard].Lock()
		//lint:ignore SA2001 To have waited is all.
		d.shards[shard].Unlock()
	}
}
