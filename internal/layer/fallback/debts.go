package fallback

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

const debtShards = 64

// debts are the units of keys that were granted here without an id and that the store
// does not know of.
type debts struct {
	seed     maphash.Seed
	perShard int
	size     atomic.Int64
	shards   [debtShards]struct {
		mu  sync.Mutex
		all map[debtor]*debt
		// busy are those that are being recorded; each is closed once that is over.
		busy map[debtor]chan struct{}
	}
}

// A debtor is a key under an algorithm.
type debtor struct {
	key       string
	algorithm weir.Algorithm
}

// A debt is how much of one key.
type debt struct {
	slot  string
	limit *weir.Limit
	units int64
	until int64 // µs; nothing of it counts any more from then on
	// here is the limit that holds here, if it is not the share of the whole one.
	here *weir.Limit
}

// A span is from now until a key is as fresh as new, in µs.
type span struct{ now, fresh int64 }

func newDebts(most int) *debts {
	d := &debts{seed: maphash.MakeSeed(), perShard: max(1, most/debtShards)}
	for i := range d.shards {
		d.shards[i].all, d.shards[i].busy = map[debtor]*debt{}, map[debtor]chan struct{}{}
	}
	return d
}

func (d *debts) shard(key string) int { return int(maphash.String(d.seed, key) % debtShards) }

func debtorOf(c *weir.Charge) debtor { return debtor{c.Key, c.Limit.Algorithm} }

// begin calls first, while nobody else begins, if the key owes nothing yet, and
// remembers the limit that it returns, if any. It returns the one that is remembered.
func (d *debts) begin(c *weir.Charge, first func() *weir.Limit) *weir.Limit {
	sh := &d.shards[d.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if own := sh.all[debtorOf(c)]; own != nil {
		return own.here
	}
	if len(sh.all) >= d.perShard {
		return nil
	}
	own := &debt{slot: strings.Clone(c.HashTag), limit: c.Limit, here: first()}
	sh.all[debtor{strings.Clone(c.Key), c.Limit.Algorithm}] = own
	d.size.Add(1)
	return own.here
}

// add adds units, or takes some away, and reports whether there was a place for
// them.
func (d *debts) add(c *weir.Charge, units int64, s span) bool {
	sh := &d.shards[d.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	own := sh.all[debtorOf(c)]
	if own == nil {
		if units < 0 || len(sh.all) >= d.perShard {
			return units < 0
		}
		own = &debt{slot: strings.Clone(c.HashTag)}
		sh.all[debtor{strings.Clone(c.Key), c.Limit.Algorithm}] = own
		d.size.Add(1)
	}
	if s.now >= own.until {
		own.units = 0
	}
	own.limit = c.Limit
	own.units = max(0, own.units+units)
	own.until = max(own.until, s.fresh)
	return true
}

// cancel takes up to so many units of a key away, which the store has charged, and
// returns how many.
func (d *debts) cancel(c *weir.Charge, units int64) int64 {
	sh := &d.shards[d.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	own := sh.all[debtorOf(c)]
	if own == nil {
		return 0
	}
	n := min(own.units, units)
	own.units -= n
	return n
}

// collect takes up to so many debts out, as acts that charge the store. Those of
// which nothing counts any more are dropped; the others count until done.
func (d *debts) collect(most int, now int64) []*weir.Act {
	var acts []*weir.Act
	// Those of a node that is out come back: they must not keep the others from going.
	first := rand.IntN(debtShards)
	for i := range d.shards {
		sh := &d.shards[(first+i)%debtShards]
		sh.mu.Lock()
		for who, own := range sh.all {
			if len(acts) == most {
				break
			}
			if sh.busy[who] != nil {
				continue
			}
			delete(sh.all, who)
			if own.units > 0 && now < own.until {
				acts, sh.busy[who] = append(acts, own.record(who)), make(chan struct{})
			} else {
				d.size.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
	return acts
}

// claim takes the debt of one key out, as an act that charges the store, which counts
// until done; nil if it owes nothing. If it is being recorded, busy is closed once that
// is over.
func (d *debts) claim(c *weir.Charge, now int64) (record *weir.Act, busy <-chan struct{}) {
	sh, who := &d.shards[d.shard(c.Key)], debtorOf(c)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if busy := sh.busy[who]; busy != nil {
		return nil, busy
	}
	own := sh.all[who]
	if own == nil || own.units == 0 || now >= own.until {
		return nil, nil
	}
	// The caller's key may be in memory that is used again.
	who.key = strings.Clone(who.key)
	delete(sh.all, who)
	sh.busy[who] = make(chan struct{})
	record = own.record(who)
	return record, nil
}

// record is the act that charges the store, with no more than one full drain.
func (own *debt) record(who debtor) *weir.Act {
	units := min(own.units, own.limit.Capacity())
	return &weir.Act{
		Kind:      weir.KindRecord,
		Charges:   []weir.Charge{{Key: who.key, HashTag: own.slot, Limit: own.limit, Cost: units, At: own.until}},
		Decisions: make([]weir.Decision, 1),
	}
}

// back puts a debt back that was not recorded.
func (d *debts) back(a *weir.Act, now int64) bool {
	c := &a.Charges[0]
	return d.add(c, c.Cost, span{now, c.At})
}

// drop puts debts back that were taken out for a call that did not return.
func (d *debts) drop(records []*weir.Act, now int64) {
	for _, a := range records {
		d.back(a, now)
		d.done(&a.Charges[0])
	}
}

// done ends a debt that was taken out.
func (d *debts) done(c *weir.Charge) {
	sh, who := &d.shards[d.shard(c.Key)], debtorOf(c)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	close(sh.busy[who])
	delete(sh.busy, who)
	d.size.Add(-1)
}

// owing is how many keys owe something.
func (d *debts) owing(now int64) int {
	n := 0
	for i := range d.shards {
		sh := &d.shards[i]
		sh.mu.Lock()
		for _, own := range sh.all {
			if own.units > 0 && now < own.until {
				n++
			}
		}
		sh.mu.Unlock()
	}
	return n
}

// len is how many keys there are, those that owe nothing and those that are being
// recorded included.
func (d *debts) len() int { return int(d.size.Load()) }
