package redisstore

import (
	"encoding/binary"
	"fmt"
	"strconv"

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
	acts  []*weir.Act
	keys  []string
	rules []*algo.Rule
	// keyOf and ruleOf number what has been seen, from 1.
	keyOf   map[string]int
	ruleOf  map[*algo.Rule]int
	keyRule []int
	packed  []byte
	charges int
}

func newBatch(namer keyer) *batch {
	return &batch{namer: namer, keyOf: make(map[string]int), ruleOf: make(map[*algo.Rule]int)}
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

// fits reports whether the act can join: there is room, and no key that is
// already here comes under another limit, which needs its state written and
// read in between.
func (b *batch) fits(a *weir.Act) bool {
	if len(b.acts) == maxActs || len(b.keys)+len(a.Charges) > maxKeys {
		return false
	}
	for i := range a.Charges {
		k, seen := b.keyOf[b.namer.name(&a.Charges[i])]
		if seen && *b.rules[b.keyRule[k-1]-1] != *a.Charges[i].Limit.Rule() {
			return false
		}
	}
	return true
}

func (b *batch) add(a *weir.Act) {
	b.acts = append(b.acts, a)
	b.packed = append(b.packed, byte(a.Kind), byte(len(a.Charges)))
	for i := range a.Charges {
		c := &a.Charges[i]
		b.packed = binary.BigEndian.AppendUint16(b.packed, uint16(b.key(c)))
		b.packed = append56(b.packed, c.Cost)
		b.packed = append56(b.packed, c.UpTo)
		b.charges++
	}
}

func (b *batch) key(c *weir.Charge) int {
	name := b.namer.name(c)
	k, seen := b.keyOf[name]
	if !seen {
		b.keys = append(b.keys, name)
		k = len(b.keys)
		b.keyOf[name] = k
		b.keyRule = append(b.keyRule, b.rule(c.Limit.Rule()))
	}
	return k
}

func (b *batch) rule(r *algo.Rule) int {
	n, seen := b.ruleOf[r]
	if !seen {
		b.rules = append(b.rules, r)
		n = len(b.rules)
		b.ruleOf[r] = n
	}
	return n
}

// args is the script's ARGV.
func (b *batch) args() []any {
	request := binary.BigEndian.AppendUint16(nil, uint16(len(b.rules)))
	request = binary.BigEndian.AppendUint16(request, uint16(len(b.acts)))
	args := make([]any, 1, 1+len(b.rules))
	for _, r := range b.rules {
		request = appendRule(request, r)
		args = append(args, strconv.FormatInt(r.Drain/1000+1+slack, 10))
	}
	for _, r := range b.keyRule {
		request = binary.BigEndian.AppendUint16(request, uint16(r))
	}
	args[0] = append(request, b.packed...)
	return args
}

func appendRule(p []byte, r *algo.Rule) []byte {
	flags := byte(0)
	if r.ChargeRefused {
		flags |= 1
	}
	if r.AnchorFirst {
		flags |= 2
	}
	p = append(p, byte(r.ID), flags)
	params := r.Params()
	for _, n := range [...]int64{r.Burst, r.Cap, params[0], params[1], params[2], params[3]} {
		p = append56(p, n)
	}
	return p
}

// append56 appends a number below 2⁵⁶ in seven bytes.
func append56(p []byte, n int64) []byte {
	return append(p, byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func read56(p string) int64 {
	var n int64
	for i := range 7 {
		n = n<<8 | int64(p[i])
	}
	return n
}

const (
	headBytes     = 9
	decisionBytes = 29
)

// decode hands the answers out and returns how many keys held something foreign.
func (b *batch) decode(reply string) (int64, error) {
	if len(reply) != headBytes+b.charges*decisionBytes {
		return 0, fmt.Errorf("%w: %d bytes for %d charges", weir.ErrBackend, len(reply), b.charges)
	}
	at, foreign := read56(reply), int64(reply[7])<<8|int64(reply[8])
	reply = reply[headBytes:]
	for _, a := range b.acts {
		for i := range a.Decisions {
			d, ok := decodeDecision(reply[:decisionBytes])
			if !ok {
				return foreign, fmt.Errorf("%w: outcome %d", weir.ErrBackend, reply[0])
			}
			d.At = at
			a.Decisions[i] = d
			reply = reply[decisionBytes:]
		}
	}
	return foreign, nil
}

var outcomes = [...]weir.Outcome{1: weir.Granted, 2: weir.Refused, 3: weir.Spared, 4: weir.Refused}

const refusedForEver = 4

func decodeDecision(p string) (weir.Decision, bool) {
	code := p[0]
	if code == 0 || int(code) >= len(outcomes) {
		return weir.Decision{}, false
	}
	d := weir.Decision{
		Outcome:    outcomes[code],
		Source:     weir.SourceStore,
		Granted:    read56(p[1:]),
		Remaining:  read56(p[8:]),
		RetryAfter: weir.DurationOf(read56(p[15:])),
		ResetAfter: weir.DurationOf(read56(p[22:])),
	}
	if code == refusedForEver {
		d.RetryAfter = weir.Never
	}
	return d, true
}

func (b *batch) fail(err error) {
	for _, a := range b.acts {
		a.Err = err
	}
}
