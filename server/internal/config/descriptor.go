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
		list = append(list, p.descriptor(item, above)...)
	}
	p.unique(list)
	return list
}

// descriptor returns a descriptor, and those of the values that its shares guarantee units.
func (p *parser) descriptor(n *yaml.Node, above []string) []*Descriptor {
	o, ok := p.object(n, inDescriptor)
	if !ok {
		return nil
	}
	d := &Descriptor{
		At:    p.position(o.node),
		Key:   p.text(o, "key"),
		Value: p.text(o, "value"),
		Settings: Settings{
			Shadow:         p.truth(o, "shadow_mode"),
			Quota:          p.truth(o, "quota_mode"),
			DetailedMetric: p.truth(o, "detailed_metric"),
			ValueToMetric:  p.truth(o, "value_to_metric"),
			ShareThreshold: p.truth(o, "share_threshold"),
			Metadata:       p.metadata(o),
		},
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
	p.leased(o, d, above)
	p.leave(outer)
	p.path = append(p.path[:len(above)], entryPath(d))
	classes := p.sharing(o, d, above)
	p.estimate(o, d)
	for _, class := range classes {
		class.Strict, class.OutputGuess = d.Strict, d.OutputGuess
	}
	return append(classes, d)
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
		want := "each pair once; " + before.At.brief() + " has it too"
		if before.Shares != nil {
			want = "each pair once; " + before.At.brief() + " guarantees it a share"
		}
		p.note(d.At.problem(entryText(d)+" again in the same list", want))
	}
}

func entryText(d *Descriptor) string {
	if d.Value == "" {
		return "key " + quote(d.Key) + " without value"
	}
	return "key " + quote(d.Key) + " with value " + quote(d.Value)
}

// hashTag reads the keys that choose the hash slot of a limit's state.
func (p *parser) hashTag(o object, d *Descriptor, keys []string) []string {
	items := p.items(o, "hash_tag")
	if len(items) > 0 && !slices.ContainsFunc(d.Limits, func(l RateLimit) bool { return l.Grouped && l.Budget == nil }) {
		p.report(o.position("hash_tag"), "hash_tag without algorithm", "a rate_limit that names an algorithm beside it")
	}
	if charging := slices.IndexFunc(d.Limits, func(l RateLimit) bool { return l.Budget != nil }); len(items) > 0 && charging >= 0 && d.Limits[len(d.Limits)-1].Alternative > 0 {
		p.report(o.position("hash_tag"), "hash_tag beside otherwise and a budget", "nothing: all alternatives are in the hash slot of the budget; "+
			p.line(o, "otherwise")+" has otherwise, "+d.Limits[charging].At.brief()+" the budget")
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

// limits reads rate_limit and rate_limits, and those of otherwise.
func (p *parser) limits(o object) []RateLimit {
	alternatives := p.items(o, "otherwise")
	var otherwise *yaml.Node
	if len(alternatives) > 0 {
		otherwise = o.position("otherwise")
	}
	limits, objects := p.alternative(o, 0, otherwise)
	first := len(limits)
	if first == 0 && len(alternatives) > 0 {
		p.report(o.position("otherwise"), "otherwise without rate_limit", "a limit beside it, which goes first")
	}
	for i, item := range alternatives {
		if a, ok := p.object(item, inAlternative); ok {
			more, at := p.alternative(a, i+1, otherwise)
			if len(more) == 0 {
				p.report(a.node, "an alternative without limits", "a rate_limit, or rate_limits")
			}
			limits, objects = append(limits, more...), append(objects, at...)
		}
	}
	if n := len(limits); n > maxLimits {
		p.report(o.position("rate_limits"), fmt.Sprintf("%d limits for one descriptor", n), fmt.Sprintf("at most %d", maxLimits))
		return nil
	}
	p.names(limits, objects)
	if first > 0 && len(limits) > first {
		p.fitTogether(limits, objects, otherwise)
	}
	return limits
}

// alternative reads the rate_limit and rate_limits of one map. Otherwise is the key of
// further alternatives, nil for none.
func (p *parser) alternative(o object, alternative int, otherwise *yaml.Node) (limits []RateLimit, objects []object) {
	var nodes []*yaml.Node
	if p.get(o, "rate_limit") != nil {
		nodes = append(nodes, o.fields["rate_limit"].value)
	}
	list := p.items(o, "rate_limits")
	nodes = append(nodes, list...)
	beside := otherwise
	if len(list) > 0 {
		beside = o.position("rate_limits")
	}
	for _, n := range nodes {
		l, ok := p.object(n, inLimit)
		if !ok {
			continue
		}
		limit, changed := RateLimit{}, false
		if beside == nil {
			limit, changed = p.overlaid(l)
		}
		if !changed {
			limit = p.limit(l, beside)
		}
		limit.Alternative = alternative
		limits, objects = append(limits, limit), append(objects, object{n, l.fields})
	}
	return limits, objects
}

// fitTogether checks the properties that all alternatives must share.
func (p *parser) fitTogether(limits []RateLimit, objects []object, otherwise *yaml.Node) {
	var budgets []*Budget
	first := -1
	for i := range limits {
		l, o := &limits[i], objects[i]
		if !l.Grouped || l.Budget == nil && !o.has("algorithm") {
			continue // reported
		}
		if first < 0 {
			first = i
		}
		if l.Limit.ChargeRefused {
			p.notAmong(o, l, "charge_refused", "a limit that charges what it grants", otherwise)
		}
		if l.Lease {
			p.notAmong(o, l, "lease", "a limit without lease: alternatives are not paid with leased units", otherwise)
		}
		if a := &limits[first]; a.OnStoreFailure != l.OnStoreFailure {
			want := a.OnStoreFailure.String() + ", as at " + p.line(p.settings(objects[first], a), "on_store_failure")
			if l.Budget != nil {
				want += "; " + p.line(p.settings(o, l), "on_store_failure") + " has that of the budget"
			}
			p.report(o.node, "on_store_failure is "+l.OnStoreFailure.String()+" in one of several alternatives", want)
		}
		if l.Budget != nil {
			budgets = append(budgets, l.Budget)
		}
	}
	if len(budgets) > 0 {
		p.together = append(p.together, budgets)
	}
}

// notAmong reports a setting that no limit among alternatives can have.
func (p *parser) notAmong(o object, l *RateLimit, key, want string, otherwise *yaml.Node) {
	want += "; " + p.hasKey(otherwise)
	if l.Budget != nil {
		want += ", " + p.line(p.settings(o, l), key) + " has " + key
		p.report(o.position("budget"), "a budget with "+key+" among alternatives", want)
		return
	}
	p.report(o.position(key), key+" among alternatives", want)
}

// names checks the names of a descriptor's limits, and reads which limits they replace.
func (p *parser) names(limits []RateLimit, objects []object) {
	names := make(map[string]string, len(limits)) // and where they stand
	for i, l := range limits {
		if at, again := names[l.Name]; again {
			p.report(p.get(objects[i], "name"), "name "+quote(l.Name)+" again for the same descriptor", "each limit's own name; "+at+" has it too")
		} else if l.Name != "" {
			names[l.Name] = p.line(objects[i], "name")
		}
	}
	for i := range limits {
		p.was(&limits[i], objects[i], names)
	}
	for i, o := range objects {
		limits[i].Replaces = p.replaces(o, names)
	}
}

// was checks the earlier name of a limit, whose keys are nobody else's.
func (p *parser) was(l *RateLimit, o object, names map[string]string) {
	switch at, taken := names[l.Was]; {
	case l.Was == "":
	case l.Name == "":
		p.report(o.position("was"), "was without name", "the new name beside it")
	case taken:
		p.report(p.get(o, "was"), "was is "+quote(l.Was)+", a name in the same descriptor", "a name that no limit has now; "+at+" has it")
	default:
		names[l.Was] = p.line(o, "was")
	}
}

func (p *parser) replaces(o object, own map[string]string) []string {
	var names []string
	for _, item := range p.items(o, "replaces") {
		r, ok := p.object(item, inReplaces)
		if !ok {
			continue
		}
		name := p.text(r, "name")
		p.required(r, "name", name, "the name of another limit")
		if at, ok := own[name]; ok {
			p.report(r.position("name"), "replaces names "+quote(name)+", which stands in the same descriptor", "the name of another descriptor's limit; "+at+" has this one")
		}
		names = append(names, name)
	}
	return names
}
