package remote

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// An idName is an ID and its owner. It is zero for acts without an ID.
type idName struct{ owner, id string }

// A location is where an act is decided: its ID, and the ledgers of its nodes.
type location struct {
	id  idName
	one *ledger // of all charges; nil: there are several
	of  []*ledger
	all []*ledger // in the order of their nodes' names, in which they are locked
}

// locate returns the location of an act.
func (r *Remote) locate(a *weir.Act) (at location) {
	if a.ID != "" {
		at.id = idName{a.Scope.Owner, a.ID}
	}
	node, alone := r.calls.Node(a)
	if alone {
		at.one = r.ledgers.of(node)
		return at
	}
	for i := range a.Charges {
		node, _ := r.calls.Node(&weir.Act{Charges: a.Charges[i : i+1]})
		l := r.ledgers.of(node)
		if at.of = append(at.of, l); !slices.Contains(at.all, l) {
			at.all = append(at.all, l)
		}
	}
	slices.SortFunc(at.all, func(a, b *ledger) int { return strings.Compare(a.node, b.node) })
	return at
}

// ledger returns the one of the i-th charge.
func (at *location) ledger(i int) *ledger {
	if at.one != nil {
		return at.one
	}
	return at.of[i]
}

// each calls f for every ledger of the location, until it returns false.
func (at *location) each(f func(*ledger) bool) {
	if at.one != nil {
		f(at.one)
		return
	}
	for _, l := range at.all {
		if !f(l) {
			return
		}
	}
}

func (at *location) lock() {
	at.each(func(l *ledger) bool { l.lock(); return true })
}

func (at *location) unlock() {
	at.each(func(l *ledger) bool { l.unlock(); return true })
}

// granted returns the grant of an act's ID, if its take was granted here and a node has yet to
// record it; else nil.
func (at *location) granted(now int64) (g *grant) {
	if at.id.id == "" {
		return nil
	}
	at.each(func(l *ledger) bool {
		if e := l.ids[at.id]; e != nil && e.take != nil && now < e.until {
			g = e.grant
		}
		return g == nil
	})
	return g
}

// grantedHere is granted for a location that is not locked.
func (at *location) grantedHere(now int64) bool {
	owing := false
	if at.each(func(l *ledger) bool { owing = !l.empty(); return !owing }); at.id.id == "" || !owing {
		return false
	}
	at.lock()
	defer at.unlock()
	return at.granted(now) != nil
}

// roomForID reports whether every node has room for what is owed about an ID.
func (at *location) roomForID() bool {
	room := true
	at.each(func(l *ledger) bool { room = room && l.room(len(l.ids)); return room })
	return room
}

// roomForRefunds reports whether every node has room for a refund.
func (at *location) roomForRefunds() bool {
	room := true
	at.each(func(l *ledger) bool { room = room && l.room(l.refunds); return room })
	return room
}

// part returns a copy of the act's part in one node, with texts of its own: a caller's may be in
// memory that is used again.
func (at *location) part(a *weir.Act, l *ledger) *weir.Act {
	own := *a
	own.ID, own.Scope.Owner, own.Scope.Asks = strings.Clone(a.ID), strings.Clone(a.Scope.Owner), strings.Clone(a.Scope.Asks)
	own.Charges, own.Decisions, own.Err = make([]weir.Charge, 0, len(a.Charges)), make([]weir.Decision, 0, len(a.Charges)), nil
	for i := range a.Charges {
		if at.ledger(i) != l {
			continue
		}
		c := a.Charges[i]
		c.Key, c.HashTag = strings.Clone(c.Key), strings.Clone(c.HashTag)
		own.Charges, own.Decisions = append(own.Charges, c), append(own.Decisions, a.Decisions[i])
	}
	return &own
}

// copyOf returns an act with charges and decisions of its own.
func copyOf(a *weir.Act) *weir.Act {
	own := *a
	own.Charges, own.Decisions = slices.Clone(a.Charges), slices.Clone(a.Decisions)
	return &own
}
