package redisstore

import (
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

const (
	// maxKeys and maxActs bound one script call, during which Redis serves
	// nobody else.
	maxKeys = 64
	maxActs = 256
	// slack is how much longer than it matters a key lives, in ms.
	slack = 1000
)

// A batch is the acts of one script call: what goes out, and where the answers
// belong. lua/head.lua has the format.
type batch struct {
	namer keyer
	now   int64 // about the store's time, for calendars
	acts  []*weir.Act
	keys  []string
	rules []algo.Rule
	// keyOf numbers the keys that have been seen, ruleOf the limits, from 1.
	keyOf   map[string]int
	ruleOf  map[*weir.Limit]int
	keyRule []int // 0: a record
	packed  []byte
	// extended allows for more in the reply than the answers to the acts.
	extended bool
}

func newBatch(namer keyer, now int64) *batch {
	return &batch{namer: namer, now: now, keyOf: make(map[string]int), ruleOf: make(map[*weir.Limit]int)}
}

// fill takes acts from the front as long as they fit and returns how many; those
// that need no store are answered on the way.
func (b *batch) fill(acts []*weir.Act) int {
	for i, a := range acts {
		if a.Prepare() {
			continue
		}
		if len(b.acts) > 0 && !b.fits(a) {
			return i
		}
		b.add(a)
	}
	return len(acts)
}

// fits reports whether the act can join: there is room, no key that is already
// here comes under another limit, which needs its state written and read in
// between, and all are takes, which the others are not made to live with.
func (b *batch) fits(a *weir.Act) bool {
	if len(b.acts) == maxActs || len(b.keys)+len(a.Charges)+1 > maxKeys {
		return false
	}
	if a.Kind != weir.Take || b.acts[0].Kind != weir.Take {
		return false
	}
	for i := range a.Charges {
		k, seen := b.keyOf[b.namer.name(&a.Charges[i])]
		if seen && b.rules[b.keyRule[k-1]-1] != a.Charges[i].Limit.RuleAt(b.now) {
			return false
		}
	}
	return true
}

func (b *batch) add(a *weir.Act) {
	b.acts = append(b.acts, a)
	record := 0
	if a.ID != "" && a.Kind != weir.Reset && a.Kind != weir.Record {
		record = b.key(b.namer.record(a), nil)
	}
	b.packed = appendAct(b.packed, a, record)
	for i := range a.Charges {
		c := &a.Charges[i]
		b.packed = appendCharge(b.packed, a.Kind, c, b.key(b.namer.name(c), c.Limit))
	}
}

// key numbers a key under a limit, or a record if there is no limit.
func (b *batch) key(name string, limit *weir.Limit) int {
	k, seen := b.keyOf[name]
	if !seen {
		b.keys = append(b.keys, name)
		k = len(b.keys)
		b.keyOf[name] = k
		b.keyRule = append(b.keyRule, b.rule(limit))
	}
	return k
}

func (b *batch) rule(limit *weir.Limit) int {
	if limit == nil {
		return 0
	}
	n, seen := b.ruleOf[limit]
	if !seen {
		b.rules = append(b.rules, limit.RuleAt(b.now))
		n = len(b.rules)
		b.ruleOf[limit] = n
	}
	return n
}

// args is the script's ARGV.
func (b *batch) args() []any {
	request := append16(nil, len(b.rules))
	request = append16(request, len(b.acts))
	args := make([]any, 1, 1+len(b.rules))
	for i := range b.rules {
		request = appendRule(request, &b.rules[i])
		args = append(args, strconv.FormatInt(b.rules[i].Drain/1000+1+slack, 10))
	}
	for _, r := range b.keyRule {
		request = append16(request, r)
	}
	args[0] = append(request, b.packed...)
	return args
}

// life is how long an act's id is remembered.
func life(a *weir.Act) time.Duration {
	d := max(weir.IDLife, a.Hold)
	for i := range a.Charges {
		if a.Charges[i].Limit.Algorithm == weir.Concurrency {
			d = max(d, a.Charges[i].Limit.Period)
		}
	}
	return d
}

func (b *batch) fail(err error) {
	for _, a := range b.acts {
		a.Err = err
	}
}
