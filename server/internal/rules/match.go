package rules

import (
	"github.com/weirlimit/weir/server/internal/config"
)

// level is one list of descriptors.
type level struct {
	keys map[string]*choices
	wild []*node // those whose key is a wildcard, in file order
	// budgets are those of shares: one for all values of a key, which is of the entries above.
	budgets []*Rule
}

// choices are the descriptors of a level that have one key.
type choices struct {
	exact    map[string]*node // by value, wildcards as they are written among them
	patterns []*node          // those whose value is a wildcard, in file order
	any      *node            // the one without a value
}

// node is one descriptor.
type node struct {
	entry      Entry
	at         config.Position
	order      int // its place in the list
	key, value config.Glob
	shared     string // stands in keys for what matched, if not empty
	rule       *Rule  // nil without limits
	budgets    []*Rule
	next       *level // nil without descriptors
}

// path is the nodes that the entries of a descriptor chose, one a level.
type path [config.MaxDepth]*node

func newLevel(size int) level { return level{keys: make(map[string]*choices, size)} }

// newNode makes a node. A wildcard key without a value takes any value.
func newNode(e Entry) *node {
	n := &node{entry: e, key: config.NewGlob(e.Key), value: config.NewGlob(e.Value)}
	if n.key.Wild() && e.Value == "" {
		n.value = config.NewGlob("*")
	}
	return n
}

func (l *level) add(n *node) {
	c := l.keys[n.entry.Key]
	if c == nil {
		c = &choices{exact: map[string]*node{}}
		l.keys[n.entry.Key] = c
	}
	if n.entry.Value != "" {
		c.exact[n.entry.Value] = n
	}
	switch {
	case n.key.Wild():
		l.wild = append(l.wild, n)
	case n.value.Wild():
		c.patterns = append(c.patterns, n)
	case n.entry.Value == "":
		c.any = n
	}
}

// choose returns the node for an entry: the one with its key and value, else the first
// wildcard of the file that matches, else the default of its key, else nil. The choice is
// final, even if no rule below it matches.
func (l *level) choose(e Entry) *node {
	c := l.keys[e.Key]
	if c == nil {
		return first(l.wild, e)
	}
	if len(c.exact) > 0 {
		if n := c.exact[e.Value]; n != nil {
			return n
		}
	}
	n, wild := first(c.patterns, e), first(l.wild, e)
	if n == nil || wild != nil && wild.order < n.order {
		n = wild
	}
	if n == nil {
		n = c.any
	}
	return n
}

func first(nodes []*node, e Entry) *node {
	for _, n := range nodes {
		if n.key.Match(e.Key) && n.value.Match(e.Value) {
			return n
		}
	}
	return nil
}

// match returns the rule for a descriptor, or nil, and fills in how it was found.
func (d *domain) match(entries []Entry, found *path) *Rule {
	l := &d.top
	for i, e := range entries {
		if l == nil {
			return nil
		}
		n := l.choose(e)
		if n == nil {
			return nil
		}
		found[i], l = n, n.next
		if i == len(entries)-1 {
			return n.rule
		}
	}
	return nil
}
