// Package denycache remembers refusals. A refusal says how long nothing of its cost will
// fit; until then the same take is refused from memory, and costs the store nothing.
package denycache

import (
	"cmp"
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// Defaults of the fields of [Options] that are zero.
const (
	DefaultEntries = 1 << 16
	DefaultMaxAge  = time.Second
)

const (
	// maxKeyBytes is the length of the longest key that is remembered, so that the number
	// of entries bounds the memory.
	maxKeyBytes = 1 << 10
	maxEntries  = 1 << 26
)

// Options configure a [Layer]. The zero value is good.
type Options struct {
	// Entries bounds the refusals remembered, rounded up to a power of two, at most 2²⁶.
	// One takes about 200 bytes and its key, at most 1 KiB. Zero: [DefaultEntries].
	Entries int
	// MaxAge is how long a refusal is believed before the store is asked again, and so how
	// long another process's refund or reset may go unnoticed unless Forget is called.
	// Zero: [DefaultMaxAge].
	MaxAge time.Duration
	// Now is the clock by which refusals end. Nil: the monotonic clock.
	Now func() time.Time
}

// A Layer asks the next Taker, except for takes that it knows would be refused. It is safe
// for concurrent use and starts nothing. Create it with Wrap.
//
// It refuses only what the store would refuse: without a charge, with the source
// [acts.SourceDenyCache], and with the store's RetryAfter and ResetAfter as far as this
// process knows them: if charges that need less, by their cost and what they keep free,
// were granted since, to other processes or under limits other than gcra, leaky_bucket
// and fixed_window, the wait has become longer. An act of several charges is refused if the
// same act was refused before, or if none of its charges can have to wait longer than those
// that are known. Remaining is the number of units at the
// time of the refusal; it may have grown since. If the charge needs more than the one
// refused, or something was granted since, under gcra or leaky_bucket, RetryAfter may be
// one unit of the limit's resolution too long. The other charges of the act are
// [weir.NotEvaluated].
//
// Acts with an ID, a hold or a MaxWait and peeks go to the store, as do concurrency limits,
// whose slots may be released at any time, and limits with ChargeRefused except fixed
// windows.
type Layer struct {
	next     weir.Taker
	table    table
	maxAge   int64        // ns
	now      func() int64 // ns
	counters counters
}

// Wrap returns a Layer that asks next.
func Wrap(next weir.Taker, o Options) *Layer {
	o.Entries = cmp.Or(max(o.Entries, 0), DefaultEntries)
	o.MaxAge = cmp.Or(max(o.MaxAge, 0), DefaultMaxAge)
	l := &Layer{next: next, table: newTable(min(o.Entries, maxEntries)), maxAge: o.MaxAge.Nanoseconds(), now: monotonic()}
	if o.Now != nil {
		l.now = func() int64 { return o.Now().UnixNano() }
	}
	return l
}

// monotonic returns a clock that begins above zero, when nothing was forgotten yet.
func monotonic() func() int64 {
	start := time.Now()
	return func() int64 { return time.Since(start).Nanoseconds() + 1 }
}

// Take refuses the acts that it knows would be refused and asks the next Taker for the
// rest, in one call.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	if !foreseeable(acts) {
		l.next.Take(ctx, acts)
		l.forgetChanged(acts)
		return
	}
	before := l.now()
	left := l.refuse(acts, before)
	if len(left) == 0 {
		return
	}
	l.next.Take(ctx, left)
	for _, a := range left {
		if a.Allowed() {
			l.noteGranted(a)
		} else if a.Err == nil {
			l.learn(a, before)
		}
	}
}

// noteGranted updates the refusals of the keys of a granted act: their waits are now
// longer. A refusal of the cost that was granted is dropped.
func (l *Layer) noteGranted(a *weir.Act) {
	now := l.now()
	for i := range a.Charges {
		if d := &a.Decisions[i]; d.Granted > 0 {
			ch := &a.Charges[i]
			l.table.replace(ch.Key, func(e *entry) *entry { return e.after(ch, d, now) })
		}
	}
}

// foreseeable reports whether all acts are takes whose refusal can be known in advance. If any is
// not, the acts after it must not be decided before it.
func foreseeable(all []*weir.Act) bool {
	for _, a := range all {
		if a.Kind != acts.KindTake || a.ID != "" || a.MaxWait != 0 || a.Hold != 0 {
			return false
		}
	}
	return true
}

// refuse refuses the acts that are known to be refused and returns the others. The acts
// before a refused one can only take, so it would be refused after them as well.
func (l *Layer) refuse(acts []*weir.Act, now int64) []*weir.Act {
	if len(acts) == 1 {
		if l.refused(acts[0], now) {
			return nil
		}
		return acts
	}
	var left []*weir.Act
	for i, a := range acts {
		switch {
		case l.refused(a, now):
			if left == nil {
				left = append(make([]*weir.Act, 0, len(acts)), acts[:i]...)
			}
		case left != nil:
			left = append(left, a)
		}
	}
	if left == nil {
		return acts
	}
	return left
}

// refused refuses an act if one of its charges is known to be refused, or one of each
// alternative of a group, and if no other charge would have to wait longer.
func (l *Layer) refused(a *weir.Act, now int64) bool {
	known := false
	for i := 0; i < len(a.Charges) && !known; i = acts.GroupEnd(a, i) {
		known = l.refusedGroup(a, i, now)
	}
	// The store refuses for a limit of 0 before it looks at others.
	if !known || acts.Prepare(a) {
		return false
	}
	clear(a.Decisions)
	if act := l.table.actOf(a); !l.answer(a, act, now) && !longest(a) {
		return false
	}
	l.counters.hit(now)
	return true
}

// refusedGroup reports whether one charge of each alternative is known to be refused, of the
// group that begins with the i-th charge.
func (l *Layer) refusedGroup(a *weir.Act, i int, now int64) bool {
	for end := acts.GroupEnd(a, i); i < end; {
		next, known := acts.AltEnd(a, i), false
		for ; i < next && !known; i++ {
			if ch := &a.Charges[i]; cacheable(ch) {
				known = l.table.find(ch, a.Immediate, 0, now) != nil
			}
		}
		if !known {
			return false
		}
		i = next
	}
	return true
}

// answer fills in the decisions of the refused groups' charges that are known to be refused.
// It reports whether these are all refusals of the act.
func (l *Layer) answer(a *weir.Act, act uint64, now int64) bool {
	known, refusals := 0, 1
	for i := 0; i < len(a.Charges); {
		end := acts.GroupEnd(a, i)
		if len(a.Charges) > 1 && !l.refusedGroup(a, i, now) {
			i = end
		}
		for ; i < end; i++ {
			ch := &a.Charges[i]
			if !cacheable(ch) {
				continue
			}
			e := l.table.find(ch, a.Immediate, act, now)
			if e == nil {
				continue
			}
			if e.act == act {
				known, refusals = known+1, e.refusals
			}
			e.touch()
			e.answer(ch, now, &a.Decisions[i])
		}
	}
	return known == refusals
}

// longest reports whether the act has the longest wait: no charge without a decision could
// have to wait longer.
func longest(a *weir.Act) bool {
	_, d := a.Verdict()
	for i := range a.Charges {
		ch, most := &a.Charges[i], weir.Never
		if ch.Cost+ch.Keep <= ch.Limit.Capacity() {
			// It may be in debt by one full drain.
			most = max(algo.Duration(2*ch.Limit.Rule().Drain), ch.Limit.Block)
		}
		if a.Decisions[i].Outcome == weir.NotEvaluated && ch.Cost > 0 && !ch.Guaranteed && most > d.RetryAfter {
			return false
		}
	}
	return true
}

// MayRefuse reports whether Take would refuse an act from memory, most likely.
func (l *Layer) MayRefuse(a *weir.Act) bool {
	now := l.now()
	for i := range a.Charges {
		if ch := &a.Charges[i]; cacheable(ch) && l.table.find(ch, a.Immediate, 0, now) != nil {
			return true
		}
	}
	return false
}

// cacheable reports whether a refusal of the charge can be known in advance.
func cacheable(ch *weir.Charge) bool {
	l := ch.Limit
	return l != nil && ch.Cost > 0 && !ch.Guaranteed && len(ch.Key) <= maxKeyBytes && !algo.TraitsOf(l.Algorithm).HoldsSlots &&
		(!l.ChargeRefused || algo.TraitsOf(l.Algorithm).Windows)
}

// learn remembers the refusals of an act that was sent at an instant.
func (l *Layer) learn(a *weir.Act, sent int64) {
	answered, act, refusals := l.now(), l.table.actOf(a), 0
	for i := range a.Decisions {
		if a.Decisions[i].Outcome == weir.Refused {
			refusals++
		}
	}
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if d.Outcome != weir.Refused || d.Source != acts.SourceStore || !cacheable(&a.Charges[i]) || repeated(a.Charges, i) {
			continue
		}
		e := newEntry(&a.Charges[i], d, a.Immediate)
		e.act, e.refusals = act, refusals
		e.answered, e.until = answered, sent+min(l.maxAge, d.RetryAfter.Nanoseconds())
		l.table.add(e, sent)
		l.counters.learned.Add(1)
	}
}

// repeated reports whether an earlier charge of the act has the key of the i-th one, which
// then was refused after that charge was made. A charge of another alternative was not.
func repeated(charges []weir.Charge, i int) bool {
	c := &charges[i]
	for j := range i {
		if o := &charges[j]; o.Key == c.Key && (o.Group != c.Group || o.Alt == c.Alt) {
			return true
		}
	}
	return false
}

// forgetChanged drops the refusals of all keys whose state acts may have changed.
func (l *Layer) forgetChanged(all []*weir.Act) {
	for _, a := range all {
		if a.Kind == acts.KindTake && a.Allowed() {
			l.noteGranted(a)
			continue
		}
		for i := range a.Charges {
			key := a.Charges[i].Key
			switch a.Kind {
			case acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindReset, acts.KindAmend:
				l.table.forget(key, l.now())
			default:
				l.table.drop(key)
			}
		}
	}
}

// Forget drops the refusals of keys under all limits. Call it when units were returned to
// them in another way than by an act.
func (l *Layer) Forget(keys ...string) {
	for _, key := range keys {
		l.table.forget(key, l.now())
	}
	l.counters.forgotten.Add(uint64(len(keys)))
}
