package rules

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir"
)

// keptBytes is the largest buffer that is kept for further plans.
const keptBytes = 64 << 10

var builders = sync.Pool{New: func() any {
	b := new(builder)
	b.plan.builder = b
	return b
}}

func newBuilder(req *Request) *builder {
	b := builders.Get().(*builder)
	b.req, b.plan.ID = req, req.ID
	return b
}

// Free returns the plan's memory for further plans. The plan and its acts must not be
// used afterwards. Calling Free is optional.
func (p *Plan) Free() {
	b := p.builder
	if b == nil || cap(b.text) > keptBytes {
		return
	}
	// Clear the references, so that their targets do not live as long as the memory.
	clear(p.Acts)
	clear(p.Applied)
	clear(b.found)
	clear(b.acts)
	clear(b.charges)
	*b = builder{
		plan:  Plan{Acts: p.Acts[:0], Applied: p.Applied[:0], builder: b},
		found: b.found[:0], text: b.text[:0], keys: b.keys[:0], budgets: b.budgets[:0],
		acts: b.acts[:0], charges: b.charges[:0], decisions: b.decisions[:0],
	}
	builders.Put(b)
}

// grow makes room for all acts at once: pointers to them stay good.
func (b *builder) grow(applied, solo int) {
	acts, charges := solo, solo+b.grouped
	if b.grouped > 0 {
		acts++
	}
	b.acts, b.plan.Acts = slices.Grow(b.acts, acts), slices.Grow(b.plan.Acts, acts)
	b.charges, b.decisions = slices.Grow(b.charges, charges), slices.Grow(b.decisions, charges)
	b.keys, b.plan.Applied = slices.Grow(b.keys, charges), slices.Grow(b.plan.Applied, applied)
	clear(b.decisions[:charges])
}

// A span is a part of a builder's text.
type span struct{ from, to int }

// placed is a key, its hash tag and its owner.
type placed struct{ key, tag, owner span }

// key writes a key that begins as another text does, or the digest of one that no
// store would take.
func (b *builder) key(base span, suffix string) span {
	from := len(b.text)
	if base.to-base.from+len(suffix) > weir.MaxKeyBytes {
		b.text = append(b.text, bounded(string(b.text[base.from:base.to]), suffix, weir.MaxKeyBytes)...)
	} else {
		b.text = append(append(b.text, b.text[base.from:base.to]...), suffix...)
	}
	return span{from, len(b.text)}
}

// cut makes the written text that of the charges: one string for all of them.
func (b *builder) cut() {
	text, keys := string(b.text), b.keys
	for i := range b.plan.Applied {
		a := &b.plan.Applied[i]
		if a.Act == nil {
			continue
		}
		charge, key, tag, owner := &a.Act.Charges[a.Charge], keys[0].key, keys[0].tag, keys[0].owner
		charge.Key, charge.HashTag, charge.Owner = text[key.from:key.to], text[tag.from:tag.to], text[owner.from:owner.to]
		keys = keys[1:]
		if a.Act.ID != "" && a.Act.Scope.Owner == "" {
			a.Act.Scope.Owner = charge.Key // it is an act of one limit
		}
	}
}
