package memstore

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A recordName stands for an id and the keys that it belongs to: 128 bits of hashes
// with seeds that only the store knows. It also names a holder.
type recordName = algo.Holding

func (s *Store) nameRecord(c *call, a *weir.Act) recordName {
	c.text = append(acts.AppendOwner(c.text[:0], a), a.ID...)
	return recordName{maphash.Bytes(s.seeds[0], c.text), maphash.Bytes(s.seeds[1], c.text)}
}

// A record is remembered for an ID: the take, and the act that closed it.
type record struct {
	granted bool
	answer  answer
	// charged has the units charged, one number for each charge, if they differ from the
	// answer: the take was amended, or charged although it was refused. Else nil.
	charged []algo.Grant
	// taken are the charges of the take, if the ID belongs to a scope: the next act about it
	// may list other ones. Else nil.
	taken   *taken
	closed  bool
	kind    weir.Kind
	closing answer
	until   uint32 // seconds since 1970: forgotten from then on
	askings
	mark  bool   // no take is known, see call.mark
	ended *ended // the end of a take that was not known; nil: there was none
}

// An ended is an act that ended a take before it was known.
type ended struct {
	kind  weir.Kind
	what  uint64 // fingerprint of its content
	until int64  // µs; forgotten from then on
	costs []int64
}

// An answer is the result of one act.
type answer struct {
	what      uint64 // fingerprint of the content
	at        int64
	decisions []weir.Decision
}

// recordBytes is the memory of a record without its decisions and grants.
const recordBytes, decisionBytes, grantBytes, takenBytes = 312, 72, 32, 40

func (r *record) bytes() int64 {
	bytes := recordBytes + grantBytes*int64(len(r.charged)) + decisionBytes*int64(len(r.answer.decisions)+len(r.closing.decisions))
	bytes += r.askings.bytes()
	if r.ended != nil {
		bytes += grantBytes + askingBytes*int64(len(r.ended.costs))
	}
	if r.taken != nil {
		bytes += takenBytes * int64(len(r.taken.charges))
	}
	return bytes
}

// recall looks up the act's ID, if it has one. It reports whether that answers the act,
// with an error or with the first answer.
func (c *call) recall(s *Store, a *weir.Act, now int64) (*record, bool) {
	if a.ID == "" {
		return nil, false
	}
	known := s.shards[c.recordAt].ids.find(s, c.record, now)
	if known != nil && known.mark {
		if c.marked = known; len(known.withdrawn) == 0 && now >= known.ended.until {
			c.marked = nil
		}
		known = nil
	}
	what := acts.Content(a)
	switch {
	case c.hasOtherCharges(a, known, what):
		c.moved = true
		return nil, true
	case known == nil && a.Kind == acts.KindTake:
		return nil, c.marked != nil && slices.Contains(c.marked.withdrawn, a.Asking) && refuse(a, weir.ErrReleased)
	case known == nil && a.Kind == acts.KindAmend:
		return nil, false
	case known == nil && a.Kind == acts.KindWithdraw:
		c.mark(s, a, now)
		clear(a.Decisions)
		return nil, true
	case known == nil:
		if a.Kind != acts.KindRenew {
			c.mark(s, a, now)
		}
		return nil, refuse(a, weir.ErrUnknownID)
	case a.Kind == acts.KindTake || a.Kind == acts.KindWithdraw:
		before := known.askings.bytes()
		defer func() { s.shards[c.recordAt].ids.grew(s, c.record, known.askings.bytes()-before) }()
		if a.Kind == acts.KindTake {
			return nil, known.repeat(a, what)
		}
		clear(a.Decisions)
		last := known.withdraw(a.Asking)
		return known, !last || known.closed
	case a.Kind == acts.KindAmend:
		return known, known.settled(a, what)
	case !known.granted:
		if a.Kind != acts.KindRenew {
			c.markRefused(s, a, known, now)
		}
		return nil, refuse(a, weir.ErrUnknownID)
	case known.closed:
		return nil, known.repeatClosing(a, what)
	}
	return known, false
}

func (r *record) repeat(a *weir.Act, what uint64) bool {
	switch {
	case r.answer.what != what:
		return refuse(a, weir.ErrIDReused)
	case r.closed && r.kind == acts.KindRelease, !r.ask(a.Asking):
		return refuse(a, weir.ErrReleased)
	}
	copy(a.Decisions, r.answer.decisions)
	return true
}

// settled answers an Amend that may not change the record.
func (r *record) settled(a *weir.Act, what uint64) bool {
	switch {
	case r.answer.what != what:
		return refuse(a, weir.ErrIDReused)
	case r.closed:
		copy(a.Decisions, r.answer.decisions)
	}
	return r.closed
}

func (r *record) repeatClosing(a *weir.Act, what uint64) bool {
	switch {
	case r.kind == a.Kind && r.closing.what == what:
		copy(a.Decisions, r.closing.decisions)
		return true
	case r.kind == acts.KindRelease:
		return refuse(a, weir.ErrReleased)
	}
	return refuse(a, weir.ErrSettled)
}

func refuse(a *weir.Act, err weir.IDError) bool {
	a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
	return true
}

// remember notes the answer of an act, if it has an id.
func (c *call) remember(s *Store, a *weir.Act, known *record, now int64) {
	if a.ID == "" {
		return
	}
	sh := &s.shards[c.recordAt]
	granted, refused := acts.Lives(a)
	if a.Kind == acts.KindTake && !a.Allowed() && (refused == 0 || c.marked != nil) {
		return
	}
	if sh.ids == nil {
		sh.ids = new(ids)
	}
	var taken *taken
	if known != nil {
		taken = known.taken
	} else if a.Scope.Owner != "" {
		taken = c.takenBy(a)
	}
	got := answer{acts.Content(a), now, c.answered}
	if got.decisions == nil {
		got.decisions = slices.Clone(a.Decisions)
	}
	switch {
	case a.Kind == acts.KindTake:
		known = &record{granted: a.Allowed(), answer: got, charged: c.charged, taken: taken}
		if c.marked != nil {
			known.withdrawn = c.marked.withdrawn
			known.ended = c.marked.ended // another instance may have told somebody of a take before
		}
		known.ask(a.Asking)
		if !known.granted {
			sh.ids.refuse(s, c.record, known, now)
			return
		}
		known.until = seconds(now + granted.Microseconds())
		sh.ids.add(s, c.record, known, now)
	case a.Kind == acts.KindAmend:
		r := &record{granted: a.Allowed(), answer: got, charged: c.charged, taken: taken, askings: askings{firm: true}}
		if e := c.ended(known, now); e != nil && r.granted {
			r.closed, r.kind, r.closing = true, e.kind, answer{e.what, now, slices.Clone(a.Decisions)}
		}
		if known != nil {
			r.answer.at, r.withdrawn, r.ended = known.answer.at, known.withdrawn, known.ended
		} else if c.marked != nil {
			r.withdrawn, r.ended = c.marked.withdrawn, c.marked.ended
		}
		if r.until = seconds(now + refused.Microseconds()); r.granted {
			r.until = seconds(now + granted.Microseconds())
		}
		sh.ids.add(s, c.record, r, now)
	case a.Kind == acts.KindWithdraw:
		c.marked = &record{mark: true, askings: askings{withdrawn: known.withdrawn}, ended: known.ended}
		sh.ids.forget(s, c.record)
		c.mark(s, a, now)
	default:
		if a.Kind == acts.KindRenew {
			known.firm, known.ended = true, nil
		} else {
			known.closed, known.kind, known.closing = true, a.Kind, got
			s.ids.Add(decisionBytes * int64(len(got.decisions)))
		}
		// A hold outlives later acts on it.
		known.until = max(known.until, seconds(now+granted.Microseconds()))
	}
}
