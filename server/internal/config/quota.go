package config

import (
	"fmt"
	"slices"
	"strings"
)

// quota reads whether Envoys may lease units of a limit, which is checked already. A lease is for a
// second, and Envoy says afterwards how many requests it has allowed.
func (p *parser) quota(o object, l *RateLimit) {
	l.RLQS = p.truth(o, "quota")
	if !l.RLQS {
		return
	}
	if name := l.Limit.Algorithm.String(); !slices.Contains(leasable, name) {
		p.report(o.position("quota"), "quota beside algorithm: "+name,
			"an algorithm whose units can be spent later than they are charged: "+oneOf(leasable)+"; "+p.line(o, "algorithm")+" has algorithm")
		return
	}
	switch {
	case l.Limit.ChargeRefused:
		p.clash(o, "quota", o, "charge_refused", "charge_refused: true")
	case l.Limit.Block != 0:
		p.clash(o, "quota", o, "block", "block")
	case l.Lease:
		p.clash(o, "quota", o, "lease", "lease: true")
	case l.Limit.Meter != "":
		p.clash(o, "quota", o, "count", "count: "+l.Limit.Meter)
	case l.Keep > 0:
		p.clash(o, "quota", o, "keep", fmt.Sprintf("keep: %d", l.Keep))
	}
	if _, err := l.Limit.Compile(); err != nil {
		return // reported
	}
	least := max(2, l.Limit.Count*1000/l.Limit.Period.Milliseconds())
	if capacity := l.Limit.Capacity(); capacity < least {
		key := "requests_per_unit"
		if o.has("burst") {
			key = "burst"
		}
		p.report(o.position(key), fmt.Sprintf("%s is %d beside quota: true", key, capacity),
			fmt.Sprintf("at least %d: leases have the units of a second; %s has quota", least, p.line(o, "quota")))
	}
}

// leased checks what stands around the limits that Envoys may lease.
func (p *parser) leased(o object, d *Descriptor, above []string) {
	first := slices.IndexFunc(d.Limits, func(l RateLimit) bool { return l.RLQS })
	if first < 0 {
		return
	}
	at := d.Limits[first].At
	for i := range d.Limits {
		if l := &d.Limits[i]; !l.RLQS {
			p.note(l.At.problem("a limit without quota: true beside one with it", "quota: true in all limits of the descriptor, which one lease charges; "+at.brief()+" has it"))
		}
	}
	for _, key := range []string{"otherwise", "trial", "shadow_mode", "enforce"} {
		switch {
		case key == "otherwise" && d.Limits[len(d.Limits)-1].Alternative == 0, key == "trial" && d.Trial == nil,
			key == "shadow_mode" && !d.Shadow, key == "enforce" && d.Unenforced == 0:
		default:
			p.report(o.position(key), key+" beside quota: true", "one of the two; "+at.brief()+" has quota: Envoy decides, and leases what is charged")
		}
	}
	keys := append(slices.Clone(above), d.Key)
	for i, key := range keys {
		switch {
		case strings.Contains(key, "*"):
			p.report(o.position("key"), "quota: true below the key "+quote(key), "keys without *: bucket ids have them in no order")
			return
		case slices.Contains(keys[:i], key):
			p.report(o.position("key"), "quota: true below the key "+quote(key)+" twice", "each key once: a bucket id has one value of each")
			return
		}
	}
}

// quotaOrders returns a mistake for each rule with quota: true that has the keys of another one in
// another order: a bucket id has its keys in no order.
func quotaOrders(descriptors []*Descriptor) (found Problems) {
	type order struct {
		keys []string
		at   Position
	}
	first := map[string]order{}
	var walk func(list []*Descriptor, above []string)
	walk = func(list []*Descriptor, above []string) {
		for _, d := range list {
			keys := append(slices.Clip(above), d.Key)
			if i := slices.IndexFunc(d.Limits, func(l RateLimit) bool { return l.RLQS }); i >= 0 {
				set := QuotaKeys(keys)
				if before, taken := first[set]; !taken {
					first[set] = order{keys, d.At}
				} else if !slices.Equal(before.keys, keys) {
					found = append(found, d.At.problem("quota: true below the keys "+strings.Join(keys, ", "),
						"the keys in one order: bucket ids have none; "+before.at.line()+" has "+strings.Join(before.keys, ", ")))
				}
			}
			walk(d.Descriptors, keys)
		}
	}
	walk(descriptors, nil)
	return found
}

// QuotaKeys returns a text that is the same for the same keys in any order, and different for others.
func QuotaKeys(keys []string) string {
	sorted := slices.Sorted(slices.Values(keys))
	for i, key := range sorted {
		sorted[i] = fmt.Sprintf("%d:%s", len(key), key)
	}
	return strings.Join(sorted, "")
}
