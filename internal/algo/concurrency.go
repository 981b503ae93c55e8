package algo

// concurrency counts holders. Each has an id and a lease; one that is not renewed
// or released frees its slot when its lease ends. Used is the number of holders,
// At the instant at which they were last saved.
//
// The ids of anonymous holders begin with 0. An anonymous refund frees the oldest slot of
// one, unless it belongs to a take that was refused: Rem is how many of those were not
// refunded yet. They are forgotten a Period after the state was last saved.

func holdersAge(s *State, r *Rule, now int64) bool {
	future := s.At > now && (s.holders() != nil && s.holders().size > 0 || s.Rem > 0)
	if future {
		s.shift(now)
	}
	if s.At+r.Period <= now {
		s.Rem = 0
	}
	s.Used = 0
	if l := s.holders(); l != nil {
		s.Used = int64(l.size - l.ended(now))
	}
	return future
}

func (s *State) holders() *Holders {
	if s.Ext == nil {
		return nil
	}
	return s.Ext.Holders
}

// shift lets leases last as long as they did before the clock went back. It works on a
// copy, because a state that is not saved must not be shifted twice.
func (s *State) shift(now int64) {
	holders := s.holders().clone()
	if holders != nil {
		for _, b := range holders.blocks {
			for i := range b {
				b[i].End -= s.At - now
			}
		}
		holders.reindex()
	}
	s.Ext, s.At = &Ext{Holders: holders}, now
}

// slotWait is the wait for a slot in µs. One may be released at any time, so the ends of the
// leases say nothing about it.
const slotWait = 1_000_000

func holdersWait(_ *State, r *Rule, _, _ int64) int64 { return min(slotWait, r.Period) }

func holdersFresh(s *State, r *Rule, now int64) int64 {
	fresh := int64(0)
	if s.Used > 0 {
		fresh = s.holders().last() - now
	}
	if s.Rem > 0 {
		fresh = max(fresh, s.At+r.Period-now)
	}
	return fresh
}

// Holds reports whether the lease of a holder lasts.
func (s *State) Holds(id Holding, now int64) bool {
	end, found := s.holders().find(id)
	return found && end > now
}

func holdersSave(s *State, _ *Rule, now, _ int64) {
	s.holders().cut(now)
	s.At = now
}

// current returns the holders whose leases last, to be changed.
func (s *State) current(now int64) *Holders {
	if s.Ext == nil {
		s.Ext = new(Ext)
	}
	if s.Ext.Holders == nil {
		s.Ext.Holders = new(Holders)
	}
	s.Ext.Holders.cut(now)
	return s.Ext.Holders
}

// Hold gives a holder a lease until end, or none if end is 0, and forgets the
// leases that have ended.
func (s *State) Hold(id Holding, now, end int64) {
	l := s.current(now)
	if old, found := l.find(id); found {
		l.remove(Holder{id, old})
	}
	if end > 0 {
		l.add(Holder{id, end})
	}
	s.Used = int64(l.size)
}

// maxRefusals bounds the refused takes that are remembered.
const maxRefusals = 1_000_000_000

// Occupy gives n anonymous holders leases until end. Their ids follow first.
func (s *State) Occupy(first uint64, n, now, end int64) {
	l := s.current(now)
	for i := range n {
		l.add(Holder{Holding{0, first + uint64(i)}, end})
	}
	s.Used = int64(l.size)
}

// Refuse notes n units of an anonymous take that was refused, whose refund is to come.
func (s *State) Refuse(n, now int64) { s.Rem, s.At = min(s.Rem+n, maxRefusals), now }

// Vacate refunds n units: first those of takes that were refused, then those of the oldest
// anonymous holders. It returns how many units there were, and how many of them were slots.
func (s *State) Vacate(n, now int64) (units, slots int64) {
	refused := min(n, s.Rem)
	s.Rem, s.At = s.Rem-refused, now
	if s.Used > 0 && refused < n {
		l := s.current(now)
		slots = l.vacate(n - refused)
		s.Used = int64(l.size)
	}
	return refused + slots, slots
}

func holdersExt(*Rule) int64 { return holdersBytes + blockBytes + holderBytes }
