package rules

import (
	"slices"
	"unsafe"

	"github.com/weirlimit/weir"
)

// A Template makes copies of a plan that was not taken. It is immutable, has its own memory,
// and refers to nothing of the request but texts that the plan has made.
type Template struct {
	acts    []weir.Act    // in the order of the plan's, without decisions
	charges []weir.Charge // of all acts, in their order
	applied []Applied     // without acts
	of      []int         // for each of the applied limits, the index of its act; -1 for none
	shared  int           // the index of the shared act; -1 for none
}

// Repeats reports whether a request like the plan's always gets the same plan from the same
// rules: nothing in it is random.
func (p *Plan) Repeats() bool { return p.ID == "" }

// Template returns a template of a plan that has a rule, [Plan.Repeats], and was not taken.
func (p *Plan) Template() *Template {
	t := &Template{applied: slices.Clone(p.Applied), of: make([]int, len(p.Applied)), shared: slices.Index(p.Acts, p.Shared)}
	charges := 0
	for _, a := range p.Acts {
		charges += len(a.Charges)
	}
	t.acts, t.charges = make([]weir.Act, len(p.Acts)), make([]weir.Charge, 0, charges)
	for i, a := range p.Acts {
		from := len(t.charges)
		t.charges = append(t.charges, a.Charges...)
		t.acts[i] = *a
		t.acts[i].Charges, t.acts[i].Decisions = t.charges[from:], nil
	}
	for i := range t.applied {
		t.of[i], t.applied[i].Act = slices.Index(p.Acts, t.applied[i].Act), nil
	}
	return t
}

// Plan returns a plan like the one that the template was made of.
func (t *Template) Plan() *Plan {
	b := builders.Get().(*builder)
	b.acts, b.charges = append(b.acts, t.acts...), append(b.charges, t.charges...)
	b.decisions = slices.Grow(b.decisions, len(t.charges))[:len(t.charges)]
	clear(b.decisions)
	p, from := &b.plan, 0
	for i := range b.acts {
		a := &b.acts[i]
		to := from + len(a.Charges)
		a.Charges, a.Decisions = b.charges[from:to:to], b.decisions[from:to:to]
		p.Acts, from = append(p.Acts, a), to
	}
	if t.shared >= 0 {
		p.Shared = p.Acts[t.shared]
	}
	p.Applied = append(p.Applied, t.applied...)
	for i, act := range t.of {
		if act >= 0 {
			p.Applied[i].Act = p.Acts[act]
		}
	}
	return p
}

// TemplateBytes is about how much memory the template of the plan takes.
func (p *Plan) TemplateBytes() int {
	const act, charge, applied = unsafe.Sizeof(weir.Act{}), unsafe.Sizeof(weir.Charge{}), unsafe.Sizeof(Applied{}) + unsafe.Sizeof(0)
	bytes := unsafe.Sizeof(Template{}) + act*uintptr(len(p.Acts)) + applied*uintptr(len(p.Applied))
	for _, a := range p.Acts {
		bytes += charge * uintptr(len(a.Charges))
	}
	return int(bytes) + len(p.builder.text)
}
