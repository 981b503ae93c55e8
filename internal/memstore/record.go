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
}

// An answer is the result of one act.
type answer struct {
	what      uint64 // fingerprint of the content
	at        int64
	decisions []weir.Decision
}

// recordBytes is the memory of a record without its decisions and grants.
const recordBytes, decisionBytes, grantBytes, takenBytes = 248, 72, 32, 40

func (r *record) bytes() int64 {
	bytes := recordBytes + grantBytes*int64(len(r.charged)) + decisionBytes*int64(len(r.answer.decisions)+len(r.closing.decisions))
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
	what := acts.Content(a)
	switch {
	case c.hasOtherCharges(a, known, what):
		c.moved = true
		return nil, true
	case known == nil && (a.Kind == acts.KindTake || a.Kind == acts.KindAmend):
		return nil, false
	case known == nil:
		return nil, refuse(a, weir.ErrUnknownID)
	case a.Kind == acts.KindTake:
		return nil, known.repeat(a, what)
	case a.Kind == acts.KindAmend:
		return known, known.settled(a, what)
	case !known.granted:
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
	case r.closed && r.kind == acts.KindRelease:
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
	if a.Kind == acts.KindTake && !a.Allowed() && refused == 0 {
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
		if !known.granted {
			sh.ids.refuse(s, c.record, known, now)
			return
		}
		known.until = seconds(now + granted.Microseconds())
		sh.ids.add(s, c.record, known, now)
	case a.Kind == acts.KindAmend:
		r := &record{granted: a.Allowed(), answer: got, charged: c.charged, taken: taken}
		if known != nil {
			r.answer.at = known.answer.at
		}
		if r.until = seconds(now + refused.Microseconds()); r.granted {
			r.until = seconds(now + granted.Microseconds())
		}
		sh.ids.add(s, c.record, r, now)
	default:
		if a.Kind != acts.KindRenew {
			known.closed, known.kind, known.closing = true, a.Kind, got
			s.ids.Add(decisionBytes * int64(len(got.decisions)))
		}
		// A hold outlives later acts on it.
		known.until = max(known.until, seconds(now+granted.Microseconds()))
	}
}
