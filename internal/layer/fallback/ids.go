package fallback

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// sweptIDs is how many ids are looked at when one is added.
const sweptIDs = 4

// ids are the takes with an id whose outcome in the store is not what their callers
// were told, or may not be.
type ids struct {
	used atomic.Bool // there is or was one
	most int

	dues atomic.Int64 // how many are to be amended

	mu    sync.Mutex // guards what follows
	all   map[idName]*taken
	byKey map[string]map[*taken]struct{} // those that are to be amended
}

// An idName is an id beside the key that it was taken with first, as stores keep
// them.
type idName struct{ key, id string }

// A taken is what is known of a take with an id.
type taken struct {
	act   weir.Act // the take, with what its caller was told last; without, if told is not set
	until int64    // µs
	// told: the caller got decisions, so that the id is answered here.
	told bool
	// out is closed once the reply to the take has come; nil if it was never sent.
	out chan struct{}
	due bool // the store is to be amended
	// busy is closed once the amendment that is in flight has its reply; nil if none is.
	// A later one must not overtake it.
	busy    chan struct{}
	changes int // to what the caller was told
}

func newIDs(most int) *ids {
	return &ids{most: most, all: map[idName]*taken{}, byKey: map[string]map[*taken]struct{}{}}
}

func idOf(a *weir.Act) idName {
	if a.ID == "" || len(a.Charges) == 0 {
		return idName{}
	}
	return idName{a.Charges[0].Key, a.ID}
}

// find returns what is known of an act's id; nil if that is nothing.
func (s *ids) find(a *weir.Act, now int64) *taken {
	name := idOf(a)
	if name.id == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.all[name]; t != nil && now < t.until {
		return t
	}
	return nil
}

// add remembers a take, and returns nil if there is no room for it.
func (s *ids) add(t *taken, now int64) *taken {
	t.until = now + life(&t.act)
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := 0
	for name, old := range s.all {
		if looked++; looked > sweptIDs {
			break
		}
		if now >= old.until {
			s.remove(name, old)
		}
	}
	if len(s.all) >= s.most {
		return nil
	}
	if old := s.all[idOf(&t.act)]; old != nil {
		s.remove(idOf(&t.act), old)
	}
	s.all[idOf(&t.act)] = t
	s.used.Store(true)
	return t
}

func (s *ids) remove(name idName, t *taken) {
	s.unmark(t)
	delete(s.all, name)
}

// drop forgets an id, which is the store's from now on, unless its caller was told
// something else since.
func (s *ids) drop(t *taken, changes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.changes != changes {
		return false
	}
	if s.all[idOf(&t.act)] == t {
		s.remove(idOf(&t.act), t)
	}
	return true
}

// change changes what the caller of a take was told, and has the store amended once the
// reply to the take has come.
func (s *ids) change(t *taken, how func(a *weir.Act)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how(&t.act)
	t.changes++
	if t.out == nil {
		s.mark(t)
	}
}

func (s *ids) mark(t *taken) {
	if t.due || s.all[idOf(&t.act)] != t {
		return
	}
	t.due = true
	s.dues.Add(1)
	for i := range t.act.Charges {
		key := t.act.Charges[i].Key
		if s.byKey[key] == nil {
			s.byKey[key] = map[*taken]struct{}{}
		}
		s.byKey[key][t] = struct{}{}
	}
}

func (s *ids) unmark(t *taken) {
	if !t.due {
		return
	}
	t.due = false
	s.dues.Add(-1)
	for i := range t.act.Charges {
		key := t.act.Charges[i].Key
		if delete(s.byKey[key], t); len(s.byKey[key]) == 0 {
			delete(s.byKey, key)
		}
	}
}

// owes reports whether anything is to be amended.
func (s *ids) owes() bool { return s.dues.Load() > 0 }

// under takes out the amendments that concern a key, and adds them to those that its
// caller has. If others have some, busy is closed once one of these is over.
func (s *ids) under(key string, now int64, kept func(*weir.Act) bool, own map[*taken]bool) (all []amendment, busy <-chan struct{}) {
	if !s.owes() {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.byKey[key] {
		switch {
		case own[t]:
		case t.busy != nil:
			busy = t.busy
		case now < t.until && (t.act.Allowed() || !kept(&t.act)):
			own[t] = true
			all = append(all, t.amendment())
		}
	}
	return all, busy
}

// over notes that an amendment has its reply.
func (s *ids) over(t *taken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(t.busy)
	t.busy = nil
}

// amend has the store amended.
func (s *ids) amend(t *taken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark(t)
}

// replied notes that the reply to a take has come.
func (s *ids) replied(t *taken) (changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.out != nil {
		close(t.out)
		t.out = nil
	}
	return t.changes
}

// toAmend is how many takes are to be amended.
func (s *ids) toAmend() int { return int(s.dues.Load()) }

// An amendment is an act that amends a take, and which state of it.
type amendment struct {
	*weir.Act
	of      *taken
	changes int
}

// amendment is the act that makes the store agree with what the caller was told last. It
// is in flight until over.
func (t *taken) amendment() amendment {
	t.busy = make(chan struct{})
	a := copyOf(&t.act)
	a.Kind = weir.KindAmend
	return amendment{a, t, t.changes}
}

// collect returns up to so many amendments. Those that give something back may be kept.
func (s *ids) collect(most int, now int64, kept func(*weir.Act) bool) []amendment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []amendment
	if !s.owes() {
		return nil
	}
	for name, t := range s.all {
		switch {
		case len(all) == most:
			return all
		case !t.due || t.busy != nil:
		case now >= t.until:
			s.remove(name, t)
		case !t.act.Allowed() && kept(&t.act):
		default:
			all = append(all, t.amendment())
		}
	}
	return all
}

// copyOf is an act in memory of its own.
func copyOf(a *weir.Act) *weir.Act {
	own := *a
	own.Charges, own.Decisions = slices.Clone(a.Charges), slices.Clone(a.Decisions)
	return &own
}

// life is how long an act's id is remembered, in µs.
func life(a *weir.Act) int64 {
	granted, _ := a.Lives()
	return granted.Microseconds()
}

// keep answers the acts whose ids are answered here, waits for the replies to those
// that are out, and returns the acts that the store has to decide.
func (t *Taker) keep(ctx context.Context, acts []*weir.Act) []*weir.Act {
	var others []*weir.Act
	for i, a := range acts {
		known := t.ids.find(a, t.now())
		if known != nil && !known.told {
			t.waitFor(ctx, known)
			known = nil
		}
		switch {
		case known != nil:
			if others == nil {
				others = append(make([]*weir.Act, 0, len(acts)), acts[:i]...)
			}
			if !a.Prepare() {
				t.again(a, known)
			}
		case others != nil:
			others = append(others, a)
		}
	}
	if others == nil {
		return acts
	}
	return others
}

// waitFor waits until the reply to a take has come, or ctx ends.
func (t *Taker) waitFor(ctx context.Context, known *taken) {
	t.ids.mu.Lock()
	out := known.out
	t.ids.mu.Unlock()
	if out == nil {
		return
	}
	select {
	case <-out:
	case <-ctx.Done():
	}
}

// again does what is asked of a take that was decided here, and has the store amended.
func (t *Taker) again(a *weir.Act, known *taken) {
	t.here(a)
	t.counts.local.Add(1)
	if a.Err != nil || a.Kind == weir.KindTake {
		return
	}
	t.ids.change(known, func(take *weir.Act) {
		for i := range take.Decisions {
			d, now := &take.Decisions[i], a.Decisions[i].Granted
			switch a.Kind {
			case weir.KindSettle:
				d.Granted = now
			case weir.KindRelease, weir.KindRefund:
				d.Granted = max(0, d.Granted-now)
			case weir.KindRenew:
				take.Hold = a.Hold
			}
		}
	})
	if a.Kind == weir.KindRenew {
		t.ids.extend(known, life(a)+t.now())
	}
	t.wake()
}

// extend makes an id live as long as the lease of its holder.
func (s *ids) extend(t *taken, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.until = max(t.until, until)
}
