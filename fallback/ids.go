package fallback

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// sweptIDs is how many ids are looked at when one is added.
const sweptIDs = 4

// ids are those of the takes that were decided here.
type ids struct {
	used atomic.Bool // there is or was one
	most int

	mu  sync.Mutex // guards what follows
	all map[idName]*taken
}

// An idName is an id beside the key that it was taken with first, as stores keep
// them.
type idName struct{ key, id string }

// taken is what a take was granted.
type taken struct {
	until   int64   // µs
	granted []int64 // of each charge; nil once it is settled, released or refunded
}

func newIDs(most int) *ids { return &ids{most: most, all: map[idName]*taken{}} }

func idOf(a *weir.Act) idName {
	if a.ID == "" || len(a.Charges) == 0 {
		return idName{}
	}
	return idName{a.Charges[0].Key, a.ID}
}

// find returns what is known of an act's id; nil if it was not taken here.
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

// add remembers a take that was decided here.
func (s *ids) add(a *weir.Act, now int64) {
	t := &taken{until: now + life(a), granted: make([]int64, len(a.Decisions))}
	for i := range a.Decisions {
		t.granted[i] = a.Decisions[i].Granted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := 0
	for name, old := range s.all {
		if looked++; looked > sweptIDs {
			break
		}
		if now >= old.until {
			delete(s.all, name)
		}
	}
	if len(s.all) < s.most {
		s.all[idOf(a)] = t
		s.used.Store(true)
	}
}

// close ends what a take was granted, and returns it the first time.
func (s *ids) close(t *taken) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := t.granted
	t.granted = nil
	return granted
}

// extend makes an id live as long as the lease of its holder.
func (s *ids) extend(t *taken, a *weir.Act, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.until = max(t.until, now+life(a))
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

// keep answers the acts whose ids were taken here and returns the others, and those
// whose ids are the store's from now on.
func (t *Taker) keep(ctx context.Context, acts []*weir.Act) []*weir.Act {
	var others []*weir.Act
	for i, a := range acts {
		known := t.ids.find(a, t.now())
		switch {
		case known != nil:
			if others == nil {
				others = append(make([]*weir.Act, 0, len(acts)), acts[:i]...)
			}
			if !a.Prepare() && t.again(ctx, a, known) {
				others = append(others, a)
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

// again does what is asked of a take that was decided here, and reports whether the
// store is to do it instead.
func (t *Taker) again(ctx context.Context, a *weir.Act, known *taken) bool {
	t.here(a)
	t.counts.local.Add(1)
	if a.Err != nil {
		return false
	}
	switch a.Kind {
	case weir.Settle:
		for i, before := range t.ids.close(known) {
			t.owe(&a.Charges[i], &a.Decisions[i], a.Decisions[i].Granted-before)
		}
	case weir.Release, weir.Refund:
		if t.ids.close(known) != nil {
			t.forgive(a)
		}
	case weir.Renew:
		t.ids.extend(known, a, t.now())
		return t.adopted(ctx, a, known)
	}
	return false
}
