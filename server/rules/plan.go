package rules

import (
	"fmt"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/config"
)

const maxDescriptors = 64

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
	d := s.domains[req.Domain]
	if d == nil {
		return &Plan{}, nil
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
	b := builder{req: req, found: found}
	if replacing {
		b.replaced = replacedBy(found)
	}
	return b.build()
}

func (r *Request) check() error {
	if r.Domain == "" {
		return &weir.InvalidError{Field: "domain", Value: `""`, Want: "a domain's name"}
	}
	if len(r.Descriptors) == 0 || len(r.Descriptors) > maxDescriptors {
		return outside("descriptors", len(r.Descriptors), fmt.Sprintf("1 … %d descriptors", maxDescriptors))
	}
	if r.Each != nil && len(r.Each) != len(r.Descriptors) {
		return outside("each", len(r.Each), "one for each descriptor")
	}
	if r.Cost < 0 || r.Cost > weir.MaxCount {
		return outside("cost", r.Cost, fmt.Sprintf("0 … %d", weir.MaxCost))
	}
	if r.UpTo != 0 && (r.Cost == 0 || r.UpTo < r.Cost || r.UpTo > weir.MaxCost) {
		return outside("up_to", r.UpTo, fmt.Sprintf("the cost … %d, with a cost of at least 1", weir.MaxCost))
	}
	for i, entries := range r.Descriptors {
		if err := checkEntries(i, entries); err != nil {
			return err
		}
	}
	return nil
}

func checkEntries(i int, entries []Entry) error {
	if len(entries) > config.MaxDepth {
		return outside(fmt.Sprintf("descriptors[%d].entries", i), len(entries), fmt.Sprintf("at most %d entries", config.MaxDepth))
	}
	for j, e := range entries {
		field, text := "key", e.Key
		if len(text) <= config.MaxTextBytes {
			field, text = "value", e.Value
		}
		if len(text) > config.MaxTextBytes {
			return outside(fmt.Sprintf("descriptors[%d].entries[%d].%s", i, j, field),
				fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d bytes", config.MaxTextBytes))
		}
	}
	return nil
}

func outside(field string, value any, want string) error {
	return &weir.InvalidError{Field: field, Value: fmt.Sprint(value), Want: want}
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

// builder turns what was found into acts, which share a few allocations.
type builder struct {
	req       *Request
	found     []matched
	replaced  map[string]bool
	plan      Plan
	acts      []weir.Act
	charges   []weir.Charge
	decisions []weir.Decision
	grouped   int // how many charges are one act
	groupAct  *weir.Act
}

func (b *builder) build() (*Plan, error) {
	applied, solo := b.count()
	if total := b.grouped + solo; total > weir.MaxCharges {
		return nil, outside("descriptors", strconv.Itoa(total)+" charges", fmt.Sprintf("at most %d", weir.MaxCharges))
	}
	acts := solo
	if b.grouped > 0 {
		acts++
	}
	b.acts = make([]weir.Act, 0, acts)
	b.charges = make([]weir.Charge, b.grouped+solo)
	b.decisions = make([]weir.Decision, b.grouped+solo)
	b.plan = Plan{Acts: make([]*weir.Act, 0, acts), Applied: make([]Applied, 0, applied)}
	for i := range b.found {
		if err := b.apply(&b.found[i]); err != nil {
			return nil, err
		}
	}
	return &b.plan, nil
}

// count returns how many limits apply and how many of them are acts of their own.
func (b *builder) count() (applied, solo int) {
	for _, m := range b.found {
		for i := range m.rule.names {
			switch {
			case b.dropped(m.rule, i):
				continue
			case m.rule.Unlimited:
			case m.alone:
				solo++
			default:
				b.grouped++
			}
			applied++
		}
	}
	return applied, solo
}

func (b *builder) dropped(r *Rule, i int) bool { return b.replaced[r.names[i]] && r.names[i] != "" }

func (b *builder) apply(m *matched) error {
	for i := range m.rule.names {
		if b.dropped(m.rule, i) {
			continue
		}
		a := Applied{Descriptor: m.descriptor, Rule: m.rule}
		if !m.rule.Unlimited {
			a.Limit = m.rule.Limits[i]
			if err := b.checkCost(a.Limit); err != nil {
				return err
			}
			a.Act = b.act(m)
			a.Charge = len(a.Act.Charges)
			a.Act.Charges = append(a.Act.Charges, weir.Charge{
				Key: bounded(m.base, m.rule.suffixes[i]), Slot: m.slot,
				Limit: a.Limit, Cost: m.ask.Cost, UpTo: b.req.UpTo,
			})
		}
		b.plan.Applied = append(b.plan.Applied, a)
	}
	return nil
}

// checkCost checks what only the limit knows: how large a cost it takes.
func (b *builder) checkCost(l *weir.Limit) error {
	if b.req.Cost > weir.MaxCost && !l.ChargeRefused {
		return outside("cost", b.req.Cost, fmt.Sprintf("0 … %d", weir.MaxCost))
	}
	return nil
}

// act returns the act that the next charge of what was matched belongs to.
func (b *builder) act(m *matched) *weir.Act {
	if !m.alone && b.groupAct != nil {
		return b.groupAct
	}
	size := 1
	if !m.alone {
		size = b.grouped
	}
	b.acts = append(b.acts, weir.Act{Kind: m.ask.kind(), Charges: b.charges[:0:size], Decisions: b.decisions[:size:size]})
	b.charges, b.decisions = b.charges[size:], b.decisions[size:]
	act := &b.acts[len(b.acts)-1]
	b.plan.Acts = append(b.plan.Acts, act)
	if !m.alone {
		b.groupAct = act
	}
	return act
}
