package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// besideGuarantees are the keys of a descriptor that cannot stand beside shares.
var besideGuarantees = []string{"value", "rate_limit", "rate_limits", "otherwise", "hash_tag", "trial", "enforce", "share_threshold"}

// sharing reads the shares of a descriptor, and returns the descriptors of the values that
// have a guarantee. The descriptor itself stays that of all others.
func (p *parser) sharing(o object, d *Descriptor, above []string) []*Descriptor {
	if p.get(o, "shares") == nil {
		return nil
	}
	alone := true
	for _, key := range besideGuarantees {
		if o.has(key) {
			p.report(o.position(key), key+" beside shares", "one of the two")
			alone = false
		}
	}
	if strings.Contains(d.Key, "*") {
		p.report(o.position("key"), "shares with a * in key", "a key whose values are the classes")
	}
	s, ok := p.object(o.fields["shares"].value, inSharing)
	if !ok || !alone {
		return nil
	}
	pool := RateLimit{At: p.position(s.node), Grouped: true}
	pool.Limit = weir.Limit{Algorithm: weir.GCRA, Count: p.number(s, "requests_per_unit"), Burst: p.positive(s, "burst")}
	if s.has("algorithm") {
		p.word(s, "algorithm", inSharing.word("algorithm"))
	}
	if i, ok := p.word(s, "on_store_failure", storeFailures); ok {
		pool.OnStoreFailure = StoreFailure(i)
	}
	p.length(s, &pool)
	guarantees, at := p.guarantees(s)
	shares, err := weir.Shares{Limit: pool.Limit, Guarantees: guarantees, Headroom: p.positive(s, "headroom")}.Compile()
	if err != nil {
		p.unshared(s, err, len(p.problems) > 0)
		return nil
	}
	d.Shares = shares
	pool.Limit = *shares.Pool() // not made of its numbers: a local share has to know the guarantees
	pool.Budget = &Budget{At: pool.At, Name: d.Key, Depth: len(above), TagDepth: len(above), Shares: true, Limit: pool}
	d.Budgets = append(d.Budgets, pool.Budget)
	return p.classes(d, pool, guarantees, at)
}

// classes returns the descriptors of the values that have a guarantee, and gives the
// descriptor itself what is left for all others.
func (p *parser) classes(d *Descriptor, pool RateLimit, guarantees map[string]int64, at map[string]Position) []*Descriptor {
	kept := pool
	kept.Keep = d.Shares.Keep()
	d.Limits = []RateLimit{kept}
	var all []*Descriptor
	for _, name := range slices.Sorted(maps.Keys(guarantees)) {
		class := *d
		class.At, class.Value = at[name], name
		path := strings.Join(p.path, ",") + "=" + name
		own := RateLimit{
			At: at[name], Grouped: true, Name: path + " guaranteed", Unit: pool.Unit, OnStoreFailure: pool.OnStoreFailure,
			Limit: *d.Shares.Class(name), // not made of its numbers: a refund has to know a guarantee
		}
		own.Limit.Name = ""
		first, then := pool, kept
		first.Name, then.Name, then.Alternative = path, path, 1
		// In this order: a guarantee gets back no more than the budget behind it.
		class.Limits = []RateLimit{own, first, then}
		all = append(all, &class)
	}
	return all
}

// guarantees reads how many units each class is guaranteed, and where that stands.
func (p *parser) guarantees(s object) (map[string]int64, map[string]Position) {
	if p.get(s, "guarantee") == nil {
		p.report(s.position("guarantee"), "guarantee is missing", "a map of values to units")
		return nil, nil
	}
	listed, ok := p.fields(s.fields["guarantee"].value)
	if !ok {
		return nil, nil
	}
	guarantees, at := map[string]int64{}, map[string]Position{}
	for _, name := range slices.Sorted(maps.Keys(listed.fields)) {
		units, ok := p.integer(listed, name)
		if ok && units == 0 {
			p.report(p.get(listed, name), name+" is 0", "at least 1")
		}
		if units == 0 {
			units = 1 // reported
		}
		guarantees[p.named(listed.fields[name].key, "a name in guarantee")] = units
		at[name] = p.position(listed.fields[name].key)
	}
	return guarantees, at
}

// unshared reports why the shares are not possible, unless that follows from another
// mistake.
func (p *parser) unshared(s object, err error, other bool) {
	var invalid *weir.InvalidError
	switch {
	case !errors.As(err, &invalid):
		p.report(s.node, err.Error(), "")
	case invalid.Field == "guarantee" || invalid.Field == "headroom":
		where := ""
		if invalid.Field == "headroom" && s.has("guarantee") {
			where = "; the guarantees stand at " + p.position(s.position("guarantee")).brief()
		}
		p.report(s.position(invalid.Field), invalid.Field+" is "+invalid.Value, invalid.Want+where)
	case !other:
		p.judged(s, invalid)
	}
}

// Guaranteed says in words what is guaranteed to the values of a descriptor with shares.
func (d *Descriptor) Guaranteed() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: shares of %v, of which %d stay free for guarantees:", d.At, d.Shares.Pool(), d.Shares.Keep())
	for i, name := range slices.Sorted(maps.Keys(d.Shares.Guarantees)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s %d, at most %d at once", quote(name), d.Shares.Guarantees[name], d.Shares.Class(name).Burst)
	}
	return b.String()
}
