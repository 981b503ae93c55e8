package config

import (
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// descriptors reads the list of an object whose entries stand below the keys
// above.
func (p *parser) descriptors(o object, above []string) []*Descriptor {
	items := p.items(o, "descriptors")
	if len(items) > 0 && len(above) == MaxDepth {
		p.report(o.position("descriptors"), "descriptors nest too deep", fmt.Sprintf("at most %d levels", MaxDepth))
		return nil
	}
	var list []*Descriptor
	for _, item := range items {
		if p.exhausted() {
			break
		}
		if d := p.descriptor(item, above); d != nil {
			list = append(list, d)
		}
	}
	p.unique(list)
	return list
}

func (p *parser) descriptor(n *yaml.Node, above []string) *Descriptor {
	o, ok := p.object(n, inDescriptor)
	if !ok {
		return nil
	}
	d := &Descriptor{
		At:             p.position(o.node),
		Key:            p.text(o, "key"),
		Value:          p.text(o, "value"),
		ShadowMode:     p.truth(o, "shadow_mode"),
		QuotaMode:      p.truth(o, "quota_mode"),
		DetailedMetric: p.truth(o, "detailed_metric"),
		ValueToMetric:  p.truth(o, "value_to_metric"),
		ShareThreshold: p.truth(o, "share_threshold"),
		Metadata:       p.metadata(o),
	}
	p.required(o, "key", d.Key, "the key of an entry")
	if d.ShareThreshold && !strings.Contains(d.Key+d.Value, "*") {
		p.report(o.position("share_threshold"), "share_threshold without a * in key or value", "a pattern whose matches share one budget")
	}
	p.path = append(p.path[:len(above)], entryPath(d))
	outer := len(p.budgets)
	d.Budgets = p.declare(o, len(above)+1)
	d.Limits = p.limits(o)
	d.Trial = p.trial(o, d)
	d.Unenforced = p.unenforced(o, d)
	keys := append(slices.Clone(above), d.Key)
	d.HashTag = p.hashTag(o, d, keys)
	d.Descriptors = p.descriptors(o, keys)
	p.leave(outer)
	return d
}

// unique reports entries of one list that no request can tell apart.
func (p *parser) unique(list []*Descriptor) {
	first := make(map[[2]string]*Descriptor, len(list))
	for _, d := range list {
		entry := [2]string{d.Key, d.Value}
		before, taken := first[entry]
		if !taken || d.Key == "" {
			first[entry] = d
			continue
		}
		p.note(Problem{
			File: d.At.File, Line: d.At.Line, Column: d.At.Column,
			What: entryText(d) + " again in the same list",
			Want: "each pair once; " + before.At.brief() + " has it too",
		})
	}
}

func entryText(d *Descriptor) string {
	if d.Value == "" {
		return "key " + quote(d.Key) + " without value"
	}
	return "key " + quote(d.Key) + " with value " + quote(d.Value)
}

// hashTag reads the keys that place a limit's state.
func (p *parser) hashTag(o object, d *Descriptor, keys []string) []string {
	items := p.items(o, "hash_tag")
	if len(items) > 0 && !slices.ContainsFunc(d.Limits, func(l RateLimit) bool { return l.Grouped && l.Budget == nil }) {
		p.report(o.position("hash_tag"), "hash_tag without algorithm", "a rate_limit that names an algorithm beside it")
	}
	var tag []string
	for _, item := range items {
		if p.exhausted() {
			break
		}
		n := p.visit(item)
		if n == nil || n.Kind != yaml.ScalarNode || !slices.Contains(keys, n.Value) {
			p.suggest(item, kind(n)+" in hash_tag", oneOf(keys), Nearest(item.Value, keys))
			continue
		}
		tag = append(tag, n.Value)
	}
	return tag
}

// limits reads rate_limit and rate_limits.
func (p *parser) limits(o object) []RateLimit {
	var nodes []*yaml.Node
	if p.get(o, "rate_limit") != nil {
		nodes = append(nodes, o.fields["rate_limit"].value)
	}
	several := p.items(o, "rate_limits")
	nodes = append(nodes, several...)
	if len(nodes) > maxLimits {
		p.report(o.position("rate_limits"), fmt.Sprintf("%d limits for one descriptor", len(nodes)), fmt.Sprintf("at most %d", maxLimits))
		return nil
	}
	var limits []RateLimit
	var objects []object
	for _, n := range nodes {
		if l, ok := p.object(n, inLimit); ok {
			objects = append(objects, l)
			if limit, ok := p.overlaid(l); ok && len(nodes) == 1 {
				limits = append(limits, limit)
			} else {
				limits = append(limits, p.limit(l, len(several) > 0))
			}
		}
	}
	p.names(limits, objects)
	return limits
}

// names checks the names of a descriptor's limits, and reads which limits they replace.
func (p *parser) names(limits []RateLimit, objects []object) {
	names := make(map[string]bool, len(limits))
	for i, l := range limits {
		if l.Name != "" && names[l.Name] {
			p.report(p.get(objects[i], "name"), "name "+quote(l.Name)+" again for the same descriptor", "each limit's own name")
		}
		names[l.Name] = true
	}
	for i, o := range objects {
		limits[i].Replaces = p.replaces(o, names)
	}
}

func (p *parser) replaces(o object, own map[string]bool) []string {
	var names []string
	for _, item := range p.items(o, "replaces") {
		if p.exhausted() {
			break
		}
		r, ok := p.object(item, inReplaces)
		if !ok {
			continue
		}
		name := p.text(r, "name")
		p.required(r, "name", name, "the name of another limit")
		if name != "" && own[name] {
			p.report(r.position("name"), "replaces names "+quote(name)+", which stands in the same descriptor", "the name of another descriptor's limit")
		}
		names = append(names, name)
	}
	return names
}
