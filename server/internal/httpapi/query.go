package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A query is what the query of GET /v1/auth says. It is not copied: it points into
// itself.
type query struct {
	domain  string
	entries []rules.Entry
	cost    int64
	id      string
	deny    int // the status of a refusal

	clientIP clientip.Strategy

	given []string // parameters read so far

	// What most queries need is in one piece with them.
	request  rules.Request
	one      [1][]rules.Entry
	few      [4]rules.Entry
	givenFew [4]string
}

// parse reads the query in its own order, which is the order of the descriptor's
// entries. Nothing in it may be said twice: a client that gets its
// own text into a proxy's query must not be able to overrule what stands there.
// The error is a [*weir.InvalidError].
func (q *query) parse(r *http.Request, s clientip.Strategy) error {
	q.cost, q.deny, q.clientIP = 1, http.StatusTooManyRequests, s
	q.entries, q.given = q.few[:0], q.givenFew[:0]
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if part == "" {
			continue
		}
		if err := q.parameter(r, part); err != nil {
			return err
		}
	}
	if q.domain == "" {
		return invalid("domain", "missing", "the domain of the rules")
	}
	if len(q.entries) == 0 {
		return invalid("query", "without entries", "key=value, from=KEY=HEADER or entry=KEY=VALUE")
	}
	return nil
}

// asked is what the query asks of the rules: one descriptor. A proxy cannot wait.
func (q *query) asked() *rules.Request {
	q.one[0] = q.entries
	q.request = rules.Request{Domain: q.domain, Descriptors: q.one[:], Cost: q.cost, ID: q.id, Immediate: true}
	return &q.request
}

func (q *query) parameter(r *http.Request, part string) error {
	rawName, raw, found := strings.Cut(part, "=")
	if !found {
		return invalid("query", strconv.Quote(part), "key=value")
	}
	name, err := unescape(rawName)
	if err != nil {
		return err
	}
	switch name {
	case "from":
		return q.from(r, raw)
	case "entry":
		return q.constant(raw)
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

// reserved reads a parameter that is no entry.
func (q *query) reserved(name, value string) error {
	if slices.Contains(q.given, name) {
		return invalid(name, "repeated", "one "+name)
	}
	q.given = append(q.given, name)
	switch name {
	case "domain":
		q.domain = value
	case "cost":
		cost, err := strconv.ParseInt(value, 10, 64)
		if err != nil || cost < 1 || cost > weir.MaxCost {
			return invalid(name, strconv.Quote(value), fmt.Sprintf("1 … %d", weir.MaxCost))
		}
		q.cost = cost
	case "deny":
		if value != "403" && value != "429" {
			return invalid(name, strconv.Quote(value), "403, or 429 as without it")
		}
		q.deny, _ = strconv.Atoi(value)
	case "id":
		q.id = value
	}
	return nil
}

// from reads KEY=HEADER: an entry whose value a header of the request has.
func (q *query) from(r *http.Request, raw string) error {
	key, header, err := cutPair("from", raw, "KEY=HEADER")
	if err != nil {
		return err
	}
	value, err := q.sourceValue(r, header)
	if err != nil {
		return err
	}
	return q.add(key, value)
}

// constant reads KEY=VALUE, whatever the key.
func (q *query) constant(raw string) error {
	key, value, err := cutPair("entry", raw, "KEY=VALUE")
	if err != nil {
		return err
	}
	return q.add(key, value)
}

func (q *query) add(key, value string) error {
	// What has more entries is refused whatever they are.
	first := q.entries[:min(len(q.entries), rules.MaxEntries)]
	if slices.ContainsFunc(first, func(e rules.Entry) bool { return e.Key == key }) {
		return invalid(key, "repeated", "each key once")
	}
	q.entries = append(q.entries, rules.Entry{Key: key, Value: value})
	return nil
}

// cutPair splits a parameter's value at its first "=", which clients that encode
// the whole value spell %3D.
func cutPair(parameter, raw, want string) (left, right string, err error) {
	rawLeft, rawRight, found := strings.Cut(raw, "=")
	if found {
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
	left, right, found = strings.Cut(whole, "=")
	if !found {
		return "", "", invalid(parameter, strconv.Quote(whole), want)
	}
	return left, right, nil
}

func unescape(raw string) (string, error) {
	text, err := url.QueryUnescape(raw)
	if err != nil {
		return "", invalid("query", strconv.Quote(raw), "percent-encoded text")
	}
	return text, nil
}

// sourceValue returns what the named source says about the request: client_ip
// or a header. A header that was sent in several lines counts as the one line
// they stand for, an absent one as empty.
func (q *query) sourceValue(r *http.Request, source string) (string, error) {
	switch {
	case source == "client_ip":
		return clientIP(q.clientIP, r)
	case strings.EqualFold(source, "Host"):
		return r.Host, nil
	case !isToken(source):
		return "", invalid("from", strconv.Quote(source), "the name of a header, or client_ip")
	}
	return strings.Join(r.Header.Values(source), ", "), nil
}

// isToken reports whether name can be a header's.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i] | 0x20
		if (c < 'a' || c > 'z') && (name[i] < '0' || name[i] > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(name[i])) {
			return false
		}
	}
	return name != ""
}
