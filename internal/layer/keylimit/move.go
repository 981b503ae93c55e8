package keylimit

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// A move is an act that is passed to the next Taker. The caller's act is never changed:
// the first charge that is moved makes a copy, which shares nothing with it but the
// decisions.
type move struct {
	act   *weir.Act
	moved []bool // the charges that were moved; nil: none
}

// charge puts a charge under the overflow key, which has a hash slot of its own, and is never
// blocked: it is many callers'.
func (m *move) charge(i int, overflow string) {
	if m.moved == nil {
		moved := *m.act
		moved.Charges = slices.Clone(moved.Charges)
		m.act, m.moved = &moved, make([]bool, len(moved.Charges))
	}
	c := &m.act.Charges[i]
	m.moved[i] = true
	c.Key, c.HashTag, c.Limit = overflow, "", c.Limit.WithoutBlock()
}

// end completes the act once its charges were moved.
func (m *move) end() {
	if m.moved == nil {
		return
	}
	for i := 0; i < len(m.act.Charges); {
		end := acts.GroupEnd(m.act, i)
		if acts.AltEnd(m.act, i) < end {
			m.gather(i, end)
		}
		i = end
	}
	m.act.ForgetRefused = true // there may be any number of such IDs
}

// gather puts the charges of a group with alternatives into one hash slot again: that of the
// states that were not moved, or else of the last overflow key. The last alternative is most
// often a budget, which other rules charge there, too.
func (m *move) gather(from, end int) {
	tag := ""
	for i := from; i < end; i++ {
		c := &m.act.Charges[i]
		if m.moved[i] {
			tag = c.Key
		} else if hasState(c) {
			tag = cmp.Or(c.HashTag, c.Key)
			break
		}
	}
	for i := from; tag != "" && i < end; i++ {
		m.act.Charges[i].HashTag = tag
	}
}

// A spread act is an act about a take by its ID. The take may have been charged under the keys of
// its caller or under overflow keys, at another instance, too. So the act lists both, and the
// store changes the charges that the take had.
type spread struct {
	weir.Act
	of []int // the charge of the caller's act that each charge stands for
}

// spread returns the act with the overflow keys of its charges. If there are more than
// [weir.MaxCharges], it leaves out the last overflow keys: their units drain.
func (l *Layer) spread(a *weir.Act) *spread {
	s := &spread{Act: *a}
	s.Charges = nil
	room := weir.MaxCharges - len(a.Charges)
	for i := 0; i < len(a.Charges); {
		end := acts.GroupEnd(a, i)
		tags := []string{""}
		if acts.AltEnd(a, i) < end {
			tags = l.tags(a, i, end)
		}
		for ; i < end; i++ {
			c := a.Charges[i]
			c.Guaranteed = false // the charge before it is another one
			s.add(c, i)
			b := l.budgetOf(&c)
			for _, tag := range tags {
				if b.MaxKeys > 0 && room > 0 {
					c.Key, c.HashTag, c.Limit = b.Overflow, tag, c.Limit.WithoutBlock()
					s.add(c, i)
					room--
				}
			}
		}
	}
	s.Decisions = make([]weir.Decision, len(s.Charges))
	return s
}

func (s *spread) add(c weir.Charge, of int) {
	s.Charges, s.of = append(s.Charges, c), append(s.of, of)
}

// tags returns the hash tags that gather may have given to the moved charges of a group.
func (l *Layer) tags(a *weir.Act, from, end int) (tags []string) {
	last := ""
	for i := from; i < end; i++ {
		c := &a.Charges[i]
		if tag := cmp.Or(c.HashTag, c.Key); hasState(c) && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
		if b := l.budgetOf(c); b.MaxKeys > 0 {
			last = b.Overflow
		}
	}
	return append(tags, last)
}

// answer sets the decisions of the caller's act: of each charge, that under the key that the take
// had.
func (s *spread) answer(a *weir.Act) {
	if a.Err = s.Err; a.Err != nil {
		return
	}
	last := -1
	for j, i := range s.of {
		d := &s.Decisions[j]
		switch {
		case d.Outcome != weir.NotEvaluated && (i != last || a.Decisions[i].Outcome == weir.NotEvaluated):
			a.Decisions[i] = *d
		case i != last:
			a.Decisions[i] = *d
		}
		last = i
	}
	for i := range a.Charges {
		if a.Charges[i].Guaranteed && i > 0 {
			a.Decisions[i].Remaining = max(a.Decisions[i].Remaining, a.Decisions[i-1].Remaining)
		}
	}
}
