package rules

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

// A Budget is a limit that several rules charge. Rules that charge one budget have one
// key for it.
type Budget struct {
	*config.Budget
	// Label is the name for metrics and people. For a budget of a descriptor the
	// descriptor's path and "#" precede the name, because other descriptors may declare a
	// budget of the same name.
	Label string

	path   string // of the descriptor that declares it, with the domain
	suffix string
}

// String returns the label; empty for a nil Budget.
func (b *Budget) String() string {
	if b == nil {
		return ""
	}
	return b.Label
}

// newBudget returns a budget that is declared on the way of the entries.
func newBudget(prefix string, entries []Entry, b *config.Budget) *Budget {
	if b.Shares {
		path := pathOf(append(slices.Clone(entries[:b.Depth]), Entry{Key: b.Name}))
		return &Budget{b, path, prefix + path, ";" + path + "#shares"}
	}
	path := pathOf(entries[:b.Depth])
	label := b.Name
	if path != "" {
		label = path + "#" + label
	}
	return &Budget{b, label, prefix + path, string(appendEscaped([]byte(";"+path+"#budget;"), b.Name, ""))}
}

// pathOf returns the entries of a rules file as they stand in keys and messages.
func pathOf(entries []Entry) string {
	patterns := make([]string, len(entries))
	for i, e := range entries {
		patterns[i] = pattern(e)
	}
	return strings.Join(patterns, ",")
}

// budgets compiles those budgets of a list that the entries tell apart into rules that
// charge nothing else.
func (c *compiler) budgets(list []*config.Budget, entries []Entry) ([]*Rule, error) {
	var all []*Rule
	for _, b := range list {
		if b.Depth != len(entries) {
			continue
		}
		r := &Rule{At: b.At, Domain: c.domain, Path: c.prefix + pathOf(entries), Entries: entries, Grouped: true, Unit: b.Limit.Unit}
		limit := b.Limit
		limit.Budget, limit.Name = b, newBudget(c.prefix, entries, b).Label
		if err := r.compile([]config.RateLimit{limit}, pathOf(entries)); err != nil {
			return nil, err
		}
		// The entries are on the way to the budget: it is not theirs alone.
		r.owned = false
		all, c.set.budgets = append(all, r), append(c.set.budgets, r)
	}
	return all, nil
}

// budget returns the rule that charges the budget of that name alone, nil if neither the
// domain nor a descriptor on the way of the entries declares it.
func (d *domain) budget(entries []Entry, found *path, name string) *Rule {
	d.match(entries, found)
	declared := slices.Concat(d.budgets, d.top.budgets)
	for _, n := range found {
		if n == nil {
			continue
		}
		if declared = append(declared, n.budgets...); n.next != nil {
			declared = append(declared, n.next.budgets...)
		}
	}
	for _, r := range declared {
		if r.Limits[0].Budget.Name == name {
			return r
		}
	}
	return nil
}

// Names of the alternatives on a budget with shares.
const (
	Guaranteed = "guaranteed"
	Borrowed   = "borrowed"
)

// AlternativeName names the limit's alternative: on a budget with shares it is [Guaranteed]
// or [Borrowed], on others its place from 1 on. It is empty for a rule without
// alternatives.
func (l *Limit) AlternativeName() string {
	switch {
	case l.guaranteed():
		return Guaranteed
	case l.Budget != nil && l.Budget.Shares:
		return Borrowed
	case l.Alternative == 0:
		return ""
	}
	return strconv.Itoa(l.Alternative)
}

// guaranteed reports whether the limit is the budget of a guarantee, which decides.
func (l *Limit) guaranteed() bool {
	return l.Budget != nil && l.Budget.Shares && l.Alternative == 1
}

// Guarantee returns the limit of what shares guarantee to the requests of the rule; nil if
// they guarantee nothing.
func (r *Rule) Guarantee() *weir.Limit {
	for _, l := range r.Limits {
		if shares, class := l.Shares(); shares != nil && class != "" {
			return l.Limit
		}
	}
	return nil
}

// PerKey reports whether a budget of the rule is one of several, which requested values
// tell apart.
func (r *Rule) PerKey(b *Budget) bool {
	for level, e := range r.Entries[:b.Depth] {
		fixed := e.Value != "" && !config.NewGlob(e.Key).Wild() && !config.NewGlob(e.Value).Wild()
		if !fixed && !r.Levels[level].ShareThreshold {
			return true
		}
	}
	return false
}
