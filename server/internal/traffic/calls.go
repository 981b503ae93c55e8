package traffic

import (
	"maps"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// maxCallNames is how many names of limits in calls a domain is counted by. Programs make
	// them up, so all further ones are counted as [OtherCalls].
	maxCallNames = 100
	// OtherCalls is the name of all limits in calls beyond these.
	OtherCalls = "other"
	// callRule precedes the names, which may be those of rules, too.
	callRule = "call;"
)

// callDomain has the tallies of the limits in calls to a domain, by the limits' names. It is
// immutable.
type callDomain struct {
	name    string
	watched map[string]bool // names that refuse nothing
	tallies map[string]*tally
}

// followCalls counts the limits in calls to the domains that have a file, and to the default
// one. All others are counted together: anybody can make up domains.
func (t *table) followCalls(set *rules.Set, before *table, ratio float32) {
	t.calls = map[string]*callDomain{}
	for _, domain := range append(set.Domains(), rules.DefaultDomain) {
		path := rules.CallPath(domain)
		d := &callDomain{name: domain, watched: map[string]bool{}, tallies: map[string]*tally{}}
		if had := before.calls[path]; had != nil {
			for name, tally := range had.tallies {
				d.tallies[name] = tally
				t.list(tally)
			}
		}
		t.calls[path] = d
	}
	for _, rule := range set.CallRules() {
		d := t.calls[rules.CallPath(rule.Domain)]
		d.watched[rule.Name] = rule.Shadow
		for _, form := range rule.Forms() {
			for _, limit := range form.Limits {
				t.add(form, limit, name{rule.Domain, callRule + limit.Name, "", form.OnTrial}, before, ratio)
			}
		}
		if d.tallies[rule.Name] == nil && rule.Limits == nil {
			d.tallies[rule.Name] = t.tallyOf(name{domain: rule.Domain, rule: callRule + rule.Name}, before)
		}
	}
}

// findCall returns the place of a limit in a call. The first charge under a new name adds it.
func (r *Recorder) findCall(t *table, l *weir.Limit, c *weir.Charge) counted {
	path := rules.CallPathOf(c.Key)
	d := t.calls[path]
	if path == "" || d == nil {
		return counted{tally: t.request}
	}
	found := d.tallies[l.Name]
	if found == nil && len(d.tallies) >= maxCallNames {
		found = d.tallies[OtherCalls]
	}
	if found == nil {
		found = r.addCall(path, l.Name)
	}
	most := l.Capacity()
	return counted{tally: found, shadow: d.watched[l.Name], near: most - int64(float32(most)*r.ratio)}
}

// addCall adds a name of limits in calls to the current table. It is the only thing for which
// observing waits for readers: a hundred times for each domain.
func (r *Recorder) addCall(path, limit string) *tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := *r.table.Load()
	d := t.calls[path]
	if d == nil {
		return t.request // a reload has removed the domain
	}
	if len(d.tallies) >= maxCallNames {
		limit = OtherCalls
	}
	if found := d.tallies[limit]; found != nil {
		return found
	}
	t.tallies, t.byName, t.calls = slices.Clone(t.tallies), maps.Clone(t.byName), maps.Clone(t.calls)
	own := *d
	own.tallies = maps.Clone(d.tallies)
	own.tallies[limit] = t.tallyOf(name{domain: d.name, rule: callRule + limit}, &t)
	t.calls[path] = &own
	r.table.Store(&t)
	return own.tallies[limit]
}
