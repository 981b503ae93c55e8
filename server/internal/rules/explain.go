package rules

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/server/internal/config"
)

// An Explanation says how a request found its rules.
type Explanation struct {
	// Known is false where no file is for the request's domain.
	Known bool
	// Descriptors has one element for each of the request's.
	Descriptors []Search
	// Plan is the plan of the request; its acts were not taken.
	Plan *Plan
}

// A Search is the path of one descriptor through the rules.
type Search struct {
	// Levels has one element for each entry of the search. The search ends early if no
	// rule matches an entry, or if the chosen rule has no descriptors below it.
	Levels []Choice
	// Below are the keys of the descriptors below the last choice.
	Below []string
	// Rule is the rule that was found; nil for none, or for a descriptor without limits.
	Rule *Rule
	// Replaced are the names of the rule's limits that give way to another
	// descriptor's.
	Replaced []string
}

// A Choice is the result of matching one entry with one list of descriptors.
type Choice struct {
	// Entry is the request's.
	Entry Entry
	// Chosen is the descriptor that the search followed; nil for none.
	Chosen *Candidate
	// Rejected are the descriptors that were passed over and have the entry's key,
	// or fit the entry, in file order.
	Rejected []Candidate
	// Keys are the keys of the list, in file order, each once.
	Keys []string
}

// A Candidate is one descriptor of a list.
type Candidate struct {
	// At is where it stands in its file.
	At config.Position
	// Entry is its key and value as the file has them.
	Entry Entry
	// Match is how it fits the requested entry.
	Match Match
}

// Match is how a descriptor of the file fits an entry. Of those that fit, the
// least goes first, and of wildcards the first of the file.
type Match uint8

// The ways to fit.
const (
	MatchExact    Match = iota // key and value are equal
	MatchWildcard              // a pattern fits
	MatchKey                   // the key is equal, and the descriptor has no value
	MatchNone                  // it does not fit
)

// Explain plans a request as [Set.Plan] does and says how its rules were found.
func (s *Set) Explain(req *Request) (*Explanation, error) {
	plan, err := s.Plan(req)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Plan: plan, Descriptors: make([]Search, len(req.Descriptors))}
	d := s.domains[req.Domain]
	if d == nil {
		return e, nil
	}
	e.Known = true
	for i, entries := range req.Descriptors {
		e.Descriptors[i] = d.search(entries)
		e.Descriptors[i].Replaced = plan.without(i, e.Descriptors[i].Rule)
	}
	return e, nil
}

// search describes the steps of match.
func (d *domain) search(entries []Entry) Search {
	var p path
	s := Search{Rule: d.match(entries, &p)}
	l := &d.top
	for i, e := range entries {
		if l == nil {
			break
		}
		s.Levels = append(s.Levels, l.explain(e, p[i]))
		if p[i] == nil {
			return s
		}
		l = p[i].next
	}
	if l != nil {
		s.Below = l.names()
	}
	return s
}

func (l *level) explain(e Entry, chosen *node) Choice {
	c := Choice{Entry: e, Keys: l.names()}
	for _, n := range l.nodes() {
		candidate := Candidate{n.at, n.entry, n.matches(e)}
		switch {
		case n == chosen:
			c.Chosen = &candidate
		case candidate.Match != MatchNone || n.entry.Key == e.Key:
			c.Rejected = append(c.Rejected, candidate)
		}
	}
	return c
}

// matches says how the node fits an entry, by the tests that choose makes.
func (n *node) matches(e Entry) Match {
	wild := n.key.Wild() || n.value.Wild()
	switch {
	case n.entry == e && e.Value != "":
		return MatchExact
	case wild && n.key.Match(e.Key) && n.value.Match(e.Value):
		return MatchWildcard
	case !wild && n.entry.Value == "" && n.entry.Key == e.Key:
		return MatchKey
	}
	return MatchNone
}

// nodes returns the level's nodes in file order.
func (l *level) nodes() []*node {
	all := slices.Clone(l.wild)
	for _, c := range l.keys {
		if c.any != nil {
			all = append(all, c.any)
		}
		for _, n := range c.exact {
			if !n.key.Wild() {
				all = append(all, n)
			}
		}
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.order, b.order) })
	return all
}

func (l *level) names() []string {
	var keys []string
	for _, n := range l.nodes() {
		if !slices.Contains(keys, n.entry.Key) {
			keys = append(keys, n.entry.Key)
		}
	}
	return keys
}

// without returns the names of a descriptor's limits that the plan leaves out.
func (p *Plan) without(descriptor int, r *Rule) []string {
	if r == nil {
		return nil
	}
	var names []string
	for i, l := range r.all {
		if !slices.ContainsFunc(p.Applied, func(a Applied) bool {
			return a.Descriptor == descriptor && (a.Of == l || r.ForUnenforced != nil && a.Of == r.ForUnenforced.all[i])
		}) {
			names = append(names, l.name)
		}
	}
	return names
}
