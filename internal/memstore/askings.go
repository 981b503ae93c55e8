package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// Askings are the takes of one ID that the store has answered. Each has a number. Whoever was told
// an error withdraws its asking, and once none is left, nothing is held.
type askings struct {
	standing  []uint64
	withdrawn []uint64 // they charge nothing if they come later
	// firm: the take is never withdrawn, because somebody was told its answer for sure, or
	// because too many asked.
	firm bool
}

const askingBytes = 8

func (k *askings) bytes() int64 { return askingBytes * int64(cap(k.standing)+cap(k.withdrawn)) }

// ask notes an asking. It returns false for one that was withdrawn.
func (k *askings) ask(number uint64) bool {
	switch {
	case number != 0 && slices.Contains(k.withdrawn, number):
		return false
	case k.firm || slices.Contains(k.standing, number):
	case number == 0 || len(k.standing) >= acts.MaxAskings:
		k.firm, k.standing = true, nil
	default:
		k.standing = append(k.standing, number)
	}
	return true
}

// withdraw takes an asking back, and reports whether none is left.
func (k *askings) withdraw(number uint64) (last bool) {
	k.standing = slices.DeleteFunc(k.standing, func(n uint64) bool { return n == number })
	if !slices.Contains(k.withdrawn, number) {
		k.withdrawn = append(k.withdrawn[max(0, len(k.withdrawn)+1-acts.MaxAskings):len(k.withdrawn):len(k.withdrawn)], number)
	}
	return len(k.standing) == 0 && !k.firm
}

// mark notes an act about a take that is not known: one that is withdrawn before it comes, or
// one that is ended before another instance has recorded it. The record of a mark answers no
// act; it says what becomes of the take.
func (c *call) mark(s *Store, a *weir.Act, now int64) {
	sh := &s.shards[c.recordAt]
	if sh.ids == nil {
		sh.ids = new(ids)
	}
	r := &record{mark: true}
	if c.marked != nil {
		*r = *c.marked
	}
	_, late := acts.Lives(a)
	if a.Kind == acts.KindWithdraw {
		r.withdraw(a.Asking)
	} else {
		late = acts.EndedLife
		r.end(a, now)
	}
	r.until = max(r.until, seconds(now+late.Microseconds()))
	if len(r.withdrawn) == 0 {
		sh.ids.refuse(s, c.record, r, now) // whoever invents IDs displaces no hold
		return
	}
	sh.ids.add(s, c.record, r, now)
}

// markRefused notes an act that ends a take which was refused here: another instance may have
// granted it.
func (c *call) markRefused(s *Store, a *weir.Act, known *record, now int64) {
	sh, before := &s.shards[c.recordAt], known.bytes()
	known.end(a, now)
	if sh.ids.kept[c.record] != nil {
		s.ids.Add(known.bytes() - before)
		return
	}
	sh.ids.refuse(s, c.record, known, now) // for as long as the end is remembered
}

// end notes the first act that ended the take of a record before it was known.
func (r *record) end(a *weir.Act, now int64) {
	if r.ended != nil && now < r.ended.until {
		return
	}
	r.ended = &ended{a.Kind, acts.Content(a), now + acts.EndedLife.Microseconds(), make([]int64, len(a.Charges))}
	for i := range a.Charges {
		r.ended.costs[i] = a.Charges[i].Cost
	}
}
