package rules

import (
	"crypto/rand"

	"github.com/weirlimit/weir"
)

// matched is a descriptor that a rule is for.
type matched struct {
	descriptor int
	call       *Call // nil for a rule; descriptor is then its index
	rule       *Rule
	base, tag  span // how its keys begin, and their hash tag
	budgets    int  // the first of its budgets in the builder's
	ask        Ask
	alone      bool // each of the rule's limits, or all its alternatives, are an act of its own
	own        *weir.Act
}

// Plan matches the descriptors of a request and makes the acts that decide it.
// A request that no rule is for has an empty plan. Errors are
// [*weir.InvalidError] and name the field of the request.
func (s *Set) Plan(req *Request) (*Plan, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	if s.missing {
		return nil, ErrNotLoaded
	}
	b := newBuilder(req)
	if req.ID == "" && req.Hold > 0 {
		b.plan.ID = rand.Text()
	}
	switch d := s.domains[req.Domain]; {
	case len(req.Descriptors) == 0:
	case d == nil:
		b.plan.Unmatched = UnmatchedDomain
	default:
		if b.find(d); len(b.found) == 0 {
			b.plan.Unmatched = UnmatchedRule
		}
	}
	if len(req.Calls) > 0 {
		if err := b.findCalls(s); err != nil {
			return nil, err
		}
	}
	if err := b.build(); err != nil {
		return nil, err
	}
	b.req = nil
	return &b.plan, nil
}

// find looks for the rules of all descriptors.
func (b *builder) find(d *domain) {
	replacing := false
	for i, entries := range b.req.Descriptors {
		var p path
		ask := b.req.ask(i)
		rule := d.rule(entries, &ask, &p)
		if b.req.Budget != "" {
			rule = d.budget(entries, &p, b.req.Budget)
		}
		if rule == nil {
			continue
		}
		m := matched{descriptor: i, rule: rule, budgets: len(b.budgets), ask: ask, alone: rule.alone() || ask.Refund || ask.Record}
		if !rule.Unlimited || rule.Trial != nil {
			m.base = b.write(d, entries, &p, nil)
			if m.tag = m.base; rule.hashTag != nil {
				m.tag = b.write(d, entries, &p, rule.hashTag)
			}
			m.rule = rule.settle(b.text[m.base.from:m.base.to])
			for _, l := range rule.Limits {
				if budget := l.Budget; budget != nil {
					own := placed{key: b.write(d, entries[:budget.Depth], &p, nil)}
					if own.tag = own.key; budget.TagDepth < budget.Depth {
						own.tag = b.write(d, entries[:budget.TagDepth], &p, nil)
					}
					b.budgets = append(b.budgets, own)
				}
			}
		}
		b.found = append(b.found, m)
		if m.rule = rule.Trial; m.rule != nil {
			m.alone = true
			b.found = append(b.found, m)
		}
		replacing = replacing || len(rule.Replaces) > 0
	}
	if replacing {
		b.replaced = replacedBy(b.found)
	}
}

// write writes the text that identifies a budget, or the part of it for the marked
// levels, so that one key is always in one hash slot. A long text becomes its digest at
// once, because the keys of all limits begin with it.
func (b *builder) write(d *domain, entries []Entry, p *path, marked []bool) span {
	from := len(b.text)
	b.text = appendLevels(append(b.text, d.prefix...), entries, p, marked)
	if len(b.text)-from > maxPlainBytes {
		b.text = appendDigest(b.text[:from], b.text[from:])
	}
	return span{from, len(b.text)}
}

// appendLevels appends the entries of the marked levels; nil marks all.
func appendLevels(to []byte, entries []Entry, p *path, marked []bool) []byte {
	start := len(to)
	for i, e := range entries {
		if marked != nil && !marked[i] {
			continue
		}
		if len(to) > start {
			to = append(to, ',')
		}
		if n := p[i]; n != nil && n.shared != "" {
			to = append(to, n.shared...)
		} else {
			to = appendEntry(to, e)
		}
	}
	return to
}

// replacedBy returns the names of the limits that give way to others.
func replacedBy(found []matched) map[string]bool {
	names := map[string]bool{}
	for i := range found {
		for _, name := range found[i].rule.Replaces {
			names[name] = true
		}
	}
	return names
}
