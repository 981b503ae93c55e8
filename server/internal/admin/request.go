package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

// maxBody is the size of the largest body, in bytes.
const maxBody = 64 << 10

// A request names a key, and for a change the override.
type request struct {
	domain  string
	entries []rules.Entry
	to      []rules.Entry // of the key that a move is to; empty for other actions
	name    string        // of one limit; empty: all
	budget  string        // in place of the limits; empty: none
	cost    int64
	until   time.Time
	timed   bool   // the request states until
	text    string // the limit of an override, as it was written; empty: none
	by      string // what a raise adds, as it was written; empty: none
	note    string // of a raise
	raise   string // the ID of a raise that is to end; empty: none
	// monthEnd says that a raise ends with the month of its limit, whatever until is.
	monthEnd bool
}

// changeBody is the body of a change. Pointers are nil for absent fields.
type changeBody struct {
	Domain  string      `json:"domain"`
	Entries []entryBody `json:"entries"`
	To      []entryBody `json:"to"`
	Name    string      `json:"name"`
	Budget  string      `json:"budget"`
	For     *string     `json:"for"`
	Until   *string     `json:"until"`
	Limit   *string     `json:"limit"`
	By      string      `json:"by"`
	Note    string      `json:"note"`
	Raise   string      `json:"raise"`
}

type entryBody struct {
	Key   *string `json:"key"`
	Value *string `json:"value"`
}

// readChange reads the request of a POST. It accepts no content type that the form of a
// web page can send.
func readChange(w http.ResponseWriter, r *http.Request, action string, now time.Time) (*request, error) {
	if wrong := jsonbody.Unsupported(r.Header, func(mediaType string) bool { return mediaType == "application/json" }); wrong != nil {
		return nil, wrong
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case err == nil:
		return parseChange(text, action, now)
	case problem.Of(err) != nil:
		return nil, err
	}
	return nil, jsonbody.CutShort()
}

const changeFields = "domain, entries, to, key, value, name, budget, for, until, limit, by, note or raise"

// parseChange parses the body of an action. The error is a [*weir.InvalidError].
func parseChange(text []byte, action string, now time.Time) (*request, error) {
	var body changeBody
	if err := jsonbody.Decode(text, &body, changeFields); err != nil {
		return nil, err
	}
	req := &request{domain: body.Domain, name: body.Name, budget: body.Budget, by: body.By, note: body.Note, raise: body.Raise, cost: 1}
	if len(req.note) > maxNote {
		return nil, problem.Invalid("note", fmt.Sprintf("%d bytes", len(req.note)), fmt.Sprintf("at most %d bytes", maxNote))
	}
	var err error
	if req.entries, err = entriesOf("entries", body.Entries); err != nil {
		return nil, err
	}
	if req.to, err = entriesOf("to", body.To); err != nil {
		return nil, err
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	return req, body.terms(req, action, now)
}

func entriesOf(field string, list []entryBody) (entries []rules.Entry, err error) {
	for i, e := range list {
		if e.Key == nil || e.Value == nil {
			return nil, problem.Invalid(fmt.Sprintf("%s[%d]", field, i), "incomplete", "a key and a value")
		}
		entries = append(entries, rules.Entry{Key: *e.Key, Value: *e.Value})
	}
	return entries, nil
}

func (r *request) check() error {
	switch {
	case r.domain == "":
		return problem.Invalid("domain", "missing", "the domain of the rules")
	case len(r.entries) == 0 && r.budget == "":
		return problem.Invalid("entries", "missing", "at least one entry, with a key and a value")
	}
	return nil
}

// terms reads the end and the limit of an override.
func (b *changeBody) terms(req *request, action string, now time.Time) error {
	if b.For != nil && b.Until != nil {
		return problem.Invalid("until", "given", `none beside "for"`)
	}
	lasts, longest := DefaultFor, MaxFor
	if action == "raise" {
		longest = MaxRaise
	}
	days := int(longest / (24 * time.Hour))
	switch {
	case b.Until != nil && *b.Until == monthEnd && action == "raise":
		req.monthEnd = true
	case b.For != nil:
		d, err := time.ParseDuration(*b.For)
		if err != nil || d < time.Millisecond || d > longest {
			return problem.Invalid("for", strconv.Quote(*b.For), fmt.Sprintf("1ms … %dh (%d days), such as 1h30m", 24*days, days)+inHours(*b.For, days))
		}
		lasts = d
	case b.Until != nil:
		at, err := time.Parse(time.RFC3339, *b.Until)
		if err != nil || !now.Before(at) || at.Sub(now) > longest {
			want := fmt.Sprintf("a time within the next %d days, such as %s", days, now.Add(DefaultFor).UTC().Format(time.RFC3339))
			if action == "raise" {
				want += ", or " + monthEnd
			}
			return problem.Invalid("until", strconv.Quote(*b.Until), want)
		}
		lasts = at.Sub(now)
	}
	req.until, req.timed = now.Add(lasts), b.For != nil || b.Until != nil
	if b.Limit == nil {
		return nil
	}
	if req.text = *b.Limit; strings.TrimSpace(req.text) == "" {
		return problem.Invalid("limit", strconv.Quote(req.text), `what holds instead, such as "100/min burst 20"`)
	}
	return nil
}

// parseQuery parses the query of GET /v1/key. The error is a [*weir.InvalidError].
func parseQuery(raw string) (*request, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.Invalid("query", "malformed", "percent-encoded text")
	}
	req := &request{domain: query.Get("domain"), name: query.Get("name"), budget: query.Get("budget"), cost: 1}
	for parameter, values := range query {
		switch parameter {
		case "domain", "name", "budget", "cost":
			if len(values) > 1 {
				return nil, problem.Invalid(parameter, "repeated", "one "+parameter)
			}
		case "entry":
		default:
			return nil, problem.Invalid(parameter, "unknown", "domain, entry, name, budget or cost")
		}
	}
	for _, entry := range query["entry"] {
		key, value, found := strings.Cut(entry, "=")
		if !found {
			return nil, problem.Invalid("entry", strconv.Quote(entry), "KEY=VALUE")
		}
		req.entries = append(req.entries, rules.Entry{Key: key, Value: value})
	}
	if cost := query.Get("cost"); cost != "" {
		if req.cost, err = parseCost(cost); err != nil {
			return nil, err
		}
	}
	return req, req.check()
}

// parseCost reads a number of units, or of dollars such as $2.50 in millionths. The error is a
// [*weir.InvalidError].
func parseCost(text string) (int64, error) {
	if amount, dollars := strings.CutPrefix(text, "$"); dollars {
		micros, ok := config.ParseDollars(amount)
		if !ok || micros < 1 || micros > weir.MaxCost {
			return 0, problem.Invalid("cost", strconv.Quote(text), "$0.000001 … $"+config.DollarsText(weir.MaxCost))
		}
		return micros, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > weir.MaxCost {
		return 0, problem.Invalid("cost", strconv.Quote(text), fmt.Sprintf("1 … %d", weir.MaxCost))
	}
	return n, nil
}

// A target is one limit of the key that was named.
type target struct {
	rule        *rules.Rule // nil if the limit's numbers come with the calls
	limit       *weir.Limit // nil if the rule is unlimited
	key, slot   string
	owner       string // of the rule's charges; empty: none
	failure     config.StoreFailure
	budget      *rules.Budget // nil: a limit of its own
	keep        int64
	guaranteed  bool // the limits before it in its alternative decide
	alternative int  // from 1 on; 0: the rule has none
}

// everything stands for all that a rule charges for a caller, whatever its limits are.
var everything = weir.PerSecond(1).MustCompile()

// name returns the name of the limit, or of the rule if the target is all of it.
func (t *target) name() string {
	if t.limit == everything {
		return t.rule.Path
	}
	return t.limit.Name
}

// throttled stands for the limit that comes with each CL.THROTTLE.
var throttled = weir.Limit{Name: ThrottleDomain, Count: 1, Period: 1e9}.MustCompile()

// find returns the limits that the request names. The error is a [*problem.Document] or a
// [*weir.InvalidError].
func (a *api) find(req *request) ([]target, error) {
	set := a.Rules()
	known := slices.Contains(set.Domains(), req.domain)
	if !known && req.domain == ThrottleDomain && a.ThrottleKey != nil {
		return a.throttleTarget(req)
	}
	if !known && req.ofCall() {
		return a.callTarget(req)
	}
	if !known {
		return nil, &problem.Document{
			Status: http.StatusNotFound, Code: "unknown_domain", Field: "domain",
			Detail: fmt.Sprintf("there are no rules for the domain %s: want one of %s", strconv.Quote(problem.Shorten(req.domain)), problem.Shorten(strings.Join(set.Domains(), ", "))),
		}
	}
	plan, err := set.Plan(&rules.Request{Domain: req.domain, Budget: req.budget, Descriptors: [][]rules.Entry{req.entries}})
	if err != nil {
		return nil, err
	}
	all := targetsOf(plan)
	if len(all) == 0 && req.ofCall() {
		return a.callTarget(req)
	}
	if len(all) == 0 && req.budget != "" {
		return nil, &problem.Document{
			Status: http.StatusNotFound, Code: "no_budget", Field: "budget",
			Detail: fmt.Sprintf("neither the domain %s nor a descriptor on the way of these entries has a budget %s", strconv.Quote(req.domain), strconv.Quote(problem.Shorten(req.budget))),
		}
	}
	if len(all) == 0 {
		return nil, &problem.Document{
			Status: http.StatusNotFound, Code: "no_rule", Field: "entries",
			Detail: fmt.Sprintf("no rule in domain %s matches these entries; they are not limited", strconv.Quote(req.domain)),
		}
	}
	return named(all, req.name)
}

func targetsOf(plan *rules.Plan) []target {
	var all []target
	for i := range plan.Applied {
		applied := &plan.Applied[i]
		t := target{rule: applied.Rule, limit: applied.Limit, budget: applied.Of.Budget}
		if applied.Act != nil {
			charge := &applied.Act.Charges[applied.Charge]
			t.key, t.slot, t.keep, t.owner, t.alternative = charge.Key, charge.HashTag, charge.Keep, charge.Owner, applied.Of.Alternative
			t.guaranteed = charge.Guaranteed
			t.failure = applied.Of.OnStoreFailure
		}
		all = append(all, t)
	}
	return all
}

// named returns the targets with that name, all if it is empty.
func named(all []target, name string) ([]target, error) {
	if name == "" {
		return all, nil
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(t target) bool { return t.limit == nil || t.limit.Name != name })
	if len(kept) == 0 {
		return nil, problem.Invalid("name", strconv.Quote(name), "one of "+namesOf(all))
	}
	return kept, nil
}

func namesOf(all []target) string {
	var names []string
	for _, t := range all {
		if t.limit != nil {
			names = append(names, strconv.Quote(t.limit.Name))
		}
	}
	return strings.Join(names, ", ")
}

// callEntry is the key of the entry that stands for the key of a limit in calls, where no rule
// is for such an entry.
const callEntry = "call"

// ofCall reports whether the request may name a limit in calls.
func (r *request) ofCall() bool {
	return len(r.entries) == 1 && r.entries[0].Key == callEntry && r.budget == ""
}

// callTarget returns the key of a limit in calls. Its numbers are known if the file has them.
func (a *api) callTarget(req *request) ([]target, error) {
	if req.name == "" {
		return nil, problem.Invalid("name", "missing", "the name of the limit in calls, such as login, sliding_log#login or gcra/1m0s")
	}
	plan, numbered, err := a.Rules().PlanCall(req.domain, req.entries[0].Value, req.name)
	if err != nil {
		return nil, err
	}
	all := targetsOf(plan)
	if !numbered {
		all[0].rule = nil
	}
	return all, nil
}

// throttleTarget returns the key of a CL.THROTTLE, whose limit is unknown in advance.
func (a *api) throttleTarget(req *request) ([]target, error) {
	if len(req.entries) != 1 || req.entries[0].Key != "key" {
		return nil, problem.Invalid("entries", "different", `one entry "key", with the key of CL.THROTTLE as its value`)
	}
	return []target{{limit: throttled, key: a.ThrottleKey(req.entries[0].Value)}}, nil
}

// affected returns what an action changes. A block or an allowance of a caller is of all
// that a rule charges for it, so that no alternative stays open and no budget closed, unless
// the request names one limit.
func affected(action string, req *request, all []target) ([]target, error) {
	owner := whole(req, all)
	if owner == nil {
		return limited(req, all, action == "reset")
	}
	switch action {
	case "block", "allow":
		return []target{*owner}, nil
	case "clear":
		own, _ := limited(req, all, false) // the rule may have none
		return append([]target{*owner}, own...), nil
	}
	return limited(req, all, action == "reset")
}

// whole returns the target that is all of a rule, nil if the request names less, or the
// limits of the rule are all there is.
func whole(req *request, all []target) *target {
	if req.name != "" {
		return nil
	}
	for i := range all {
		if t := &all[i]; t.owner != "" {
			return &target{rule: t.rule, limit: everything, key: t.owner}
		}
	}
	return nil
}

// limited returns the targets with state in the store, those of trials only if wanted, and
// a budget, which others share, only if the request names it. It fails if there are none.
func limited(req *request, all []target, trials bool) ([]target, error) {
	shared := ""
	kept := slices.DeleteFunc(slices.Clone(all), func(t target) bool {
		if t.budget != nil && req.budget == "" {
			shared = t.budget.Name
			return true
		}
		return t.limit == nil || !trials && t.rule != nil && t.rule.OnTrial
	})
	switch {
	case len(kept) > 0:
		return kept, nil
	case shared != "":
		return nil, &problem.Document{
			Status: http.StatusConflict, Code: "shared", Field: "budget",
			Detail: fmt.Sprintf("the rule %s charges the budget %s, which other rules may share: name the budget to change it for all of them", all[0].rule.Path, strconv.Quote(shared)),
		}
	default:
		return nil, &problem.Document{
			Status: http.StatusConflict, Code: "unlimited",
			Detail: fmt.Sprintf("the rule %s at %s is unlimited: nothing is counted there that could be changed", all[0].rule.Path, all[0].rule.At),
		}
	}
}

// inHours suggests a duration that was given in days, which Go's durations do not have, or
// returns "". Most is the largest number of days.
func inHours(text string, most int) string {
	days, found := strings.CutSuffix(text, "d")
	n, err := strconv.Atoi(days)
	if !found || err != nil || n < 1 || n > most {
		return ""
	}
	return fmt.Sprintf("; did you mean %dh?", 24*n)
}
