package rules

import (
	"slices"

	"github.com/weirlimit/weir/server/internal/config"
)

// Quota returns the rule from which an Envoy may lease units for a bucket, and the entries of the
// bucket's id in the order in which the rules have their keys. An id is a set of entries, each with
// a key of its own. The rule is nil if no rule with quota: true has exactly the keys of the id, or
// if another rule is chosen for its values; it may be Unlimited.
func (s *Set) Quota(name string, id []Entry) (entries []Entry, rule *Rule) {
	d := s.domains[name]
	if d == nil || len(id) == 0 || len(id) > config.MaxDepth {
		return nil, nil
	}
	keys := make([]string, len(id))
	for i, e := range id {
		keys[i] = e.Key
	}
	order, known := d.quotas[config.QuotaKeys(keys)]
	if !known {
		return nil, nil
	}
	for _, key := range order {
		entries = append(entries, id[slices.Index(keys, key)])
	}
	var p path
	if rule = d.match(entries, &p); rule == nil || !rule.RLQS && !rule.Unlimited {
		return nil, nil
	}
	return entries, rule
}

// Loaded reports whether the rules have arrived, see [NotLoaded].
func (s *Set) Loaded() bool { return !s.missing }

// noteQuota notes in which order the keys of a bucket id are matched. The keys of a path differ,
// and config wants those of several rules in one order.
func (c *compiler) noteQuota(entries []Entry) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	c.quotas[config.QuotaKeys(keys)] = keys
}

// Has reports whether the set has rules for a domain.
func (s *Set) Has(domain string) bool { return s.domains[domain] != nil }
