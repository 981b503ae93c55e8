package redisengine

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// chargeWaived marks the key of a charge that is waived.
const chargeWaived = 1 << 15

// kindBlocks is added to the kind of an act whose limits block keys.
const kindBlocks = 1 << 7

const (
	flagChargeRefused = 1
	flagAnchorFirst   = 2
	flagCalendar      = 4

	flagMore      = 1
	flagImmediate = 2
	flagRun       = 4
	flagElsewhere = 8
	flagKeep      = 16
	flagAnonymous = 32
	flagAlt       = 64
	flagDry       = 128

	runImmediate = 1
	runUpTo      = 2
	runFollowed  = 4
	runKeep      = 8
)

// A packet is a packed request.
type packet []byte

// A request is a batch as the client writes it, without a copy.
type request batch

// MarshalBinary returns the bytes. The client calls it once it has a connection to
// write them to.
func (r *request) MarshalBinary() ([]byte, error) {
	r.written = true
	return r.packet, nil
}

// head is how many arguments come before the keys: command, script, their number.
const head = 3

// pack writes the arguments of the call: the keys, those of an extension, the request, the
// times to live, and the arguments of an extension.
func (b *batch) pack(moreKeys []string, moreArgs ...any) {
	b.keys.name()
	b.args = append(b.args[:0], nil, nil, len(b.keys.all)+len(moreKeys))
	b.order, b.packet = b.order[:0], append16(b.packet[:0], len(b.rules))
	b.ruled = b.ruled[:0]
	for r := range b.rules {
		b.ruled = append(b.ruled, int32(r))
	}
	if b.plain {
		b.packPlain()
	} else {
		b.packWhole()
	}
	for i := range moreKeys {
		b.args = append(b.args, moreKeys[i])
	}
	b.args = append(b.args, (*request)(b))
	for _, r := range b.ruled {
		b.args = append(b.args, &b.rules[r].ttl)
	}
	b.args = append(b.args, moreArgs...)
}

// packPlain packs the keys of each rule with their runs, the rolling windows last.
func (b *batch) packPlain() {
	slices.SortStableFunc(b.ruled, func(r, s int32) int { return b.rules[r].parts() - b.rules[s].parts() })
	whole := 0
	for _, r := range b.rules {
		whole += (1 - r.parts()) * int(r.keys)
	}
	b.packet = append16(b.packet, whole)
	for _, r := range b.ruled {
		b.packet = appendRule(b.packet, b.rules[r].Rule)
		b.packet = append16(b.packet, int(b.rules[r].keys))
		for k := range b.keys.all {
			own := &b.keys.all[k]
			if own.rule != r+1 {
				continue
			}
			b.args = append(b.args, &own.name)
			for i := own.first; i >= 0; i = b.items[i].next {
				b.packet = b.items[i].append(b.packet, b.items[i].next >= 0)
				b.order = append(b.order, i)
			}
		}
	}
}

func (b *batch) packWhole() {
	b.packet = append16(b.packet, len(b.items))
	for i := range b.rules {
		b.packet = appendRule(b.packet, b.rules[i].Rule)
	}
	for k := range b.keys.all {
		b.args = append(b.args, &b.keys.all[k].name)
		b.packet = append16(b.packet, int(b.keys.all[k].rule))
	}
	for i := range b.items {
		it := &b.items[i]
		if !it.isRun {
			b.packAct(it)
			continue
		}
		b.packet = append(b.packet, byte(acts.KindTake), 1, flagRun)
		b.packet = append16(b.packet, int(it.key)+1)
		b.packet = it.append(b.packet, false)
	}
}

func (b *batch) packAct(it *item) {
	a := it.act
	b.packet = it.appendAct(b.packet)
	granted := a.Allowed() && (it.part == nil || !it.part.elsewhere)
	it.fills = acts.Fills(a)
	for i := range a.Charges {
		c := &a.Charges[i]
		b.packet = appendCharge(b.packet, a.Kind, c, b.keys.find(c)+1)
		if a.Kind == acts.KindAmend {
			b.packet = appendOutcome(b.packet, c, &a.Decisions[i], granted, acts.Optional(a, i), acts.PassedOver(a, i))
		}
	}
	if it.record > 0 {
		b.packLines(a)
	}
	if keeps(a) {
		for i := range a.Charges {
			keep := a.Charges[i].Keep
			if a.Charges[i].Guaranteed {
				keep = -1
			}
			b.packet = append56(b.packet, keep)
		}
	}
	if a.Alternatives() {
		for i := range a.Charges {
			b.packet = append(b.packet, a.Charges[i].Group)
		}
		for i := range a.Charges {
			b.packet = append(b.packet, a.Charges[i].Alt)
		}
	}
	if !blocks(a) {
		return
	}
	for i := range a.Charges {
		c, k := &a.Charges[i], 0
		if c.Limit.Block > 0 {
			k = b.keys.findKey(tagSource(c), blockKey(c)) + 1
		}
		b.packet = append56(append16(b.packet, k), int64((c.Block+time.Millisecond-1)/time.Millisecond))
	}
}

// packLines packs the names of an act's charges as lines of a record: a keyed hash of the key,
// and the number of earlier charges of that key.
func (b *batch) packLines(a *weir.Act) {
	n := b.keys.namer
	for i := range a.Charges {
		k := b.keys.find(&a.Charges[i])
		line := siphash.Hash(n.k0, n.k1, []byte(b.keys.all[k].name))
		for j := range i {
			if b.keys.find(&a.Charges[j]) == k {
				line++
			}
		}
		b.packet = binary.BigEndian.AppendUint64(b.packet, line)
	}
}

// append adds the run to a request.
func (r *run) append(p []byte, followed bool) []byte {
	flags := byte(0)
	if r.immediate {
		flags |= runImmediate
	}
	if r.upTo > 0 {
		flags |= runUpTo
	}
	if followed {
		flags |= runFollowed
	}
	if r.keep > 0 {
		flags |= runKeep
	}
	p = append16(append(p, flags), int(r.times))
	p = append56(p, r.cost)
	if r.upTo > 0 {
		p = append56(p, r.upTo)
	}
	if r.keep > 0 {
		p = append56(p, r.keep)
	}
	return p
}

func appendRule(p []byte, r *algo.Rule) []byte {
	flags := byte(0)
	if r.ChargeRefused {
		flags |= flagChargeRefused
	}
	if r.AnchorFirst {
		flags |= flagAnchorFirst
	}
	if r.Calendar {
		flags |= flagCalendar
	}
	p = append(p, byte(r.ID), flags)
	params := r.Params()
	for _, n := range [...]int64{r.Burst, r.Cap, r.Debt, params[0], params[1], params[2], params[3]} {
		p = append56(p, n)
	}
	return p
}

// keeps reports whether a charge of the act keeps units free, or is made even if it does not
// fit.
func keeps(a *weir.Act) bool {
	for i := range a.Charges {
		if a.Charges[i].Keep > 0 || a.Charges[i].Guaranteed {
			return true
		}
	}
	return false
}

// blocks reports whether a limit of the act blocks keys.
func blocks(a *weir.Act) bool {
	return slices.ContainsFunc(a.Charges, func(c weir.Charge) bool { return c.Limit.Block > 0 })
}

// remembered reports whether the act's id has a record.
func remembered(a *weir.Act) bool {
	return a.ID != "" && a.Kind != acts.KindReset && a.Kind != acts.KindRecord
}

// An identity is an id in the store.
type identity struct {
	// high and low are a keyed hash of the id and of what it belongs to. They
	// name its record and its holder.
	high, low uint64
	// content is a fingerprint of the act's content.
	content uint64
	// life is how long it is remembered, refusedLife how long if the act is refused.
	life, refusedLife time.Duration
}

func (n keyer) identify(a *weir.Act, id string) identity {
	i := identity{content: acts.Content(a)}
	i.high, i.low = siphash.Hash128(n.k0, n.k1, append(acts.AppendOwner(make([]byte, 0, 128), a), id...))
	i.life, i.refusedLife = acts.Lives(a)
	return i
}

// record returns the key of the identity's record.
func (i *identity) record() key {
	text := appendBits(appendBits(make([]byte, 0, 2*hashLength), i.high, hashLength), i.low, hashLength)
	return key{text: string(text), letter: recordLetter, format: recordFormat}
}

func (it *item) appendAct(p []byte) []byte {
	a, flags := it.act, byte(0)
	if a.ID != "" || a.MaxWait > 0 || a.Anonymous {
		flags |= flagMore
	}
	if a.Anonymous {
		flags |= flagAnonymous
	}
	if a.Immediate {
		flags |= flagImmediate
	}
	if it.part != nil && (it.part.byStore || it.part.elsewhere && a.Kind == acts.KindTake) {
		flags |= flagElsewhere
	}
	if keeps(a) {
		flags |= flagKeep
	}
	if a.Alternatives() {
		flags |= flagAlt
	}
	if a.Dry {
		flags |= flagDry
	}
	kind := byte(a.Kind)
	if blocks(a) {
		kind += kindBlocks
	}
	p = append(p, kind, byte(len(a.Charges)), flags)
	if flags&flagMore == 0 {
		return p
	}
	p = append16(p, it.record)
	p = append56(p, it.life.Milliseconds())
	p = append56(p, it.refusedLife.Milliseconds())
	p = append56(p, a.MaxWait.Microseconds())
	p = append56(p, a.Hold.Microseconds())
	p = binary.BigEndian.AppendUint64(p, it.content)
	p = binary.BigEndian.AppendUint64(p, it.high)
	p = binary.BigEndian.AppendUint64(p, it.low)
	return binary.BigEndian.AppendUint64(p, a.Attempt)
}

func appendCharge(p []byte, kind weir.Kind, c *weir.Charge, key int) []byte {
	if c.Waived {
		key += chargeWaived
	}
	p = append16(p, key)
	p = append56(p, c.Cost)
	p = append56(p, c.UpTo)
	if kind == acts.KindRefund {
		p = append56(p, c.At)
		p = append56(p, c.Delay.Microseconds())
	}
	return p
}

// appendOutcome appends the decision that a take's caller got for a charge. Granted is
// whether the whole take was, optional whether there was an alternative, and over whether that was
// evaluated instead.
func appendOutcome(p []byte, c *weir.Charge, d *weir.Decision, granted, optional, over bool) []byte {
	var units, wait, delay int64
	outcome := byte(weir.NotCharged)
	switch {
	case granted && c.Waived:
		outcome = waived
	case over:
		outcome = byte(weir.NotEvaluated)
	case granted && (!optional || d.Outcome == weir.Granted):
		outcome, units, delay = byte(weir.Granted), d.Granted, d.Delay.Microseconds()
	case d.Outcome == weir.Refused && d.RetryAfter == weir.Never:
		outcome = refusedForEver
	case d.Outcome == weir.Refused && d.Blocked:
		outcome, wait = refusedByBlock, d.RetryAfter.Microseconds()
	case d.Outcome == weir.Refused:
		outcome, wait = byte(weir.Refused), d.RetryAfter.Microseconds()
	}
	p = append56(append(p, outcome), units)
	return append56(append56(p, wait), delay)
}

func append16(p []byte, n int) []byte { return binary.BigEndian.AppendUint16(p, uint16(n)) }

// append56 appends a number between −2⁵⁵ and 2⁵⁶ in seven bytes.
func append56(p []byte, n int64) []byte {
	return append(p, byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}
