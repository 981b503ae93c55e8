// Package convert makes Weir's rules from the configurations of other limiters.
package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Result is a converted configuration.
type Result struct {
	// Rules is a rules file.
	Rules []byte
	// Servers is nginx configuration for the servers that ask Weir. Its comments say which
	// lines replace each limit_req, and which lines belong in http.
	Servers []byte
	// Replays says how to replay an access log, for each rule.
	Replays []Replay
	// Lost lists the parts that were not carried over, or not exactly, by file and line.
	Lost []Loss
	// Limits counts the limit_req directives that were carried over.
	Limits int
}

// A Loss is a part of a configuration that was not carried over, or not exactly.
type Loss struct {
	File string
	Line int
	What string
}

// String returns the loss on one line: file:line: what. Characters that could command a
// terminal are escaped.
func (l Loss) String() string { return visible(fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.What)) }

// NGINX reads nginx configurations and the files that they include, and returns rules of
// a domain that refuse the same requests as their limit_req directives. It returns an
// error if a file cannot be read or is not a configuration.
func NGINX(domain string, files ...string) (*Result, error) {
	var all []directive
	for _, file := range files {
		list, err := read(file)
		if err != nil {
			return nil, &readError{err}
		}
		all = append(all, list...)
	}
	return convert(domain, all), nil
}

// A readError has names and texts of files, which are escaped.
type readError struct{ err error }

func (e *readError) Error() string { return visible(e.err.Error()) }
func (e *readError) Unwrap() error { return e.err }

// visible escapes what is not printable.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

func convert(domain string, list []directive) *Result {
	f := find(list)
	questions := f.questions()
	f.checkUses()
	r := &Result{
		Rules:   f.rulesText(domain),
		Servers: f.serversText(domain, questions),
		Replays: f.replays(domain),
		Lost:    f.lost,
		Limits:  len(f.used()),
	}
	slices.SortStableFunc(r.Lost, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return r
}

// A rule is the descriptor that counts for a zone, and its limit.
type rule struct {
	name string // value of the descriptor's entry zone
	use  use
	dry  bool
}

// A question is a sub-request to Weir: one or more rules, decided together.
type question struct {
	name   string // of its location
	rules  []*rule
	sites  []site
	number int
	again  bool // another question has the name
}

// questions groups the sites by the rules that they ask for.
func (f *finder) questions() []*question {
	var all []*question
	for _, s := range f.sites {
		if s.release {
			continue
		}
		var asked []*rule
		for _, u := range s.uses {
			if r := f.ruleOf(u, s.dryRun); !slices.Contains(asked, r) {
				asked = append(asked, r)
			}
		}
		i := slices.IndexFunc(all, func(q *question) bool { return slices.Equal(q.rules, asked) })
		if i < 0 {
			i = len(all)
			all = append(all, &question{name: joinNames(asked), rules: asked, number: i})
			all[i].again = slices.ContainsFunc(all[:i], func(q *question) bool { return q.name == all[i].name })
		}
		all[i].sites = append(all[i].sites, s)
	}
	return all
}

func joinNames(rules []*rule) string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.name
	}
	return strings.Join(names, "+")
}

// ruleOf returns the rule of a zone, its burst, and whether it is a dry run.
func (f *finder) ruleOf(u use, dry bool) *rule {
	name := u.zone.name
	if f.severalBursts(u) {
		name += fmt.Sprintf("_burst%d", u.burst)
	}
	if dry {
		name += "+dry_run"
	}
	for _, r := range f.rules {
		switch {
		case r.use.zone == u.zone && r.use.burst == u.burst && r.dry == dry:
			return r
		case r.name == name: // of a zone that is called so
			name += "+"
		}
	}
	r := &rule{name, u, dry}
	f.rules = append(f.rules, r)
	return r
}

// severalBursts reports whether the zone of a use is also used with another burst.
func (f *finder) severalBursts(u use) bool {
	return slices.ContainsFunc(f.used(), func(other use) bool { return other.zone == u.zone && other.burst != u.burst })
}

// used returns the limit_req of all sites, each once.
func (f *finder) used() []use {
	var all []use
	for _, s := range f.sites {
		for _, u := range s.uses {
			if !s.release && !slices.Contains(all, u) {
				all = append(all, u)
			}
		}
	}
	return all
}

// copied returns the variables in the keys of a question that must be read before it is
// asked, because they have other values in a sub-request.
func (f *finder) copied(q *question) []string {
	var all []string
	for _, r := range q.rules {
		for _, v := range f.unsteady(&r.use) {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	return all
}

func (f *finder) unsteady(u *use) []string {
	return slices.DeleteFunc(slices.Clone(u.zone.key.variables), f.isSteady)
}

// copies reports whether one of the limits needs copied variables.
func (f *finder) copies(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool { return len(f.unsteady(&u)) > 0 })
}
