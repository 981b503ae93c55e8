package algo

import (
	"cmp"
	"slices"
)

// concurrency counts holders. Each has an id and a lease; one that is not renewed
// or released frees its slot when its lease ends. Used is the number of holders,
// At the instant at which they were last saved.
//
// The ids of anonymous holders begin with 0. An anonymous refund frees the oldest slot of
// one, unless it belongs to a take that was refused: Rem is how many of those were not
// refunded yet. They are forgotten a Period after the state was last saved.

// A Holding names a holder: a hash of its act's id and keys.
type Holding [2]uint64

// A Holder holds a slot until the end of its lease.
type Holder struct {
	ID  Holding
	End int64
}

func holdersAge(s *State, r *Rule, now int64) bool {
	holders := s.holders()
	future := s.At > now && (len(holders) > 0 || s.Rem > 0)
	if future {
		s.shift(now)
		holders = s.holders()
	}
	if s.At+r.Period <= now {
		s.Rem = 0
	}
	s.Used = int64(len(holders) - until(holders, now))
	return future
}

func (s *State) holders() []Holder {
	if s.Ext == nil {
		return nil
	}
	return s.Ext.Holders
}

// shift lets leases last as long as they did before the clock went back. It works on a
// copy, because a state that is not saved must not be shifted twice.
func (s *State) shift(now int64) {
	holders := slices.Clone(s.holders())
	for i := range holders {
		holders[i].End -= s.At - now
	}
	s.Ext, s.At = &Ext{Holders: holders}, now
}

// ended is how many leases have ended; holders stand in the order of their ends.
func (s *State) ended(now int64) int { return until(s.Ext.Holders, now) }

// until is how many of the holders have leases up to and including an instant.
func until(holders []Holder, end int64) int {
	n, _ := slices.BinarySearchFunc(holders, end+1, func(h Holder, end int64) int { return cmp.Compare(h.End, end) })
	return n
}

// slotWait is the wait for a slot in µs. One may be released at any time, so the ends of the
// leases say nothing about it.
const slotWait = 1_000_000

func holdersWait(_ *State, r *Rule, _, _ int64) int64 { return min(slotWait, r.Period) }

func holdersFresh(s *State, r *Rule, now int64) int64 {
	fresh := int64(0)
	if s.Used > 0 {
		fresh = s.Ext.Holders[len(s.Ext.Holders)-1].End - now
	}
	if s.Rem > 0 {
		fresh = max(fresh, s.At+r.Period-now)
	}
	return fresh
}

// Holds reports whether the lease of a holder lasts.
func (s *State) Holds(id Holding, now int64) bool {
	return s.Ext != nil && slices.ContainsFunc(s.Ext.Holders[s.ended(now):], func(h Holder) bool { return h.ID == id })
}

func holdersSave(s *State, _ *Rule, now, _ int64) {
	if s.Ext != nil {
		s.Ext.Holders = slices.Delete(s.Ext.Holders, 0, s.ended(now))
	}
	s.At = now
}

// Hold gives a holder a lease until end, or none if end is 0, and forgets the
// leases that have ended.
func (s *State) Hold(id Holding, now, end int64) {
	if s.Ext == nil {
		s.Ext = new(Ext)
	}
	kept := slices.DeleteFunc(s.Ext.Holders, func(h Holder) bool { return h.ID == id || h.End <= now })
	if end > 0 {
		kept = slices.Insert(kept, until(kept, end), Holder{id, end})
	}
	s.Ext.Holders = kept
	s.Used = int64(len(kept))
}

// maxRefusals bounds the refused takes that are remembered.
const maxRefusals = 1_000_000_000

// Occupy gives n anonymous holders leases until end. Their ids follow first.
func (s *State) Occupy(first uint64, n, now, end int64) {
	holders := slices.Delete(slices.Clone(s.holders()), 0, until(s.holders(), now))
	more := make([]Holder, n)
	for i := range more {
		more[i] = Holder{Holding{0, first + uint64(i)}, end}
	}
	s.Ext = &Ext{Holders: slices.Insert(holders, until(holders, end), more...)}
	s.Used = int64(len(s.Ext.Holders))
}

// Refuse notes n units of an anonymous take that was refused, whose refund is to come.
func (s *State) Refuse(n, now int64) { s.Rem, s.At = min(s.Rem+n, maxRefusals), now }

// Vacate refunds n units: first those of takes that were refused, then those of the oldest
// anonymous holders. It returns how many units there were, and how many of them were slots.
func (s *State) Vacate(n, now int64) (units, slots int64) {
	refused := min(n, s.Rem)
	s.Rem, s.At = s.Rem-refused, now
	if s.Used > 0 && refused < n {
		left := slices.DeleteFunc(slices.Clone(s.Ext.Holders[s.ended(now):]), func(h Holder) bool {
			leaves := h.ID[0] == 0 && slots < n-refused
			if leaves {
				slots++
			}
			return leaves
		})
		s.Ext, s.Used = &Ext{Holders: left}, int64(len(left))
	}
	return refused + slots, slots
}

func holdersExt(*Rule) int64 { return holderBytes }
