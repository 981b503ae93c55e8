package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	yaml "go.yaml.in/yaml/v3"
)

// A Budget is a limit that several rules charge.
type Budget struct {
	At   Position
	Name string
	// Depth is the number of entries of the descriptor that declares it: each
	// combination of their values has a budget of its own. 0 is the domain.
	Depth int
	// TagDepth is the number of entries that choose the hash slot: the Depth, or less for an
	// alternative to a budget that was declared above this one.
	TagDepth int
	// Shares is a budget that the values of the key Name share.
	Shares bool
	// Limit is how the budget counts.
	Limit RateLimit
}

// declared is a budget while the descriptors that can charge it are read.
type declared struct {
	*Budget
	fields  object
	charged bool
}

// declare reads the budgets of a descriptor that has so many entries.
func (p *parser) declare(o object, depth int) []*Budget {
	if p.get(o, "budgets") == nil {
		return nil
	}
	all, ok := p.fields(o.fields["budgets"].value)
	if !ok {
		return nil
	}
	var budgets []*Budget
	for _, name := range slices.Sorted(maps.Keys(all.fields)) {
		f := all.fields[name]
		b := &Budget{At: p.position(f.key), Name: p.named(f.key, "a name in budgets"), Depth: depth, TagDepth: depth}
		d := &declared{Budget: b}
		if name == "" {
			p.report(f.key, "a budget without a name", "the name that rules charge it by")
			d.charged = true
		}
		if outer := p.budget(name); outer != nil {
			p.report(f.key, "budget "+quote(name)+" hides another one", "another name; "+outer.At.brief()+" has this one")
			d.charged = true
		}
		if d.fields, ok = p.object(f.value, inBudget); !ok {
			d.charged = true // its mistake is reported
		} else if !d.fields.has("algorithm") {
			p.report(f.key, "a budget without algorithm", "an algorithm: "+oneOf(algorithms()))
			d.charged = true
		} else {
			b.Limit = p.limit(d.fields, nil)
		}
		p.budgets, budgets = append(p.budgets, d), append(budgets, b)
	}
	return budgets
}

// leave ends the scope of all budgets but the outer ones.
func (p *parser) leave(outer int) {
	for _, d := range p.budgets[outer:] {
		if !d.charged && !p.exhausted() {
			p.note(d.At.problem("budget "+quote(d.Name)+" is never charged", "a rate_limit below it with budget: "+d.Name))
		}
	}
	p.budgets = p.budgets[:outer]
}

// budget returns the budget of that name that the descriptor which is read can charge;
// nil for none.
func (p *parser) budget(name string) *declared {
	for _, d := range p.budgets {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// charge reads a limit that charges a budget.
func (p *parser) charge(o object, l *RateLimit) {
	l.Grouped = true
	name := p.text(o, "budget")
	p.required(o, "budget", name, "the name of a budget")
	d := p.budget(name)
	for _, key := range slices.Concat([]string{"unit", "requests_per_unit", "algorithm"}, weirKeys) {
		if !slices.Contains(besideBudget, key) && o.has(key) {
			p.report(o.position(key), key+" beside budget", "one of the two: the budget has its own; "+p.line(o, "budget")+" has budget")
		}
	}
	if d == nil {
		if name != "" {
			p.unknownBudget(o, name)
		}
		return
	}
	d.charged = true
	charged := d.Limit
	charged.At, charged.Name, charged.Budget, charged.Show = l.At, l.Name, d.Budget, p.truth(o, "show")
	*l = charged
	if d.fields.has("algorithm") {
		p.keep(o, d.fields, l)
	}
}

func (p *parser) unknownBudget(o object, name string) {
	var names []string
	for _, d := range p.budgets {
		if d.Name != "" && !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	want := "a budget of this descriptor, of one above it, or of the domain"
	if len(names) > 0 {
		want = oneOf(names)
	}
	meant := Nearest(name, names)
	if d := p.budget(meant); d != nil {
		d.charged = true
	}
	p.suggest(p.get(o, "budget"), "budget is "+quote(name), want, meant)
}

// keepKeys are the keys that say how many units a limit leaves to others: the second one is
// that of limits of dollars, the first one that of all others.
var keepKeys = []string{"keep", "keep_dollars"}

// besideBudget are the keys of Weir's that stand beside budget.
var besideBudget = append([]string{"show"}, keepKeys...)

// keep reads how many units a limit leaves to others. The limit's other settings stand
// in counts, which is the same map or a budget.
func (p *parser) keep(o, counts object, l *RateLimit) {
	if !l.Grouped {
		return // reported
	}
	key, other, usd := keepKeys[0], keepKeys[1], l.Limit.Meter == MeterUSD
	if usd {
		key, other = other, key
	}
	if p.get(o, other) != nil {
		p.report(o.position(other), other+" for a limit of "+cmp.Or(l.Limit.Meter, MeterRequests), key+" in its place")
		return
	}
	n := p.get(o, key)
	if n == nil {
		return
	}
	amount := func(n int64) string { return strconv.FormatInt(n, 10) }
	if usd {
		amount = func(n int64) string { return DollarsText(n) + " dollars" }
		if l.Keep = p.dollars(o, key, mostOf(&l.Limit), "", -1); l.Keep < 0 {
			return
		}
	} else {
		var ok bool
		if l.Keep, ok = p.integer(o, key); !ok {
			return
		}
	}
	switch burst := cmp.Or(l.Limit.Burst, l.Limit.Count); {
	case l.Lease:
		p.clash(o, key, counts, "lease", "lease: true")
	case l.Limit.ChargeRefused:
		p.clash(o, key, counts, "charge_refused", "charge_refused: true")
	case l.Keep < 1:
		p.report(n, key+" is "+n.Value, "at least "+amount(1)+", or nothing for the default")
	case l.Keep >= burst:
		from := p.burst(counts)
		p.report(n, key+" is "+n.Value, fmt.Sprintf("less than %s, which is the %s at %s", amount(burst), from, p.line(counts, from)))
	}
}

// burst returns the key that says how many units a limit grants at once.
func (p *parser) burst(o object) string {
	if p.get(o, "burst") != nil {
		return "burst"
	}
	return keyOf("count", o)
}

// settings returns the map with a limit's settings: that of the budget which it charges, or its own.
func (p *parser) settings(o object, l *RateLimit) object {
	if l.Budget == nil {
		return o
	}
	return p.budget(l.Budget.Name).fields
}

// joinTags puts budgets that are alternatives to each other in one hash slot, that of the
// one which was declared first. Two lists may have a budget in common.
func (p *parser) joinTags() {
	for changed := true; changed; {
		changed = false
		for _, list := range p.together {
			least := slices.MinFunc(list, func(a, b *Budget) int { return cmp.Compare(a.TagDepth, b.TagDepth) }).TagDepth
			for _, b := range list {
				changed = changed || b.TagDepth > least
				b.TagDepth = least
			}
		}
	}
}

// named reads a key of a map that is a name.
func (p *parser) named(n *yaml.Node, what string) string {
	return p.printable(object{n, map[string]field{what: {n, n}}}, what)
}
