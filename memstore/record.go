package memstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// A recordName is where an id is remembered: as in Redis, beside the state of the
// act's first charge.
type recordName struct{ slot, id string }

func nameRecord(a *weir.Act) recordName {
	slot := a.Charges[0].Slot
	if slot == "" {
		slot = a.Charges[0].Key
	}
	return recordName{slot, a.ID}
}

// A record is what is remembered of an id: the take, and what closed it.
type record struct {
	whom    uint64 // fingerprint of the keys
	granted bool
	answer  answer
	// charged is what is charged for it, one for each charge, where that is not what
	// the answer says: it was amended, or charged though refused. Else nil.
	charged []algo.Grant
	closed  bool
	kind    weir.Kind
	closing answer
	until   uint32 // seconds since 1970: forgotten from then on
}

// An answer is what one act got.
type answer struct {
	what      uint64 // fingerprint of the content
	at        int64
	decisions []weir.Decision
}

// recordBytes is what a record costs beside its texts and decisions.
const recordBytes, decisionBytes, grantBytes = 256, 64, 32

// sweepNew and sweepFull are how many ids of a shard are looked at when one is
// added: always, and when there is no room.
const sweepNew, sweepFull = 2, 128

func (r *record) bytes(name recordName) int64 {
	return recordBytes + int64(len(name.id)+len(name.slot)) + grantBytes*int64(len(r.charged)) +
		decisionBytes*int64(len(r.answer.decisions)+len(r.closing.decisions))
}

// recall looks the act's id up, if it has one. It reports whether the act is answered by that,
// with an error or with what it got the first time.
func (c *call) recall(s *Store, a *weir.Act, now int64) (*record, bool) {
	if a.ID == "" {
		return nil, false
	}
	known := s.shards[c.recordAt].records[c.record]
	if known != nil && int64(known.until)*1_000_000 <= now {
		known = nil
	}
	whom, what := a.Fingerprints()
	switch {
	case known == nil && (a.Kind == weir.Take || a.Kind == weir.Amend):
		return nil, false
	case known == nil:
		return nil, refuse(a, weir.ErrUnknownID)
	case known.whom != whom:
		return nil, refuse(a, weir.ErrIDReused)
	case a.Kind == weir.Take:
		return nil, known.repeat(a, what)
	case a.Kind == weir.Amend:
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
	case r.closed && r.kind == weir.Release:
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
	case r.kind == weir.Release:
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
	whom, what := a.Fingerprints()
	got := answer{what, now, nil}
	if got.decisions = c.told; got.decisions == nil {
		got.decisions = slices.Clone(a.Decisions)
	}
	switch {
	case known == nil:
		known = &record{whom: whom, granted: a.Allowed(), answer: got, charged: c.charged}
		if !s.add(sh, c.record, known, now) {
			return
		}
	case a.Kind == weir.Amend:
		s.bytes.Add(grantBytes * int64(len(c.charged)-len(known.charged)))
		known.granted, known.answer.decisions, known.charged = a.Allowed(), c.told, c.charged
	case a.Kind != weir.Renew:
		known.closed, known.kind, known.closing = true, a.Kind, got
		s.bytes.Add(decisionBytes * int64(len(got.decisions)))
	}
	// A hold outlives what is done to it meanwhile.
	known.until = max(known.until, seconds(now+life(a)))
}

// life is how long an act's id is remembered, in µs.
func life(a *weir.Act) int64 {
	d := max(weir.IDLife, a.Hold)
	for i := range a.Charges {
		if a.Charges[i].Limit.Algorithm == weir.Concurrency {
			d = max(d, a.Charges[i].Limit.Period)
		}
	}
	return d.Microseconds()
}

// add keeps a new record if there is room for it.
func (s *Store) add(sh *shard, name recordName, r *record, now int64) bool {
	if sh.records == nil {
		sh.records = make(map[recordName]*record)
	}
	if old := sh.records[name]; old != nil {
		delete(sh.records, name)
		s.bytes.Add(-old.bytes(name))
	}
	s.sweepRecords(sh, sweepNew, now)
	if s.bytes.Load()+r.bytes(name) > s.maxBytes {
		s.sweepRecords(sh, sweepFull, now)
	}
	if s.bytes.Load()+r.bytes(name) > s.maxBytes {
		return false
	}
	sh.records[recordName{strings.Clone(name.slot), strings.Clone(name.id)}] = r
	s.bytes.Add(r.bytes(name))
	return true
}

// sweepRecords forgets those of some ids that have had their time.
func (s *Store) sweepRecords(sh *shard, most int, now int64) {
	looked := 0
	for name, r := range sh.records {
		if looked++; looked > most {
			break
		}
		if int64(r.until)*1_000_000 <= now {
			delete(sh.records, name)
			s.bytes.Add(-r.bytes(name))
		}
	}
}
