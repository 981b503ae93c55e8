package config

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/algo"
)

// instead reads which model takes the place of dearer ones when a limit refuses.
func (p *parser) instead(o object, l *RateLimit) {
	if n := p.get(o, "instead"); n != nil {
		l.Instead, l.InsteadAt = p.text(o, "instead"), p.position(n)
		p.required(o, "instead", l.Instead, "the name of a cheaper model")
		if l.Limit.Block != 0 {
			// The refusal of the dear model would block the cheaper one.
			p.clash(o, "instead", o, "block", "block")
		}
	}
	if p.get(o, "at") == nil {
		return
	}
	part, ok := p.part(o, "at")
	switch {
	case !ok:
		return
	case l.Instead == "":
		p.report(o.position("at"), "at without instead", "instead: MODEL beside it")
		return
	case part == 0 || part == Whole:
		p.report(p.get(o, "at"), "at is "+kind(p.get(o, "at")), "1% … 99%, or nothing for all of the limit")
		return
	case algo.TraitsOf(l.Limit.Algorithm).HoldsSlots:
		p.report(o.position("at"), "at beside algorithm: "+l.Limit.Algorithm.String(), "an algorithm that counts units; "+p.line(o, "algorithm")+" has algorithm")
		return
	}
	for _, other := range []struct {
		key string
		set bool
	}{{"lease", l.Lease}, {"charge_refused", l.Limit.ChargeRefused}, {"quota", l.RLQS}} {
		if other.set {
			p.clash(o, "at", o, other.key, other.key+": true")
		}
	}
	// The rest of the capacity, rounded down: a small limit leaves nothing.
	rest := new(big.Int).Mul(big.NewInt(l.Limit.Capacity()), big.NewInt(int64(Whole-part)))
	l.Part = rest.Div(rest, big.NewInt(int64(Whole))).Int64()
}

// part reads a part in percent.
func (p *parser) part(o object, key string) (Part, bool) {
	n := p.get(o, key)
	if !partForm.MatchString(n.Value) {
		p.suggest(n, key+" is "+kind(n), "0% … 100%, with at most two decimals", percent(n.Value))
		return 0, false
	}
	// A text that matches the pattern is a number.
	number, _ := strconv.ParseFloat(strings.TrimSuffix(n.Value, "%"), 64)
	return Part(math.Round(number * 100)), true
}

// settleInsteads gives each limit with instead the model of a row, and returns those for which
// there is no good one.
func (d *Domain) settleInsteads() (problems Problems) {
	var walk func(list []*Descriptor, model string)
	walk = func(list []*Descriptor, model string) {
		for _, e := range list {
			of := model
			if e.Key == "model" {
				if of = e.Value; of == "" {
					of = "*"
				}
			}
			for i := range e.Limits {
				if l := &e.Limits[i]; l.Instead != "" {
					if what, want := d.settleInstead(l, of); what != "" {
						problems = append(problems, l.InsteadAt.problem(what, want))
					}
				}
			}
			walk(e.Descriptors, of)
		}
	}
	walk(d.Descriptors, "*")
	return problems
}

// settleInstead settles one limit, which is about models that a pattern matches, or says what is
// wrong with it.
func (d *Domain) settleInstead(l *RateLimit, of string) (what, want string) {
	what = "instead is " + quote(l.Instead)
	model := l.Instead
	if pattern := NewGlob(model); pattern.Wild() {
		model = ""
		for i := range d.Models {
			if name := &d.Models[i].Name; !name.Wild() && pattern.Match(name.String()) {
				model = name.String()
				break
			}
		}
		if model == "" {
			return what, "a model, or a pattern that matches a row of the prices without a *"
		}
	}
	price := PriceOf(d.Models, model)
	if price == nil {
		return what, "a model with a price: no row of the prices matches it"
	}
	models, dearer := NewGlob(of), false
	for i := range d.Models {
		row := &d.Models[i]
		if name := row.Name.String(); models.Match(name) || row.Name.Match(of) {
			dearer = dearer || row.Dearer(price) && (row.Name.Wild() || SameForm(name, model))
		}
	}
	switch {
	case of != "*" && !SameForm(of, model):
		return what, fmt.Sprintf("a model of the same form as %s: Anthropic's for Anthropic's, and another one for others", quote(of))
	case !dearer:
		return what, fmt.Sprintf("a model that is cheaper in input and in output than one of the limit: %s costs $%s and $%s", model,
			DollarsText(price.Input), DollarsText(price.Output))
	}
	l.Instead = model
	return "", ""
}

// SameForm reports whether two models are asked in one form, as far as their names say so:
// Anthropic's are called claude.
func SameForm(a, b string) bool {
	claude := func(name string) bool { return strings.Contains(strings.ToLower(name), "claude") }
	return claude(a) == claude(b)
}
