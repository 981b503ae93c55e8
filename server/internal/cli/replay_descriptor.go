package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/lab/accesslog"
	"github.com/weirlimit/weir/server/internal/lab/replay"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A mapping says how requests of a log become descriptors.
type mapping struct {
	domain  string
	entries []mapped
}

// mapped is one entry: a constant, or a field of the log.
type mapped struct {
	key, value string
	field      bool
}

const mappingForm = `"DOMAIN key=$field,key=constant", such as "shop remote_address=$remote_addr,path=$request_path"`

// parseMapping reads one --descriptor.
func parseMapping(text string) (mapping, error) {
	wrong := &weir.InvalidError{Field: "descriptor", Value: fmt.Sprintf("%q", text), Want: mappingForm}
	req, err := parseRequest(strings.TrimSpace(text))
	if err != nil || len(req.Descriptors) != 1 {
		return mapping{}, wrong
	}
	m := mapping{domain: req.Domain}
	for _, entry := range req.Descriptors[0] {
		e := mapped{key: entry.Key}
		e.value, e.field = strings.CutPrefix(entry.Value, "$")
		if e.value == "" {
			return mapping{}, wrong
		}
		m.entries = append(m.entries, e)
	}
	return m, nil
}

// A questioner asks the rules for the requests of a log.
type questioner struct {
	set      *rules.Set
	mappings []mapping
	limits   []replay.Limit
	index    map[*weir.Limit]int
	requests []rules.Request
	entries  [][]rules.Entry // of each mapping, reused
	seen     map[string]bool // fields of the mappings that a record has had
}

// newQuestioner reads the mappings and numbers the limits of the rules.
func newQuestioner(set *rules.Set, texts []string) (*questioner, error) {
	q := &questioner{set: set, index: make(map[*weir.Limit]int), seen: make(map[string]bool)}
	for _, text := range texts {
		m, err := parseMapping(text)
		if err != nil {
			return nil, err
		}
		if err := q.add(m); err != nil {
			return nil, err
		}
	}
	for _, r := range set.Rules() {
		for _, form := range r.Forms() {
			q.number(form)
		}
	}
	return q, nil
}

// number numbers the limits of a rule.
func (q *questioner) number(r *rules.Rule) {
	for _, l := range r.Limits {
		if algo.TraitsOf(l.Algorithm).HoldsSlots {
			continue
		}
		q.index[l.Limit] = len(q.limits)
		limit := replay.Limit{Name: name(r, l.Limit), Limit: l.Limit, Shadow: r.Shadow, Alternative: l.Alternative > 0}
		if l.Budget != nil {
			limit.Budget, limit.Keep = r.Domain+"/"+l.Budget.Label, l.Keep
		}
		q.limits = append(q.limits, limit)
	}
}

// name returns a name that is unique among all domains and forms of a rule.
func name(r *rules.Rule, l *weir.Limit) string {
	text := r.Domain + "/" + l.Name
	switch {
	case r.OnTrial:
		return text + ", on trial"
	case r.Unenforced > 0 && r.Shadow:
		return text + ", not enforced"
	}
	return text
}

// add puts a mapping with those of its domain: they are one request, as a proxy
// would send it.
func (q *questioner) add(m mapping) error {
	if !slices.Contains(q.set.Domains(), m.domain) {
		return &weir.InvalidError{
			Field: "descriptor", Value: fmt.Sprintf("%q", m.domain),
			Want: "a domain of the rules: " + strings.Join(q.set.Domains(), ", "),
		}
	}
	q.mappings = append(q.mappings, m)
	q.entries = append(q.entries, make([]rules.Entry, len(m.entries)))
	if !slices.ContainsFunc(q.requests, func(r rules.Request) bool { return r.Domain == m.domain }) {
		q.requests = append(q.requests, rules.Request{Domain: m.domain, Cost: 1, Immediate: true})
	}
	return nil
}

// ask turns a record into acts. A descriptor that misses a field is left out, as
// Envoy leaves it out.
func (q *questioner) ask(record *accesslog.Record) (replay.Question, error) {
	var question replay.Question
	for i := range q.requests {
		req := &q.requests[i]
		req.Descriptors = req.Descriptors[:0]
		for j := range q.mappings {
			if m := &q.mappings[j]; m.domain == req.Domain && q.fill(m, q.entries[j], record) {
				req.Descriptors = append(req.Descriptors, q.entries[j])
			}
		}
		if len(req.Descriptors) == 0 {
			continue
		}
		plan, err := q.set.Plan(req)
		if err != nil {
			return question, err
		}
		question.Matched = question.Matched || len(plan.Applied) > 0
		question.Acts = append(question.Acts, plan.Acts...)
		question.Asked = append(question.Asked, q.asked(plan)...)
	}
	return question, nil
}

// asked lists the charges of a plan. Places are not taken: a log does not say how
// long they were held.
func (q *questioner) asked(plan *rules.Plan) []replay.Asked {
	asked := make([]replay.Asked, 0, len(plan.Applied))
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act == nil {
			continue
		}
		// Ids are for those who come back.
		a.Act.ID = ""
		if algo.TraitsOf(a.Limit.Algorithm).HoldsSlots {
			a.Act.Charges[a.Charge].Cost = 0
			continue
		}
		asked = append(asked, replay.Asked{Limit: q.index[a.Limit], Act: a.Act, Charge: a.Charge})
	}
	return asked
}

// unmatched returns an error if no rule applies to any request of the log.
func (q *questioner) unmatched(r *replay.Result) error {
	if r.Totals.Matched > 0 {
		return nil
	}
	for _, m := range q.mappings {
		var keys []string
		for _, rule := range q.set.Rules() {
			if rule.Domain == m.domain {
				for _, e := range rule.Entries {
					keys = append(keys, e.Key)
				}
			}
		}
		for _, e := range m.entries {
			if slices.Contains(keys, e.key) {
				continue
			}
			if meant := config.Nearest(e.key, keys); meant != "" {
				return fmt.Errorf("no rule applies to any request; %q in --descriptor is no key of the rules, did you mean %q?", e.key, meant)
			}
			return fmt.Errorf("no rule applies to any request; %q in --descriptor is no key of the rules, which have %s", e.key, strings.Join(slices.Compact(slices.Sorted(slices.Values(keys))), ", "))
		}
	}
	return errors.New("no rule applies to any request; see weir check --explain")
}

// fill sets the entries of a mapping and reports whether the record has all of its fields.
func (q *questioner) fill(m *mapping, entries []rules.Entry, record *accesslog.Record) bool {
	for i, e := range m.entries {
		entries[i] = rules.Entry{Key: e.key, Value: e.value}
		if !e.field {
			continue
		}
		value, ok := record.Get(e.value)
		if !ok {
			return false
		}
		q.seen[e.value] = true
		entries[i].Value = value
	}
	return true
}

// checkFields returns an error for a field that no record has had, unless it is among
// names, or some format of logs has it.
func (q *questioner) checkFields(names []string) error {
	for _, m := range q.mappings {
		for _, e := range m.entries {
			if e.field && !q.seen[e.value] && len(names) > 0 && !accesslog.KnownField(e.value) && !slices.Contains(names, e.value) {
				return &weir.InvalidError{
					Field: "descriptor", Value: "$" + e.value,
					Want: "a field of the log: its first line has " + strings.Join(names, ", "),
				}
			}
		}
	}
	return nil
}
