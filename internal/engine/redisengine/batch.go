package redisengine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

const (
	// maxKeys and maxItems bound one script call, during which Redis serves no other
	// client; maxActs bounds how many acts wait for it.
	maxKeys  = 128
	maxItems = 256
	maxActs  = 4096
	// maxBuckets bounds the buckets of rolling windows in one call. A take reads one or two, and
	// all of them only after a long pause or if it is refused a large cost.
	maxBuckets = 8 * algo.MaxBuckets
	// slack is how long a key outlives its meaning, in ms.
	slack = 1000
)

// A batch is the acts of one script call, as the request and as the answers need them.
// lua/head.lua and lua/plain.lua have the formats.
type batch struct {
	now    int64 // an estimate of the store's time, for calendars
	acts   []*weir.Act
	items  []item
	itemOf []int32 // the item of each act
	rules  []rule
	keys   keyring
	// buckets is how many buckets the items may have to read, each by itself.
	buckets int
	// plain is set if there are only runs of limits whose state is one string.
	plain bool
	ruled []int32 // the rules, as the request has them
	order []int32 // the items, as a plain request and its reply have them
	// extended is set if an extension adds to the reply.
	extended bool
	script   *script
	packet   packet
	written  bool // it was written to a connection
	args     []any
}

// An item is one operation of the script: an act, or a run.
type item struct {
	act  *weir.Act // the only one or the first
	part *part     // nil unless the act is a part of another
	identity
	record int  // the number of its record's key, from 1; 0: none
	fills  bool // see [acts.Fills]
	run
	isRun bool
	next  int32 // the next item of its key, or -1
}

// A rule is a limit in force during the call.
type rule struct {
	*algo.Rule
	limit *weir.Limit // nil: of blocks
	ttl   int64       // of a key without debt, ms
	keys  int32
}

// parts is 1 if the script reads only parts of the states under the rule, else 0.
func (r *rule) parts() int {
	if r.Step().State == algo.RingText {
		return 1
	}
	return 0
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns an empty batch; now is an estimate of the store's time.
func newBatch(namer keyer, now int64) *batch {
	b := batches.Get().(*batch)
	b.keys.namer, b.now, b.plain = namer, now, true
	return b
}

// free empties the batch, which is no longer used, and keeps its memory for another one.
func (b *batch) free() {
	clear(b.acts)
	clear(b.items)
	clear(b.rules)
	clear(b.args)
	clear(b.keys.all)
	*b = batch{
		acts: b.acts[:0], items: b.items[:0], itemOf: b.itemOf[:0], rules: b.rules[:0], ruled: b.ruled[:0], order: b.order[:0],
		packet: b.packet[:0], args: b.args[:0], keys: keyring{all: b.keys.all[:0], names: b.keys.names[:0]},
	}
	batches.Put(b)
}

// fill adds acts from the front as long as they fit, and returns how many. It answers
// those that need no store.
func (b *batch) fill(all []*weir.Act) int {
	for i, a := range all {
		if acts.Prepare(a) {
			continue
		}
		if len(b.acts) > 0 && !b.fits(a) {
			return i
		}
		b.add(a)
	}
	return len(all)
}

// fits reports whether the act can be added: there is room; no key of the batch comes
// under another limit, because its state has to be written and read in between; and no other
// act of the batch has a key of an act that is no take, because such an act changes the
// history of a key, which does not have the charges of the same call yet.
func (b *batch) fits(a *weir.Act) bool {
	if len(b.acts) == maxActs || len(b.items) == maxItems || b.buckets+b.reads(a) > maxBuckets {
		return false
	}
	added := 0
	if a.ID != "" {
		added++
	}
	for i := range a.Charges {
		k := b.keys.find(&a.Charges[i])
		if more, fits := b.fitsBlock(&a.Charges[i]); !fits {
			return false
		} else if more {
			added++
		}
		if k < 0 {
			added++
		} else if a.Kind != acts.KindTake || b.keys.all[k].sealed || !b.under(&b.rules[b.keys.all[k].rule-1], a.Charges[i].Limit) {
			return false
		}
	}
	return len(b.keys.all)+added <= maxKeys
}

// fitsBlock reports whether the blocks of a charge's key are new to the batch, and whether they
// have no other rule there.
func (b *batch) fitsBlock(c *weir.Charge) (added, fits bool) {
	if c.Limit.Block == 0 {
		return false, true
	}
	k := b.keys.findKey(tagSource(c), blockKey(c))
	return k < 0, k < 0 || *b.rules[b.keys.all[k].rule-1].Rule == *c.Limit.Blocks()
}

// reads returns how many more buckets are read for the act: none if it joins a run.
func (b *batch) reads(a *weir.Act) int {
	n := acts.Buckets(a)
	if n == 0 || !runs(a) || b.extended {
		return n
	}
	if k := b.keys.find(&a.Charges[0]); k >= 0 {
		if last := b.keys.all[k].last; last >= 0 && b.items[last].joins(a) {
			return 0
		}
	}
	return n
}

// under reports whether a limit equals the rule.
func (b *batch) under(r *rule, limit *weir.Limit) bool {
	return r.limit == limit || *r.Rule == limit.RuleAt(b.now)
}

func (b *batch) add(a *weir.Act) {
	i := int32(len(b.items))
	if runs(a) && !b.extended {
		i = b.addRun(a)
	} else {
		b.addAct(a, nil)
	}
	b.acts = append(b.acts, a)
	b.itemOf = append(b.itemOf, i)
}

// addPart adds the part of an act that lies in one hash slot.
func (b *batch) addPart(p *part) {
	if p.whole == nil || p.ID == "" && !p.elsewhere {
		b.add(p.Act)
		return
	}
	b.acts = append(b.acts, p.Act)
	b.itemOf = append(b.itemOf, int32(len(b.items)))
	b.addAct(p.Act, p)
}

// addRun adds the act to the last item of its key, or as an item of its own, and
// returns which.
func (b *batch) addRun(a *weir.Act) int32 {
	c := &a.Charges[0]
	k := b.key(c)
	own := &b.keys.all[k]
	if last := own.last; last >= 0 && b.items[last].joins(a) {
		b.items[last].times++
		return last
	}
	b.buckets += acts.Buckets(a)
	i := b.push(own, item{act: a, isRun: true, run: newRun(a, b.rules[own.rule-1].Rule)})
	b.items[i].key = int32(k)
	b.plain = b.plain && b.items[i].rule.Step().State != algo.Collection && !b.items[i].rule.Calendar
	return i
}

func (b *batch) addAct(a *weir.Act, p *part) {
	for i := range a.Charges {
		b.blockKey(&a.Charges[i])
		own := &b.keys.all[b.key(&a.Charges[i])]
		// A later take of the key begins a new run.
		own.last, own.sealed = -1, a.Kind != acts.KindTake
	}
	b.buckets += acts.Buckets(a)
	it := item{act: a, part: p, next: -1}
	switch {
	case p != nil:
		it.identity = p.identity()
	case a.ID != "":
		it.identity = b.keys.namer.identify(a, a.ID)
	case a.Anonymous:
		it.high, it.low = rand.Uint64(), rand.Uint64()
	}
	if remembered(a) {
		k, _ := b.keys.number(b.keys.namer.recordSource(a), it.identity.record())
		it.record = k + 1
	}
	b.items = append(b.items, it)
	b.plain = false
}

// push appends an item to those of a key and returns its number.
func (b *batch) push(own *key, it item) int32 {
	i := int32(len(b.items))
	it.next = -1
	b.items = append(b.items, it)
	if own.last >= 0 {
		b.items[own.last].next = i
	} else {
		own.first = i
	}
	own.last = i
	return i
}

// key numbers the key of a charge.
func (b *batch) key(c *weir.Charge) int {
	k, isNew := b.keys.number(tagSource(c), stateKey(c))
	if isNew {
		b.keys.all[k].rule = b.rule(c.Limit)
	}
	return k
}

// blockKey numbers the key of the blocks of a charge's key, if its limit has any.
func (b *batch) blockKey(c *weir.Charge) {
	if c.Limit.Block == 0 {
		return
	}
	k, isNew := b.keys.number(tagSource(c), blockKey(c))
	if !isNew {
		return
	}
	own := c.Limit.Blocks()
	n := slices.IndexFunc(b.rules, func(r rule) bool { return r.limit == nil && *r.Rule == *own }) + 1
	if n == 0 {
		b.rules = append(b.rules, rule{Rule: own, ttl: own.Drain/1000 + 1 + slack})
		n = len(b.rules)
	}
	b.rules[n-1].keys++
	b.keys.all[k].rule, b.keys.all[k].sealed = int32(n), true
}

// rule numbers a limit, from 1.
func (b *batch) rule(limit *weir.Limit) int32 {
	n := slices.IndexFunc(b.rules, func(r rule) bool { return r.limit == limit }) + 1
	if n == 0 {
		r := limit.Rule()
		if r.Calendar {
			at := limit.RuleAt(b.now)
			r = &at
		}
		b.rules = append(b.rules, rule{Rule: r, limit: limit, ttl: r.Drain/1000 + 1 + slack})
		n = len(b.rules)
	}
	b.rules[n-1].keys++
	return int32(n)
}

// fail answers all acts with an error.
func (b *batch) fail(err error) {
	for _, a := range b.acts {
		a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
	}
}
