package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A call is the memory of a sub-request, reused by later ones.
type call struct {
	query   query
	verdict verdict
}

var calls = sync.Pool{New: func() any { return new(call) }}

// auth answers the sub-request of a proxy: one or more descriptors, from the query.
func (a *api) auth(w http.ResponseWriter, r *http.Request) {
	c := calls.Get().(*call)
	q, v := &c.query, &c.verdict
	if err := q.parse(r, a.ClientIP); err != nil {
		a.fail(w, r, err)
		return
	}
	req := q.toRequest()
	if len(req.Descriptors) == 0 { // all are left out
		if err := callers.MayAsk(r.Context(), req); err != nil {
			a.fail(w, r, err)
			return
		}
		w.Header()["Cache-Control"] = noStore
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := a.decide(r, req, v); err != nil {
		a.fail(w, r, err)
		return
	}
	a.writeHeaders(w.Header(), v)
	if v.allowed {
		w.WriteHeader(http.StatusNoContent)
	} else {
		a.refusal(v, q.deny).Write(w, r)
	}
	// Not deferred: a store that panics may still use the memory.
	v.plan.Free()
	*c = call{}
	calls.Put(c)
}

// A query is the query of GET /v1/auth. It must not be copied: it points into itself.
type query struct {
	domain  string
	entries []rules.Entry // of the last descriptor
	before  [][]rules.Entry
	absent  bool // a header that the last descriptor needs
	left    bool // some descriptor is left out
	cost    int64
	id      string
	deny    int // the status of a refusal

	clientIP clientip.Strategy
	given    []string // parameters read so far

	// Memory for most queries.
	request    rules.Request
	descriptor [1][]rules.Entry
	fewEntries [few]rules.Entry
	fewGiven   [few]string
}

// parse reads the parameters in their order, which is the order of the descriptor's
// entries. A bare "and" ends a descriptor. It refuses repetitions: a client that gets its own text into a proxy's query
// must not override what the proxy put there. The error is a [*weir.InvalidError].
func (q *query) parse(r *http.Request, s clientip.Strategy) error {
	q.cost, q.deny, q.clientIP = 1, http.StatusTooManyRequests, s
	q.entries, q.before, q.given = q.fewEntries[:0], q.descriptor[:0], q.fewGiven[:0]
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if part == "" {
			continue
		}
		if err := q.parameter(r, part); err != nil {
			return err
		}
	}
	if q.domain == "" {
		return problem.Invalid("domain", "missing", "the domain of the rules")
	}
	q.end()
	if len(q.before) == 0 && !q.left {
		return problem.Invalid("query", "without entries", "key=value, from=KEY=HEADER, optional=KEY=HEADER or entry=KEY=VALUE")
	}
	return nil
}

// toRequest returns the request of the query. It never reserves: a proxy cannot wait.
func (q *query) toRequest() *rules.Request {
	q.request = rules.Request{Domain: q.domain, Descriptors: q.before, Cost: q.cost, ID: q.id, Immediate: true}
	return &q.request
}

// end ends a descriptor, if it has entries, and leaves it out if it lacks a header.
func (q *query) end() {
	switch {
	case q.absent:
		q.left = true
	case len(q.entries) > 0:
		q.before = append(q.before, q.entries)
	}
	q.entries, q.absent = nil, false
}

func (q *query) parameter(r *http.Request, part string) error {
	rawName, raw, found := strings.Cut(part, "=")
	if rawName == "and" && !found {
		q.end()
		return nil
	}
	if !found {
		return problem.Invalid("query", strconv.Quote(part), "key=value")
	}
	name, err := unescape(rawName)
	if err != nil {
		return err
	}
	switch name {
	case "from", "optional":
		key, source, err := cutPair(name, raw, "KEY=HEADER")
		if err != nil {
			return err
		}
		value, err := q.sourceValue(r, source)
		if err != nil {
			return err
		}
		q.absent = q.absent || name == "optional" && value == ""
		return q.add(key, value)
	case "entry":
		key, value, err := cutPair(name, raw, "KEY=VALUE")
		if err != nil {
			return err
		}
		return q.add(key, value)
	}
	value, err := unescape(raw)
	if err != nil {
		return err
	}
	switch name {
	case "domain", "cost", "deny", "id":
		return q.reserved(name, value)
	}
	return q.add(name, value)
}

// reserved reads a parameter that is not an entry.
func (q *query) reserved(name, value string) error {
	if slices.Contains(q.given, name) {
		return problem.Invalid(name, "repeated", "one "+name)
	}
	q.given = append(q.given, name)
	switch name {
	case "domain":
		q.domain = value
	case "cost":
		cost, err := strconv.ParseInt(value, 10, 64)
		if err != nil || cost < 1 || cost > weir.MaxCost {
			return problem.Invalid(name, strconv.Quote(value), fmt.Sprintf("1 … %d", weir.MaxCost))
		}
		q.cost = cost
	case "deny":
		if value != "403" && value != "429" {
			return problem.Invalid(name, strconv.Quote(value), "403, or 429, which is the default")
		}
		q.deny, _ = strconv.Atoi(value)
	case "id":
		q.id = value
	}
	return nil
}

func (q *query) add(key, value string) error {
	// The rules refuse more entries than MaxEntries in any case.
	first := q.entries[:min(len(q.entries), rules.MaxEntries)]
	if slices.ContainsFunc(first, func(e rules.Entry) bool { return e.Key == key }) {
		return problem.Invalid(key, "repeated", "each key once")
	}
	q.entries = append(q.entries, rules.Entry{Key: key, Value: value})
	return nil
}

// cutPair splits a parameter's value at its first "=". Clients that encode the whole
// value spell it %3D.
func cutPair(parameter, raw, want string) (left, right string, err error) {
	if rawLeft, rawRight, found := strings.Cut(raw, "="); found {
		if left, err = unescape(rawLeft); err != nil {
			return "", "", err
		}
		right, err = unescape(rawRight)
		return left, right, err
	}
	whole, err := unescape(raw)
	if err != nil {
		return "", "", err
	}
	left, right, found := strings.Cut(whole, "=")
	if !found {
		return "", "", problem.Invalid(parameter, strconv.Quote(whole), want)
	}
	return left, right, nil
}

func unescape(raw string) (string, error) {
	text, err := url.QueryUnescape(raw)
	if err != nil {
		return "", problem.Invalid("query", strconv.Quote(raw), "percent-encoded text")
	}
	return text, nil
}

// sourceValue returns the value of a source, which is client_ip or the name of a header.
// Several lines of a header are joined to one; an absent header is empty.
func (q *query) sourceValue(r *http.Request, source string) (string, error) {
	switch {
	case source == "client_ip":
		key, err := q.clientIP.Key(r)
		if err != nil {
			return "", problem.Invalid("from", strconv.Quote(r.RemoteAddr), "a connection from an IP address")
		}
		return key, nil
	case strings.EqualFold(source, "Host"):
		return r.Host, nil
	case !isToken(source):
		return "", problem.Invalid("from", strconv.Quote(source), "the name of a header, or client_ip")
	}
	return strings.Join(r.Header.Values(source), ", "), nil
}

// isToken reports whether name can be the name of a header.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i] | 0x20
		if (c < 'a' || c > 'z') && (name[i] < '0' || name[i] > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(name[i])) {
			return false
		}
	}
	return name != ""
}
