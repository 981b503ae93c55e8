package remote

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

const outstandingShards = 64

// outstanding are the charges without an ID that were granted from local shares and that
// the store has not recorded.
type outstanding struct {
	seed     maphash.Seed
	perShard int
	size     atomic.Int64
	shards   [outstandingShards]outstandingShard
}

type outstandingShard struct {
	mu       sync.Mutex
	balances map[budget]*balance
	inFlight map[budget]recording
}

// A budget is a key under an algorithm.
type budget struct {
	key       string
	algorithm weir.Algorithm
}

func budgetOf(c *weir.Charge) budget { return budget{c.Key, c.Limit.Algorithm} }

// A recording is a balance that is being recorded in the store.
type recording struct {
	balance
	ended chan struct{} // closed then
}

// A balance is the outstanding units of one budget. There is one, of 0 units, for each
// budget that has a local share.
type balance struct {
	hashTag string
	limit   *weir.Limit
	units   int64
	until   int64 // µs; all units have drained by then
	// The units of a log or ring were granted since an instant, and the older ones in the
	// period before it.
	since, older int64
	begun        bool // local decisions have begun with it
	// local is the limit that holds here, if it is not the local share.
	local *weir.Limit
}

func newOutstanding(most int) *outstanding {
	o := &outstanding{seed: maphash.MakeSeed(), perShard: max(1, most/outstandingShards)}
	for i := range o.shards {
		o.shards[i].balances, o.shards[i].inFlight = map[budget]*balance{}, map[budget]recording{}
	}
	return o
}

func (o *outstanding) shard(key string) int {
	return int(maphash.String(o.seed, key) % outstandingShards)
}

// shardsOf are the shards of the keys of some acts.
func (o *outstanding) shardsOf(acts []*weir.Act) (keys shards) {
	for _, a := range acts {
		keys |= o.shardsOfAct(a)
	}
	return keys
}

func (o *outstanding) shardsOfAct(a *weir.Act) (keys shards) {
	for i := range a.Charges {
		keys |= 1 << o.shard(a.Charges[i].Key)
	}
	return keys
}

// begun returns the limit of a budget that holds here, nil for its local share, if local
// decisions have begun with its balance.
func (o *outstanding) begun(c *weir.Charge) (limit *weir.Limit, begun bool) {
	sh := &o.shards[o.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if b := sh.balances[budgetOf(c)]; b != nil && b.begun {
		return b.local, true
	}
	return nil, false
}

// balance returns the balance of a budget in its shard, which is locked: a new one if there is
// none, and nil if there is no room.
func (o *outstanding) balance(sh *outstandingShard, c *weir.Charge) *balance {
	b := sh.balances[budgetOf(c)]
	if b == nil && len(sh.balances) < o.perShard {
		b = &balance{hashTag: strings.Clone(c.HashTag), limit: c.Limit}
		sh.balances[budget{strings.Clone(c.Key), c.Limit.Algorithm}] = b
		o.size.Add(1)
	}
	return b
}

// begin is begun for a budget whose balance has not begun: it begins with the limit that
// first returns, which gets the units that the store may not have recorded.
func (o *outstanding) begin(c *weir.Charge, now int64, first func(unrecorded int64) *weir.Limit) *weir.Limit {
	sh := &o.shards[o.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := o.balance(sh, c)
	if b == nil {
		return nil
	}
	if !b.begun {
		unrecorded := int64(0)
		if now < b.until {
			unrecorded += b.units + b.older
		}
		if r := sh.inFlight[budgetOf(c)]; now < r.until {
			unrecorded += r.units + r.older
		}
		b.begun, b.local = true, first(unrecorded)
	}
	return b.local
}

// add adds units that drain by until, or removes some. It returns false if there is no
// room for another budget.
func (o *outstanding) add(c *weir.Charge, units, now, until int64) bool {
	sh := &o.shards[o.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := o.balance(sh, c)
	if b == nil {
		return false
	}
	b.limit = c.Limit
	b.age(now)
	b.units = max(0, b.units+units)
	b.until = max(b.until, until)
	return true
}

// cancel removes up to so many units that the store has charged by now, and returns how many.
func (o *outstanding) cancel(c *weir.Charge, units int64) int64 {
	sh := &o.shards[o.shard(c.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.balances[budgetOf(c)]
	if b == nil {
		return 0
	}
	n := min(b.units, units)
	b.units -= n
	return n
}

// collect removes up to so many balances and returns acts that record them, which count
// until done. It drops balances that have drained.
func (o *outstanding) collect(most int, now int64) []*weir.Act {
	var acts []*weir.Act
	// Balances of an unreachable node return here: they must not block the others.
	first := rand.IntN(outstandingShards)
	for i := range o.shards {
		sh := &o.shards[(first+i)%outstandingShards]
		sh.mu.Lock()
		for key, b := range sh.balances {
			if len(acts) == most {
				break
			}
			if sh.inFlight[key].ended != nil {
				continue
			}
			delete(sh.balances, key)
			if record := b.record(key, now); record != nil {
				acts, sh.inFlight[key] = append(acts, record), b.recording()
			} else {
				o.size.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
	return acts
}

// claim removes the balance of a charge's budget, so that the next local decision begins
// anew, and returns an act that records it, which counts until done; nil if there is nothing
// to record. If the budget is being recorded, busy is closed once that has ended.
func (o *outstanding) claim(c *weir.Charge, now int64) (record *weir.Act, busy <-chan struct{}) {
	sh, key := &o.shards[o.shard(c.Key)], budgetOf(c)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if busy := sh.inFlight[key].ended; busy != nil {
		return nil, busy
	}
	b := sh.balances[key]
	if b == nil {
		return nil, nil
	}
	delete(sh.balances, key)
	key.key = strings.Clone(key.key) // the caller's may be in memory that is used again
	if record = b.record(key, now); record == nil {
		o.size.Add(-1)
		return nil, nil
	}
	sh.inFlight[key] = b.recording()
	return record, nil
}

// forget removes the balance of a budget that has no units.
func (o *outstanding) forget(c *weir.Charge) {
	sh, key := &o.shards[o.shard(c.Key)], budgetOf(c)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if b := sh.balances[key]; b != nil && b.units+b.older == 0 {
		delete(sh.balances, key)
		o.size.Add(-1)
	}
}

// stays reports whether each unit counts for a period, and then no more.
func (b *balance) stays() bool {
	traits := algo.TraitsOf(b.limit.Algorithm)
	return traits.KeepsLog || traits.Buckets
}

// age forgets units that have drained.
func (b *balance) age(now int64) {
	if now >= b.until || b.units+b.older == 0 {
		b.units, b.older, b.since = 0, 0, now
	}
	for period := b.limit.Period.Microseconds(); b.stays() && now-b.since >= period && b.units+b.older > 0; {
		b.units, b.older, b.since = 0, b.units, b.since+period
	}
}

// due returns the units that the store lacks. It will count those of a log or ring for a whole
// period from now on, so that a unit of which a half is over counts as half a unit.
func (b *balance) due(now int64) int64 {
	if b.age(now); !b.stays() {
		return b.units
	}
	left := 1 - float64(now-b.since)/float64(b.limit.Period.Microseconds())
	return int64(math.Ceil((float64(b.units)*(1+left) + float64(b.older)*left*left) / 2))
}

// record returns the act that charges the store, with no more than the limit's capacity; nil if
// there is nothing to charge.
func (b *balance) record(key budget, now int64) *weir.Act {
	due := b.due(now)
	if due == 0 {
		return nil
	}
	units, anonymous := min(due, b.limit.Capacity()), algo.TraitsOf(b.limit.Algorithm).HoldsSlots
	if anonymous {
		units = min(units, algo.MaxSlots)
	}
	return &weir.Act{
		Kind: acts.KindRecord, Anonymous: anonymous,
		Charges:   []weir.Charge{{Key: key.key, HashTag: b.hashTag, Limit: b.limit, Cost: units, At: b.until}},
		Decisions: make([]weir.Decision, 1),
	}
}

func (b *balance) recording() recording { return recording{*b, make(chan struct{})} }

// restore adds the units of an act that was not recorded.
func (o *outstanding) restore(a *weir.Act, now int64) {
	key := budgetOf(&a.Charges[0])
	sh := &o.shards[o.shard(key.key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	was := sh.inFlight[key].balance
	was.age(now)
	if b := sh.balances[key]; b != nil {
		b.age(now)
		b.units, b.older = b.units+was.units, b.older+was.older
		b.since, b.until = min(b.since, was.since), max(b.until, was.until)
		return
	}
	was.begun, was.local = false, nil
	sh.balances[key] = &was
	o.size.Add(1)
}

// done ends the recording of a budget.
func (o *outstanding) done(c *weir.Charge) {
	sh, key := &o.shards[o.shard(c.Key)], budgetOf(c)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	close(sh.inFlight[key].ended)
	delete(sh.inFlight, key)
	o.size.Add(-1)
}

// positive is how many balances have units that have not drained.
func (o *outstanding) positive(now int64) int {
	n := 0
	for i := range o.shards {
		sh := &o.shards[i]
		sh.mu.Lock()
		for _, b := range sh.balances {
			if b.due(now) > 0 {
				n++
			}
		}
		sh.mu.Unlock()
	}
	return n
}

// len is how many balances there are, those of 0 units and those in flight included.
func (o *outstanding) len() int { return int(o.size.Load()) }

// refunds are acts that refund units which the store charged and no caller was granted.
type refunds struct {
	most     int
	mu       sync.Mutex // guards what follows
	acts     []*weir.Act
	inFlight int
}

func (r *refunds) add(a *weir.Act) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acts) >= r.most {
		return false
	}
	r.acts = append(r.acts, a)
	return true
}

// cancel removes up to so many units of a budget that are to be charged again, and returns
// how many.
func (r *refunds) cancel(c *weir.Charge, units int64) (cancelled int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.acts[:0]
	for _, a := range r.acts {
		own := &a.Charges[0]
		if n := min(own.Cost, units-cancelled); len(a.Charges) == 1 && budgetOf(own) == budgetOf(c) && n > 0 {
			cancelled += n
			if own.Cost -= n; own.Cost == 0 {
				continue
			}
		}
		left = append(left, a)
	}
	clear(r.acts[len(left):])
	r.acts = left
	return cancelled
}

// collect removes up to so many refunds that need not wait; they count until done.
func (r *refunds) collect(most int, wait func(*weir.Act) bool) []*weir.Act {
	r.mu.Lock()
	defer r.mu.Unlock()
	var collected, left []*weir.Act
	for _, a := range r.acts {
		if len(collected) < most && !wait(a) {
			collected = append(collected, a)
		} else {
			left = append(left, a)
		}
	}
	r.acts = left
	r.inFlight += len(collected)
	return collected
}

func (r *refunds) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
}

func (r *refunds) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acts) + r.inFlight
}

// addOutstanding notes units of the i-th charge of an act that the store has to record, or
// a negative number that it need not record any more. Slots with names are amended instead.
func (l *Remote) addOutstanding(a *weir.Act, i int, units int64) {
	c, fresh := &a.Charges[i], a.Decisions[i].ResetAfter
	if units == 0 || algo.TraitsOf(c.Limit.Algorithm).HoldsSlots && !a.Anonymous {
		return
	}
	if units > 0 {
		units -= l.refunds.cancel(c, units)
	}
	now := l.now()
	if !l.outstanding.add(c, units, now, now+fresh.Microseconds()) {
		l.counts.doubtful.Add(max(0, units))
	}
	l.wake()
}

// addRefund notes units of a decision of the store that it has to refund.
func (l *Remote) addRefund(c *weir.Charge, d *weir.Decision, units int64) {
	if units -= l.outstanding.cancel(c, units); units == 0 {
		l.counts.reconciled.Add(1)
		return
	}
	own := *c
	own.Cost, own.UpTo, own.Keep, own.Guaranteed, own.At, own.Delay = units, 0, 0, false, d.At.UnixMicro(), d.Delay
	anonymous := algo.TraitsOf(c.Limit.Algorithm).HoldsSlots
	if !l.refunds.add(&weir.Act{Kind: acts.KindRefund, Anonymous: anonymous, Charges: []weir.Charge{own}, Decisions: make([]weir.Decision, 1)}) {
		l.counts.doubtful.Add(units)
	}
}
