// Package convert makes Weir's rules of other limiters' configurations.
package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Result is what NGINX made of a configuration.
type Result struct {
	// Rules is a rules file.
	Rules []byte
	// Servers is nginx configuration for the servers that are to ask Weir, and,
	// in comments, what takes the place of the limits in them.
	Servers []byte
	// Lost is what could not be carried over, or not exactly, by file and line.
	Lost []Loss
	// Limits is how many limit_req were carried over.
	Limits int
}

// A Loss is something that could not be carried over.
type Loss struct {
	File string
	Line int
	What string
}

// String returns the loss on one line: file:line: what.
func (l Loss) String() string { return fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.What) }

// NGINX reads nginx configurations, each with what it includes, and makes rules of
// a domain that refuse what their limit_req refuse. An error means that a file
// cannot be read or is no configuration.
func NGINX(domain string, files ...string) (*Result, error) {
	var all []directive
	for _, file := range files {
		list, err := read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	f := find(all)
	questions := f.questions()
	r := &Result{Limits: len(f.used())}
	r.Rules = rulesText(domain, f, questions)
	r.Servers = serversText(domain, questions)
	r.Lost = f.lost
	slices.SortStableFunc(r.Lost, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return r, nil
}

// A question is what sites ask Weir: a descriptor, and the limits on it.
type question struct {
	name  string // of its descriptor and its location
	uses  []use
	sites []site
	dry   bool
	key   key
	// copied are the variables of the key that have to be read before the
	// question is asked, because they mean something else in a sub-request.
	copied []string
	number int
}

// questions sorts the sites by what they ask.
func (f *finder) questions() []*question {
	var all []*question
	named := map[string]*question{}
	for _, s := range f.sites {
		uses := f.together(&s)
		for i := range uses {
			q := &question{uses: uses[i], dry: s.dryRun, key: uses[i][0].zone.key}
			q.name = f.nameOf(q)
			if known := named[q.name]; known != nil {
				q = known
			} else {
				q.number = len(all)
				named[q.name], all = q, append(all, q)
				q.copied = slices.DeleteFunc(slices.Clone(q.key.variables), f.isSteady)
			}
			if i == 0 {
				q.sites = append(q.sites, s)
				f.checkSite(&s, q)
			}
		}
	}
	return all
}

// checkSite tells where a question asks for a value that only a location knows.
func (f *finder) checkSite(s *site, q *question) {
	if s.level == inServer && len(q.copied) > 0 {
		f.lose(q.uses[0].at, "%s: $%s changes in a sub-request, and a server cannot keep it; put the lines for %s in each of its locations",
			q.uses[0].text, strings.Join(q.copied, ", $"), s.name)
	}
}

// together sorts the limits of a site by what they count: one question names one
// descriptor, which can have several limits.
func (f *finder) together(s *site) [][]use {
	var groups [][]use
	for _, u := range s.uses {
		i := slices.IndexFunc(groups, func(g []use) bool { return slices.Equal(g[0].zone.key.variables, u.zone.key.variables) })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], u)
	}
	for _, g := range groups[1:] {
		f.lose(g[0].at, "%s counts by %s, the limit before it by %s: a sub-request asks for one of them. "+
			"The rules have both; %s asks for the first", g[0].text, g[0].zone.key.text, groups[0][0].zone.key.text, s.name)
	}
	return groups
}

// nameOf is a name that says which zones and bursts are asked for.
func (f *finder) nameOf(q *question) string {
	parts := make([]string, len(q.uses))
	for i, u := range q.uses {
		parts[i] = u.zone.name
		if f.bursts(u.zone) > 1 {
			parts[i] += fmt.Sprintf("_burst%d", u.burst)
		}
	}
	if q.dry {
		parts = append(parts, "dry_run")
	}
	return strings.Join(parts, "+")
}

// bursts returns with how many different bursts a zone is used.
func (f *finder) bursts(z *zone) int {
	different := map[int64]bool{}
	for _, u := range f.used() {
		if u.zone == z {
			different[u.burst] = true
		}
	}
	return len(different)
}

// used returns the limit_req of all sites, each once.
func (f *finder) used() []use {
	var all []use
	for _, s := range f.sites {
		for _, u := range s.uses {
			if !slices.Contains(all, u) {
				all = append(all, u)
			}
		}
	}
	return all
}
