package memengine

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestFullStoreAgainstLarge compares a store that has room for a part of its keys with one that
// has room for all, by random histories of all kinds of acts. The large store learns from the
// small one only which keys share their limit's budget, and when memory is short: states do not
// grow then.
func TestFullStoreAgainstLarge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			clock, steps := storetest.NewClock(), storetest.Length(4000)
			small := &small{Store: New(Options{MaxBytes: 3 << 10, MaxIDBytes: 64 << 20, Now: clock.Now})}
			large := &large{Store: New(Options{Now: clock.Now}), small: small, born: map[name]int{}}
			w := storetest.Twins{A: small, B: large, Clock: clock, Seed: seed, Listed: true}
			// A budget that is fresh is dropped, and missing where a clock goes back.
			w.Forward = true
			if err := w.Compare(steps); err != nil {
				t.Fatal(err)
			}
			if n := small.Stats().Overflowed; n < int64(steps/10) || large.merged < steps/100 || large.left < steps/100 {
				t.Errorf("%d charges shared a budget, %d keys did in one act, %d got one of their own", n, large.merged, large.left)
			}
		})
	}
}

// keyOf names the key of a charge.
func (s *Store) keyOf(c *weir.Charge) name { return s.name(c.Limit.Rule().ID, c.Key) }

// decideOf decides a valid act whose charges have keys by these names. It calls begin before
// the states of the keys are loaded.
func (s *Store) decideOf(a *weir.Act, names []name, begin func(c *call)) *call {
	c := new(call)
	acts.Prepare(a)
	c.gather(s, a)
	c.slots, c.shards = nil, nil
	for i := range names {
		c.slotOf[i], c.blockOf[i] = c.slot(names[i], a.Charges[i].Limit, a.Charges[i].Limit.Rule()), -1
	}
	if a.ID != "" {
		c.shards = append(c.shards, c.recordAt)
	}
	begin(c)
	fills := acts.Fills(a)
	if s.decideLocked(c, a); fills {
		acts.FillRest(a)
	}
	return c
}

// A small store has all keys in its first shard, and remembers how it found those of its last acts.
type small struct {
	*Store
	found [][]finding
	tight []bool // of each act
}

// A finding is how the store found the key of a charge.
type finding struct{ shared, known bool }

func (s *small) Take(ctx context.Context, all []*weir.Act) {
	s.found, s.tight = nil, nil
	weir.TakeValid(ctx, all, func(_ context.Context, all []*weir.Act) {
		for _, a := range all {
			names, found := make([]name, len(a.Charges)), make([]finding, len(a.Charges))
			for i := range names {
				names[i] = s.keyOf(&a.Charges[i])
				names[i].high &= 1<<(64-shardBits) - 1
			}
			c := s.decideOf(a, names, func(*call) {})
			for i := range found {
				t := &c.slots[c.slotOf[i]]
				found[i] = finding{t.shared != nil, t.known}
			}
			s.found, s.tight = append(s.found, found), append(s.tight, c.tight)
		}
	})
}

// A large store decides the acts that a small one has decided. It has one key instead of the keys
// that shared a budget there, and a copy of that key for each key that came after.
type large struct {
	*Store
	small        *small
	born         map[name]int // how often the small store found a key new
	merged, left int
}

func (l *large) Take(ctx context.Context, all []*weir.Act) {
	weir.TakeValid(ctx, all, func(_ context.Context, all []*weir.Act) {
		for n, a := range all {
			l.decide(a, l.small.found[n], l.small.tight[n])
		}
	})
}

func (l *large) decide(a *weir.Act, found []finding, tight bool) {
	names, budgets, sharing := make([]name, len(found)), make([]name, len(found)), map[name]string{}
	for i, f := range found {
		if c := &a.Charges[i]; !f.shared && !f.known {
			l.born[l.keyOf(c)]++
		}
	}
	for i, f := range found {
		c := &a.Charges[i]
		rule := *c.Limit.Rule()
		budgets[i] = l.name(rule.ID, fmt.Sprintf("budget %q %+v", c.Limit.Name, rule))
		if names[i] = l.name(rule.ID, fmt.Sprint(c.Key, " ", l.born[l.keyOf(c)])); !f.shared {
			continue
		}
		names[i] = budgets[i]
		if other, several := sharing[names[i]]; several && other != c.Key {
			l.merged++
		}
		sharing[names[i]] = c.Key
	}
	l.decideOf(a, names, func(c *call) {
		c.tight = tight
		for i, f := range found {
			if f.shared || f.known {
				continue
			}
			t := &c.slots[c.slotOf[i]]
			from := slot{name: budgets[i], limit: t.limit, rule: t.rule}
			if l.load(&from, 0); from.known {
				l.left++
			}
			t.state, t.state.Ext = from.state, from.state.Ext.Clone()
		}
	})
}
