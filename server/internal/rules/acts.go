package rules

import (
	"crypto/rand"
	"slices"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// builder turns matched rules into acts. It is the memory of its plan, and is reused for
// further plans once that is freed.
type builder struct {
	req       *Request
	found     []matched
	replaced  map[string]bool
	plan      Plan
	text      []byte   // what all keys and slots are cut from
	keys      []placed // of the applied limits that have an act
	budgets   []placed // how the keys begin of the budgets that the found rules charge
	acts      []weir.Act
	charges   []weir.Charge
	decisions []weir.Decision
	grouped   int // how many charges are one act
	// algorithmic is how many charges are of rules with an algorithm, grouped or not.
	algorithmic int
	concurrent  bool   // some limit counts holders, which need an ID
	owner, asks string // of the scope; empty until it is needed
	// group is the group of the shared act's next charges, alternatives whether the last
	// rule in it had alternatives.
	group        uint8
	alternatives bool
}

func (b *builder) build() error {
	applied, solo, trials := b.count()
	if err := checkCharges(b.algorithmic, b.grouped+solo); err != nil {
		return err
	}
	b.grow(applied, solo+trials)
	if b.plan.ID == "" && b.concurrent && b.req.Kind == acts.KindTake && b.req.Charges() && !b.req.Dry {
		b.plan.ID = rand.Text()
	}
	for i := range b.found {
		if err := b.apply(&b.found[i]); err != nil {
			return err
		}
	}
	b.cut()
	return b.check()
}

// count returns how many limits apply, how many of them are acts of their own, and
// how many of those, counted apart, are on trial.
func (b *builder) count() (applied, solo, trials int) {
	for j := range b.found {
		m := &b.found[j]
		for _, l := range m.rule.all {
			switch {
			case b.dropped(m.rule, l):
				continue
			case m.rule.Unlimited:
			case m.rule.OnTrial:
				trials++
			case m.isAlone(l.Limit):
				solo++
			default:
				b.grouped++
			}
			if m.rule.Grouped && !m.rule.Unlimited && !m.rule.OnTrial {
				b.algorithmic++
			}
			applied++
			b.concurrent = b.concurrent || !m.rule.Unlimited && !m.rule.OnTrial && algo.TraitsOf(l.Algorithm).HoldsSlots
		}
	}
	return applied, solo, trials
}

// dropped reports whether the request does not charge a limit of the rule: another
// descriptor's limit replaces it, and with it the whole alternative, or it has slots and
// the request only records units.
func (b *builder) dropped(r *Rule, l *Limit) bool {
	if b.req.Kind == acts.KindRecord && b.req.Costs != nil && !r.Unlimited && algo.TraitsOf(l.Algorithm).HoldsSlots {
		return true // work that is over holds no slot
	}
	if len(b.replaced) == 0 {
		return false
	}
	for _, other := range r.all {
		if (other == l || l.Alternative > 0 && other.Alternative == l.Alternative) && other.name != "" && b.replaced[other.name] {
			return true
		}
	}
	return false
}

// kept returns how many of the rule's limits apply.
func (b *builder) kept(r *Rule) (n int) {
	for _, l := range r.all {
		if !b.dropped(r, l) {
			n++
		}
	}
	return n
}

func (b *builder) apply(m *matched) error {
	budgets := b.budgets[m.budgets:]
	if m.rule.Alternatives > 0 {
		if err := m.checkAlternatives(); err != nil {
			return err
		}
		if slices.ContainsFunc(m.rule.Limits, func(l *Limit) bool { return l.Budget != nil }) {
			// One script decides all alternatives, in the hash slot of the budget.
			m.tag = budgets[0].tag
		}
	}
	if !m.alone && b.plan.Shared != nil && (m.rule.Alternatives > 0 || b.alternatives) {
		b.group++
	}
	b.alternatives = m.rule.Alternatives > 0 || m.alone && b.alternatives
	var owner span
	if m.rule.owned {
		owner = b.key(m.base, ownerSuffix)
	}
	for _, l := range m.rule.all {
		a := Applied{Descriptor: m.descriptor, Call: m.call, Rule: m.rule, Of: l, Limit: l.Limit}
		base, tag := m.base, m.tag
		if l.Budget != nil {
			// A key is always in one hash slot, whichever rule charges it.
			base, tag, budgets = budgets[0].key, budgets[0].tag, budgets[1:]
		}
		if b.dropped(m.rule, l) {
			continue
		}
		if !m.rule.Unlimited {
			charge, err := b.charge(m, l)
			if err != nil {
				return err
			}
			if !m.alone {
				charge.Group = b.group
			}
			if l.Alternative > 0 {
				charge.Alt = uint8(l.Alternative - 1)
			}
			b.keys = append(b.keys, placed{b.key(base, l.suffix), tag, owner})
			a.Act = b.act(m, &charge)
			a.Charge = len(a.Act.Charges)
			a.Act.Charges = append(a.Act.Charges, charge)
		}
		b.plan.Applied = append(b.plan.Applied, a)
	}
	return nil
}

// checkAlternatives refuses acts that cannot have alternatives: nothing says which of them
// was granted.
func (m *matched) checkAlternatives() error {
	field := "descriptors[" + strconv.Itoa(m.descriptor) + "]"
	if m.ask.Refund || m.ask.Record {
		return invalid(field, "a refund or a settlement without an id", "none: the rule "+m.rule.Path+" has alternatives")
	}
	for _, l := range m.rule.Limits {
		if m.ask.Anonymous && algo.TraitsOf(l.Algorithm).HoldsSlots {
			return invalid(field, "a slot without an id", "none: the rule "+m.rule.Path+" has alternatives")
		}
	}
	return nil
}

// isAlone reports whether one of the rule's limits is an act of its own.
func (m *matched) isAlone(l *weir.Limit) bool {
	return m.alone || m.ask.Anonymous && algo.TraitsOf(l.Algorithm).HoldsSlots
}

// charge returns the charge of one limit of a matched rule.
func (b *builder) charge(m *matched, l *Limit) (weir.Charge, error) {
	c := weir.Charge{Limit: l.Limit, Cost: m.ask.Cost, UpTo: b.req.UpTo}
	if kind := m.ask.kind(b.req.Kind); kind != acts.KindRecord && kind != acts.KindReset {
		c.Keep, c.Guaranteed = l.Keep, l.guaranteed()
		if l.Part > 0 && b.req.LeavesPart != nil && b.req.LeavesPart(l) {
			c.Keep = max(c.Keep, l.Part)
		}
	}
	if m.call != nil {
		c.Keep = m.call.Keep
	} else if b.req.Costs != nil {
		var err error
		if c.Cost, err = b.req.costOf(l.Limit, c.Keep); err != nil && !m.rule.OnTrial {
			return c, err
		}
	}
	if !algo.TraitsOf(l.Algorithm).HoldsSlots || m.ask.Anonymous {
		return c, nil
	}
	if c.UpTo > 1 && !m.rule.Shadow {
		return c, invalid("up_to", c.UpTo, "none: "+l.Name+" has slots, of which a request takes one")
	}
	c.Cost, c.UpTo = min(1, c.Cost), min(1, c.UpTo)
	if b.req.Kind == acts.KindSettle {
		c.Cost = 0
	}
	return c, nil
}

// act returns the act that the next charge of a matched rule belongs to.
func (b *builder) act(m *matched, c *weir.Charge) *weir.Act {
	alone := m.isAlone(c.Limit)
	if !alone && b.plan.Shared != nil {
		return b.plan.Shared
	}
	if m.own != nil {
		return m.own
	}
	size, kind := 1, m.ask.kind(b.req.Kind)
	switch {
	case !alone:
		size = b.grouped
	case m.rule.Alternatives > 0:
		size = b.kept(m.rule)
	}
	from := len(b.charges)
	b.charges, b.decisions = b.charges[:from+size], b.decisions[:from+size]
	b.acts = append(b.acts, weir.Act{
		Kind: kind, ID: b.actID(m, alone), Anonymous: m.ask.Anonymous && (kind != acts.KindTake || algo.TraitsOf(c.Limit.Algorithm).HoldsSlots),
		NewID: b.req.ID == "", Hold: b.req.Hold, MaxWait: b.req.MaxWait, Immediate: b.req.Immediate, Dry: b.req.Dry,
		Charges: b.charges[from : from : from+size], Decisions: b.decisions[from : from+size : from+size],
	})
	act := &b.acts[len(b.acts)-1]
	if act.ID != "" && (!alone || m.rule.Alternatives > 0) {
		act.Scope = b.scope()
	}
	b.plan.Acts = append(b.plan.Acts, act)
	switch {
	case !alone:
		b.plan.Shared = act
	case m.rule.Alternatives > 0:
		m.own = act
	}
	if m.rule.Shadow && (c.Keep > 0 || c.Limit.Block > 0 || m.rule.Alternatives > 0 || !algo.TraitsOf(c.Limit.Algorithm).Books) {
		// A shadow rule must not make the request invalid.
		act.MaxWait = 0
	}
	return act
}

// actID is the id of the next act: the plan's and a number behind a slash, or a
// digest, which has no slash, where that is too long. The act of the grouped
// rules is number 0. An act of one limit has the number of its descriptor, from 1 on, and so
// has one on trial, apart: its key owns the id. A rule that comes or goes changes no
// other act's id.
func (b *builder) actID(m *matched, alone bool) string {
	if b.plan.ID == "" {
		return ""
	}
	suffix := "/0"
	switch {
	case m.rule.OnTrial:
		suffix = "/trial" + strconv.Itoa(m.descriptor+1)
	case alone && m.call != nil:
		suffix = "/call" // and the key
	case alone:
		suffix = "/" + strconv.Itoa(m.descriptor+1)
	}
	return bounded(b.plan.ID, suffix, weir.MaxIDBytes)
}
