package algo

import (
	"cmp"
	"slices"
)

// concurrency counts holders. Each has an id and a lease; one that is not renewed
// or released frees its place when its lease ends. Used is the number of holders,
// At the instant at which they were last saved.

// A Holding names a holder: a hash of its act's id and keys.
type Holding [2]uint64

// A Holder is who holds a place, until when.
type Holder struct {
	ID  Holding
	End int64
}

func holdersAge(s *State, _ *Rule, now int64) bool {
	s.Used = 0
	if s.Ext == nil {
		return false
	}
	future := s.At > now && len(s.Ext.Holders) > 0
	if future {
		s.shift(now)
	}
	s.Used = int64(len(s.Ext.Holders) - s.ended(now))
	return future
}

// shift lets leases last as long as they did before the clock went back. It works
// on a copy: what is not saved must not be shifted twice.
func (s *State) shift(now int64) {
	holders := slices.Clone(s.Ext.Holders)
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

func holdersWait(s *State, r *Rule, now, cost int64) int64 {
	leave := int(s.Used + cost - r.Burst)
	return s.Ext.Holders[s.ended(now)+leave-1].End - now
}

func holdersFresh(s *State, _ *Rule, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	return s.Ext.Holders[len(s.Ext.Holders)-1].End - now
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

func holdersExt(*Rule) int64 { return holderBytes }
