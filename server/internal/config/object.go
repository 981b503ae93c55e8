package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// An object is a map of the file, merges included.
type object struct {
	node   *yaml.Node
	fields map[string]field
}

type field struct{ key, value *yaml.Node }

func (o object) has(key string) bool { _, ok := o.fields[key]; return ok }

// position is where the key stands, or the whole object if it does not.
func (o object) position(key string) *yaml.Node {
	if f, ok := o.fields[key]; ok {
		return f.key
	}
	return o.node
}

// line says in which line a key of the object stands.
func (p *parser) line(o object, key string) string { return p.position(o.position(key)).brief() }

// clash reports a key that cannot stand beside a setting, whose key stands in the same map
// or in the budget that a limit charges.
func (p *parser) clash(o object, key string, in object, other, setting string) {
	p.report(o.position(key), key+" beside "+setting, "one of the two; "+p.line(in, other)+" has "+other)
}

// get returns the value of a key; nil if it is absent or null.
func (p *parser) get(o object, key string) *yaml.Node { return p.visit(o.fields[key].value) }

// object reads a node that must be a map with the keys of the scope. A misspelt key
// counts as the key that was probably meant, so that its value is checked and no second
// problem follows from it.
func (p *parser) object(n *yaml.Node, in *scope) (object, bool) {
	o, ok := p.fields(n)
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if slices.Contains(in.names, key) || in == atTop && strings.HasPrefix(key, "x-") {
			continue
		}
		f := o.fields[key]
		delete(o.fields, key)
		if meant := p.unknown(f.key, in); meant != "" && !o.has(meant) {
			o.fields[meant] = f
		}
	}
	return o, ok
}

// fields reads a node that must be a map, with any keys.
func (p *parser) fields(n *yaml.Node) (object, bool) {
	at, n := n, p.visit(n)
	if n == nil || n.Kind != yaml.MappingNode {
		if !p.exhausted() {
			p.report(at, kind(n)+" where a map belongs", "key: value")
		}
		return object{}, false
	}
	o := object{n, make(map[string]field, min(len(n.Content)/2, 32))}
	p.collect(n, o.fields, 0)
	return o, true
}

// collect adds the fields of a map, and then those that it merges and does not
// have itself.
func (p *parser) collect(n *yaml.Node, into map[string]field, depth int) {
	own := make(map[string]*yaml.Node, min(len(n.Content)/2, 32))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := p.visit(n.Content[i]), n.Content[i+1]
		switch {
		case p.exhausted():
			return
		case key == nil || key.Kind != yaml.ScalarNode:
			p.report(n.Content[i], kind(key)+" as a key", "text")
		case isMerge(key):
		case own[key.Value] != nil:
			p.report(key, quote(key.Value)+" again in the same map", "each key once; "+p.position(own[key.Value]).brief()+" has it too")
		default:
			own[key.Value] = key
			if _, covered := into[key.Value]; !covered {
				into[key.Value] = field{key, value}
			}
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			p.merge(n.Content[i+1], into, depth+1)
		}
	}
}

func isMerge(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!merge" }

// merge adds the fields of a map or, the first before the others, of several.
func (p *parser) merge(n *yaml.Node, into map[string]field, depth int) {
	at, n := n, p.visit(n)
	switch {
	case p.exhausted():
	case n != nil && n.Kind == yaml.MappingNode && depth <= maxNesting:
		p.collect(n, into, depth)
	case n != nil && n.Kind == yaml.SequenceNode && depth <= maxNesting:
		for _, item := range n.Content {
			p.merge(item, into, depth+1)
		}
	default:
		p.report(at, kind(n)+" cannot be merged", fmt.Sprintf("a map or a list of maps, nested at most %d deep", maxNesting))
	}
}

// unknown reports a key that does not belong into a scope, and returns the key that was
// probably meant.
func (p *parser) unknown(key *yaml.Node, in *scope) string {
	for _, other := range scopes {
		if slices.Contains(other.names, key.Value) {
			p.report(key, quote(key.Value)+" stands "+in.name, "it "+other.name)
			return ""
		}
	}
	meant := Nearest(key.Value, in.names)
	p.suggest(key, "unknown key "+quote(key.Value)+" "+in.name, oneOf(in.names), meant)
	return meant
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}
