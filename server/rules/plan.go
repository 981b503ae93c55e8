package rules

import (
	"crypto/rand"
)

// matched is a descriptor that a rule is for.
type matched struct {
	descriptor int
	rule       *Rule
	base, slot string // what its keys begin with, and where they belong
	ask        Ask
	alone      bool // each of the rule's limits is an act of its own
}

// Plan matches the descriptors of a request and makes the acts that decide it.
// A request that no rule is for has an empty plan. Errors are
// [*weir.InvalidError] and name the field of the request.
func (s *Set) Plan(req *Request) (*Plan, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	b := builder{req: req, plan: Plan{ID: req.ID}}
	if req.ID == "" && req.Hold > 0 {
		b.plan.ID = rand.Text()
	}
	d := s.domains[req.Domain]
	if d == nil {
		return &b.plan, nil
	}
	found := make([]matched, 0, len(req.Descriptors))
	replacing := false
	for i, entries := range req.Descriptors {
		var p path
		ask := req.ask(i)
		rule := d.rule(entries, &ask, &p)
		if rule == nil {
			continue
		}
		m := matched{descriptor: i, rule: rule, ask: ask, alone: rule.alone() || ask.Refund}
		if !rule.Unlimited {
			m.base, m.slot = d.keys(entries, &p, rule.slot)
		}
		found = append(found, m)
		replacing = replacing || len(rule.Replaces) > 0
	}
	b.found = found
	if replacing {
		b.replaced = replacedBy(found)
	}
	return b.build()
}

// keys returns what the keys of a descriptor begin with, and its slot. Both are
// made of what identifies the budget, so that one key is always in one slot.
func (d *domain) keys(entries []Entry, p *path, levels []bool) (base, slot string) {
	buf := make([]byte, 0, 128)
	buf = append(buf, d.prefix...)
	base = string(appendLevels(buf, entries, p, nil))
	if levels == nil {
		return base, base
	}
	return base, string(appendLevels(buf, entries, p, levels))
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
	for _, m := range found {
		for _, name := range m.rule.Replaces {
			names[name] = true
		}
	}
	return names
}
