package remote

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// ids are the takes with an ID that the store has to amend: to what was granted in an outage,
// or to nothing.
type ids struct {
	most  int
	count atomic.Int64

	mu    sync.Mutex // guards what follows
	all   map[idName]*localTake
	byKey map[string]map[*localTake]struct{}
}

// An idName is an ID and the owner of its scope or, without one, the key that it was first
// taken with.
type idName struct {
	scoped    bool
	owner, id string
}

// A localTake is a take whose ID is answered here until the store has amended it.
type localTake struct {
	act   weir.Act // the take, with its caller's last answer
	until int64    // µs
	// amending is closed once the amendment in flight has its reply; nil if none is in
	// flight. A later one must not overtake it.
	amending chan struct{}
	changes  int // of the answer
	dropped  bool
}

func newIDs(most int) *ids {
	return &ids{most: most, all: map[idName]*localTake{}, byKey: map[string]map[*localTake]struct{}{}}
}

func idOf(a *weir.Act) idName {
	if a.ID == "" || len(a.Charges) == 0 {
		return idName{}
	}
	if owner := a.Scope.Owner; owner != "" {
		return idName{true, owner, a.ID}
	}
	return idName{false, a.Charges[0].Key, a.ID}
}

// find returns the take with an act's ID, nil if it is not here.
func (s *ids) find(a *weir.Act, now int64) *localTake {
	name := idOf(a)
	if name.id == "" || s.len() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.all[name]; t != nil && now < t.until {
		return t
	}
	return nil
}

// full reports whether there is no room for another take.
func (s *ids) full() bool { return s.len() >= s.most }

// add has the store amend a take to the act's decisions.
func (s *ids) add(a *weir.Act, now int64) {
	t := &localTake{act: *a, until: now + life(a)}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := idOf(a)
	if old := s.all[name]; old != nil {
		s.remove(name, old)
	}
	s.all[name] = t
	s.count.Add(1)
	for i := range a.Charges {
		key := a.Charges[i].Key
		if s.byKey[key] == nil {
			s.byKey[key] = map[*localTake]struct{}{}
		}
		s.byKey[key][t] = struct{}{}
	}
}

func (s *ids) remove(name idName, t *localTake) {
	t.dropped = true
	delete(s.all, name)
	s.count.Add(-1)
	for i := range t.act.Charges {
		key := t.act.Charges[i].Key
		if delete(s.byKey[key], t); len(s.byKey[key]) == 0 {
			delete(s.byKey, key)
		}
	}
}

// drop forgets a take, whose ID the store answers from now on. It returns false if the
// answer has changed since there were so many changes.
func (s *ids) drop(t *localTake, changes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.changes != changes {
		return false
	}
	if !t.dropped {
		s.remove(idOf(&t.act), t)
	}
	return true
}

// isDropped reports whether the store answers a take's ID from now on.
func (s *ids) isDropped(t *localTake) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.dropped
}

// change changes the answer to a take. It returns false for a take that was dropped.
func (s *ids) change(t *localTake, how func(a *weir.Act)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.dropped {
		return false
	}
	how(&t.act)
	t.changes++
	return true
}

// len is how many takes the store has to amend.
func (s *ids) len() int { return int(s.count.Load()) }

// An amendment is an act that makes the store agree with the last answer to a take.
type amendment struct {
	*weir.Act
	of      *localTake
	changes int // of the answer that it carries
}

// amendment returns the amendment of a take. It is in flight until replyTo.
func (t *localTake) amendment() amendment {
	t.amending = make(chan struct{})
	a := copyOf(&t.act)
	a.Kind = acts.KindAmend
	return amendment{a, t, t.changes}
}

// replyTo notes that the amendment of a take has its reply.
func (s *ids) replyTo(t *localTake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(t.amending)
	t.amending = nil
}

// claim adds the amendments of takes under a key to those that the caller has claimed. If
// some are in flight, busy is closed once one of them has ended.
func (s *ids) claim(key string, now int64, wait func(*weir.Act) bool, claimed []amendment) (all []amendment, busy <-chan struct{}) {
	if s.len() == 0 {
		return claimed, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.byKey[key] {
		switch {
		case slices.ContainsFunc(claimed, func(a amendment) bool { return a.of == t }):
		case t.amending != nil:
			busy = t.amending
		case now < t.until && (t.act.Allowed() || !wait(&t.act)):
			claimed = append(claimed, t.amendment())
		}
	}
	return claimed, busy
}

// collect returns up to so many amendments. Those of refused takes, which return units to
// the limit, may have to wait.
func (s *ids) collect(most int, now int64, wait func(*weir.Act) bool) []amendment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []amendment
	for name, t := range s.all {
		switch {
		case len(all) == most:
			return all
		case t.amending != nil:
		case now >= t.until:
			s.remove(name, t)
		case !t.act.Allowed() && wait(&t.act):
		default:
			all = append(all, t.amendment())
		}
	}
	return all
}

// unrecorded is how many units of a budget were granted here to these takes.
func (s *ids) unrecorded(c *weir.Charge, now int64) (units int64) {
	if s.len() == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.byKey[c.Key] {
		for i := range t.act.Charges {
			if now < t.until && budgetOf(&t.act.Charges[i]) == budgetOf(c) {
				units += localGrant(&t.act, i)
			}
		}
	}
	return units
}

// extend makes an ID live as long as the lease of its holder.
func (s *ids) extend(t *localTake, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.until = max(t.until, until)
}

// copyOf returns an act with charges and decisions of its own.
func copyOf(a *weir.Act) *weir.Act {
	own := *a
	own.Charges, own.Decisions = slices.Clone(a.Charges), slices.Clone(a.Decisions)
	return &own
}

// life is how long an act's ID is remembered, in µs.
func life(a *weir.Act) int64 {
	granted, _ := acts.Lives(a)
	return granted.Microseconds()
}

// answerKnownIDs answers the acts whose IDs are answered here, and returns the acts that the
// store has to decide.
func (l *Remote) answerKnownIDs(all []*weir.Act) []*weir.Act {
	var rest []*weir.Act
	for i, a := range all {
		switch take := l.ids.find(a, l.now()); {
		case take != nil:
			if rest == nil {
				rest = append(make([]*weir.Act, 0, len(all)), all[:i]...)
			}
			if !acts.Prepare(a) && !l.decideAbout(a, take) {
				rest = append(rest, a)
			}
		case rest != nil:
			rest = append(rest, a)
		}
	}
	if rest == nil {
		return all
	}
	return rest
}

// decideAbout is decideAboutTake for an act that may list other charges than the take.
func (l *Remote) decideAbout(a *weir.Act, take *localTake) bool {
	l.ids.mu.Lock()
	charges := slices.Clone(take.act.Charges)
	l.ids.mu.Unlock()
	if a.Scope.Owner == "" || slices.EqualFunc(a.Charges, charges, sameCharge) {
		return l.decideAboutTake(a, take)
	}
	same := func(own, taken int) bool {
		c, t := &a.Charges[own], &take.act.Charges[taken]
		return c.Key == t.Key && c.Limit.Algorithm == t.Limit.Algorithm
	}
	b := acts.Follow(a, charges, same)
	if !l.decideAboutTake(b, take) {
		return false
	}
	acts.AnswerFrom(a, b, same)
	return true
}

// sameCharge reports whether two charges are the same part of their acts.
func sameCharge(a, b weir.Charge) bool {
	return a.Key == b.Key && a.Limit.Algorithm == b.Limit.Algorithm && a.Group == b.Group && a.Alt == b.Alt
}

// decideAboutTake decides an act about a take that was decided here, and has the store
// amend the take. It returns false if the take has been left to the store in between,
// which then has to decide the act, too.
func (l *Remote) decideAboutTake(a *weir.Act, take *localTake) bool {
	keys := l.outstanding.shardsOfAct(a)
	l.deciding.begin(keys)
	defer l.deciding.end(keys)
	l.decideLocally(a)
	if a.Err != nil || a.Kind == acts.KindTake {
		if l.ids.isDropped(take) {
			a.Err = nil
			return false
		}
		l.counts.local.Add(1)
		return true
	}
	kept := l.ids.change(take, func(take *weir.Act) {
		for i := range take.Decisions {
			d, granted := &take.Decisions[i], a.Decisions[i].Granted
			if l.Policy(&take.Charges[i]) == Allow {
				granted = 0
			}
			switch a.Kind {
			case acts.KindSettle:
				d.Granted = granted
			case acts.KindRelease, acts.KindRefund:
				d.Granted = max(0, d.Granted-granted)
			case acts.KindRenew:
				take.Hold = a.Hold
			}
		}
	})
	if !kept {
		return false
	}
	l.counts.local.Add(1)
	if a.Kind == acts.KindRenew {
		l.ids.extend(take, life(a)+l.now())
	}
	l.wake()
	return true
}
