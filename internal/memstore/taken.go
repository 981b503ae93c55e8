package memstore

import (
	"github.com/weirlimit/weir"

	"github.com/weirlimit/weir/internal/acts"
)

// taken are the charges of a take whose ID belongs to a scope. They never change, so acts may
// read them without a lock.
type taken struct{ charges []takenCharge }

// A takenCharge is one of them; the name stands for its key.
type takenCharge struct {
	name       name
	limit      *weir.Limit
	group, alt uint8
}

// takenBy returns the charges of the call's act.
func (c *call) takenBy(a *weir.Act) *taken {
	t := &taken{make([]takenCharge, len(a.Charges))}
	for i := range a.Charges {
		own := &a.Charges[i]
		t.charges[i] = takenCharge{c.names[i], own.Limit, own.Group, own.Alt}
	}
	return t
}

// hasOtherCharges reports whether the act is to be decided about other charges than the call
// has gathered: those of the record, or the act's own if the record that had other ones is gone.
// A take with other content is an error whatever its charges are.
func (c *call) hasOtherCharges(a *weir.Act, known *record, what uint64) bool {
	switch {
	case known == nil || known.taken == nil:
		return c.taken != nil
	case c.taken != nil:
		c.listed = known.taken
		return c.taken != known.taken
	case (a.Kind == acts.KindTake || a.Kind == acts.KindAmend) && known.answer.what != what:
		return false
	}
	c.listed = known.taken
	return !c.has(a, known.taken)
}

// has reports whether the call's act has just these charges.
func (c *call) has(a *weir.Act, t *taken) bool {
	if len(a.Charges) != len(t.charges) {
		return false
	}
	for i := range t.charges {
		own, was := &a.Charges[i], &t.charges[i]
		if c.names[i] != was.name || own.Group != was.group || own.Alt != was.alt {
			return false
		}
	}
	return true
}

// follow decides an act about the charges of the take with its ID, and reports whether the
// ID's record still had these.
func (s *Store) follow(a *weir.Act, t *taken) bool {
	same := func(own, taken int) bool {
		c := &a.Charges[own]
		return s.name(c.Limit.Rule().ID, c.Key) == t.charges[taken].name
	}
	charges := make([]weir.Charge, len(t.charges))
	for i, c := range t.charges {
		charges[i] = weir.Charge{Limit: c.limit, Group: c.group, Alt: c.alt}
	}
	b := acts.Follow(a, charges, same)
	if _, moved := s.takeAbout(b, t); moved {
		return false
	}
	acts.AnswerFrom(a, b, same)
	return true
}
