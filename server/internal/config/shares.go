package config

import (
	"cmp"
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
			p.clash(o, key, o, "shares", "shares")
			alone = false
		}
	}
	if strings.Contains(d.Key, "*") {
		p.report(o.position("key"), "shares with a * in key", "a key whose values are the classes; "+p.line(o, "shares")+" has shares")
	}
	before := len(p.problems)
	s, ok := p.object(o.fields["shares"].value, inSharing)
	if !ok || !alone {
		return nil
	}
	pool := RateLimit{At: p.position(s.node), Grouped: true}
	pool.Limit = weir.Limit{Algorithm: weir.GCRA, Count: p.number(s, "requests_per_unit"), Burst: p.positive(s, "burst")}
	if s.has("algorithm") {
		p.word(s, "algorithm", shareable)
	}
	if i, ok := p.word(s, "on_store_failure", storeFailures); ok {
		pool.OnStoreFailure = StoreFailure(i)
	}
	p.length(s, &pool)
	headroom := p.positive(s, "headroom")
	guarantees, at := p.guarantees(s)
	if !p.fits(s, pool.Limit.Count, guarantees, at) {
		return nil
	}
	shares, err := weir.Shares{Limit: pool.Limit, Guarantees: guarantees, Headroom: headroom}.Compile()
	if err != nil {
		p.unshared(s, err, len(p.problems) > before)
		return nil
	}
	d.Shares = shares
	pool.Limit = *shares.Pool() // not made of its numbers: a local share has to know the guarantees
	pool.Budget = &Budget{At: pool.At, Name: d.Key, Depth: len(above), TagDepth: len(above), Shares: true, Limit: pool}
	d.Budgets = append(d.Budgets, pool.Budget)
	return p.classes(d, pool, guarantees, at)
}

// classes returns the descriptors of the values that have a guarantee, and gives the
// descriptor itself the rest, for all other values.
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
			Limit: *d.Shares.Class(name), // not made of its numbers: a local share has to know the guarantee
		}
		own.Limit.Name = ""
		first, then := pool, kept
		first.Name, then.Name, then.Alternative = path, path, 1
		// In this order: a guarantee decides for the budget behind it.
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
	for _, key := range slices.Sorted(maps.Keys(listed.fields)) {
		n := listed.fields[key].key
		units, ok := p.integer(listed, key)
		switch value := p.get(listed, key); {
		case ok && units < 1:
			p.report(value, fmt.Sprintf("%s is %d", key, units), "at least 1")
		case value == nil && !p.exhausted():
			p.report(n, key+" is nothing", "at least 1")
		}
		name := p.named(n, "a name in guarantee")
		switch {
		case key == "":
			p.report(n, "a guarantee without a name", "the value that has it")
		case strings.ContainsAny(name, "*#"):
			p.report(n, quote(name)+" in guarantee", "a value without * and #: each has a guarantee of its own, and a pattern would give it to every match")
		case name != "":
			guarantees[name], at[name] = max(1, units), p.position(n) // less is reported
		}
	}
	return guarantees, at
}

// fits reports whether the budget has the units of all guarantees together.
func (p *parser) fits(s object, left int64, guarantees map[string]int64, at map[string]Position) bool {
	if left < 1 {
		return true // another mistake, which is reported
	}
	count := left
	order := func(a, b string) int {
		return cmp.Or(cmp.Compare(at[a].Line, at[b].Line), cmp.Compare(at[a].Column, at[b].Column), cmp.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(guarantees), order) {
		units := guarantees[name]
		if units > left {
			p.note(at[name].problem(fmt.Sprintf("the guarantee of %s is %d", quote(name), units), fmt.Sprintf(
				"at most %d: all guarantees together are at most %d, the requests_per_unit at %s", left, count, p.line(s, "requests_per_unit"))))
			return false
		}
		left -= units
	}
	return true
}

// unshared reports why the shares are not possible, unless that follows from another
// mistake.
func (p *parser) unshared(s object, err error, other bool) {
	var invalid *weir.InvalidError
	switch {
	case !errors.As(err, &invalid):
		p.report(s.node, err.Error(), "")
	case invalid.Field == "guarantee":
		p.report(s.position("guarantee"), "guarantee is "+invalid.Value, invalid.Want)
	case invalid.Field == "headroom":
		p.noHeadroom(s, invalid)
	case !other:
		p.judged(s, invalid)
	}
}

// noHeadroom reports a headroom that does not fit into the burst, by itself or as the
// guarantees divide it.
func (p *parser) noHeadroom(s object, verdict *weir.InvalidError) {
	at, burst := "headroom", p.burst(s)
	where := "; " + p.line(s, burst) + " has " + burst
	if verdict.Beside == "guarantee" {
		where += ", " + p.line(s, "guarantee") + " guarantee"
		if !s.has("headroom") {
			at = "guarantee"
		}
	}
	p.report(s.position(at), "headroom is "+verdict.Value, verdict.Want+where)
}

// Guaranteed describes the guarantees of a descriptor with shares in words.
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
