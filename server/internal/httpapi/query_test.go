package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/server/internal/rules"
)

// subRequest is a sub-request with a query and some headers, from 192.0.2.7.
func subRequest(rawQuery string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/auth", nil)
	r.URL.RawQuery = rawQuery
	r.RemoteAddr = "192.0.2.7:40000"
	r.Host = "shop.example"
	r.Header.Set("X-User", "alice")
	r.Header["X-Twice"] = []string{"a", "b"}
	return r
}

func parseQuery(r *http.Request) (*query, error) {
	q := new(query)
	return q, q.parse(r, clientip.RemoteAddr())
}

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		query   string
		entries []rules.Entry
		cost    int64
		deny    int
	}{
		"one constant":                {"domain=d&user=42", []rules.Entry{{Key: "user", Value: "42"}}, 1, 429},
		"the order of the query":      {"z=1&domain=d&a=2&m=3", []rules.Entry{{Key: "z", Value: "1"}, {Key: "a", Value: "2"}, {Key: "m", Value: "3"}}, 1, 429},
		"cost and deny":               {"domain=d&user=42&cost=7&deny=403", []rules.Entry{{Key: "user", Value: "42"}}, 7, 403},
		"deny spelled out":            {"domain=d&user=42&deny=429", []rules.Entry{{Key: "user", Value: "42"}}, 1, 429},
		"an empty value":              {"domain=d&user=", []rules.Entry{{Key: "user"}}, 1, 429},
		"a value with equals signs":   {"domain=d&q=a=b=c", []rules.Entry{{Key: "q", Value: "a=b=c"}}, 1, 429},
		"semicolons are text":         {"domain=d&q=a;b", []rules.Entry{{Key: "q", Value: "a;b"}}, 1, 429},
		"percent and plus":            {"domain=d&a%20b=%2Fc+d", []rules.Entry{{Key: "a b", Value: "/c d"}}, 1, 429},
		"any bytes":                   {"domain=d&k=%FF%00", []rules.Entry{{Key: "k", Value: "\xff\x00"}}, 1, 429},
		"empty parts":                 {"&domain=d&&user=42&", []rules.Entry{{Key: "user", Value: "42"}}, 1, 429},
		"from a header":               {"domain=d&from=user=X-User", []rules.Entry{{Key: "user", Value: "alice"}}, 1, 429},
		"from a header, any case":     {"domain=d&from=user=x-uSER", []rules.Entry{{Key: "user", Value: "alice"}}, 1, 429},
		"from an absent header":       {"domain=d&from=user=X-None", []rules.Entry{{Key: "user"}}, 1, 429},
		"from a header of two lines":  {"domain=d&from=k=X-Twice", []rules.Entry{{Key: "k", Value: "a, b"}}, 1, 429},
		"from the host":               {"domain=d&from=k=Host", []rules.Entry{{Key: "k", Value: "shop.example"}}, 1, 429},
		"from the address":            {"domain=d&from=ip=client_ip", []rules.Entry{{Key: "ip", Value: "192.0.2.7"}}, 1, 429},
		"several from":                {"domain=d&from=ip=client_ip&from=user=X-User", []rules.Entry{{Key: "ip", Value: "192.0.2.7"}, {Key: "user", Value: "alice"}}, 1, 429},
		"from encoded as a whole":     {"domain=d&from=user%3DX-User", []rules.Entry{{Key: "user", Value: "alice"}}, 1, 429},
		"an entry named cost":         {"domain=d&entry=cost=9", []rules.Entry{{Key: "cost", Value: "9"}}, 1, 429},
		"an entry with an equal sign": {"domain=d&entry=a%3Db=c", []rules.Entry{{Key: "a=b", Value: "c"}}, 1, 429},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, err := parseQuery(subRequest(test.query))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]rules.Entry{test.entries}, q.before); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			if q.domain != "d" || q.cost != test.cost || q.deny != test.deny {
				t.Errorf("got domain %q, cost %d, deny %d; want d, %d, %d", q.domain, q.cost, q.deny, test.cost, test.deny)
			}
		})
	}
}

func TestParseQueryRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ query, field string }{
		"nothing":                        {"", "domain"},
		"no domain":                      {"user=42", "domain"},
		"an empty domain":                {"domain=&user=42", "domain"},
		"no entries":                     {"domain=d&cost=2", "query"},
		"no value":                       {"domain=d&user", "query"},
		"broken encoding":                {"domain=d&user=%zz", "query"},
		"broken encoding of a key":       {"domain=d&%zz=1", "query"},
		"cost 0":                         {"domain=d&user=1&cost=0", "cost"},
		"a negative cost":                {"domain=d&user=1&cost=-1", "cost"},
		"a cost beyond the range":        {"domain=d&user=1&cost=1000000001", "cost"},
		"a cost beyond int64":            {"domain=d&user=1&cost=99999999999999999999", "cost"},
		"a cost of 1e3":                  {"domain=d&user=1&cost=1e3", "cost"},
		"an empty cost":                  {"domain=d&user=1&cost=", "cost"},
		"another deny":                   {"domain=d&user=1&deny=401", "deny"},
		"two ids":                        {"domain=d&user=1&id=x&id=x", "id"},
		"two domains":                    {"domain=d&domain=d&user=1", "domain"},
		"two costs":                      {"domain=d&user=1&cost=1&cost=1", "cost"},
		"two denies":                     {"domain=d&user=1&deny=403&deny=403", "deny"},
		"a long key twice":               {"domain=d&" + strings.Repeat("x", 5000) + "=1&" + strings.Repeat("x", 5000) + "=2", strings.Repeat("x", 80) + "…"},
		"a key twice":                    {"domain=d&user=1&user=2", "user"},
		"a key twice, otherwise spelled": {"domain=d&user=1&%75ser=2", "user"},
		"a key from two places":          {"domain=d&from=user=X-User&user=2", "user"},
		"from without a header":          {"domain=d&from=user", "from"},
		"from with an empty name":        {"domain=d&from=user=", "from"},
		"from with a bad name":           {"domain=d&from=user=X%20User", "from"},
		"from in broken encoding":        {"domain=d&from=user%zz", "query"},
		"entry in broken encoding":       {"domain=d&entry=%zz=1", "query"},
		"entry without a value":          {"domain=d&entry=user", "entry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseQuery(subRequest(test.query))
			invalid := new(weir.InvalidError)
			if !errors.As(err, &invalid) || invalid.Field != test.field {
				t.Fatalf("got %v, want an error that names %s", err, test.field)
			}
		})
	}
}

// TestClientIP: the strategy finds the address; a client's own header changes nothing.
func TestClientIP(t *testing.T) {
	t.Parallel()
	h := handler(t, Options{Taker: frozen(), ClientIP: clientip.Must(clientip.TrustedHops(1))})
	for _, c := range []struct {
		remote, forwarded string
		status            int
	}{
		{"192.0.2.1:1", "10.1.1.1, 198.51.100.7", http.StatusNoContent},
		{"192.0.2.2:1", "10.1.1.2, 198.51.100.7", http.StatusTooManyRequests},
		{"192.0.2.1:1", "10.1.1.1, 198.51.100.8", http.StatusNoContent},
		{"@", "", http.StatusBadRequest},
	} {
		r, w := subRequest("domain=shop&from=user=client_ip&cost=5"), httptest.NewRecorder()
		r.RemoteAddr = c.remote
		r.Header.Set("X-Forwarded-For", c.forwarded)
		h.ServeHTTP(w, r)
		wantStatus(t, w, c.status)
	}
}

// TestSeveralDescriptors wants a bare "and" to end a descriptor, and all of them to be
// charged together, or none.
func TestSeveralDescriptors(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][][]rules.Entry{
		"domain=d&a=1&and&a=2":       {{{Key: "a", Value: "1"}}, {{Key: "a", Value: "2"}}},
		"and&domain=d&a=1&b=2&and&&": {{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}},
		"domain=d&and=1":             {{{Key: "and", Value: "1"}}},
		"domain=d&optional=user=X-User&and&optional=user=X-None&a=1&and&b=2": {{{Key: "user", Value: "alice"}}, {{Key: "b", Value: "2"}}},
		"domain=d&a=1&optional=user=X-None&and&b=2":                          {{{Key: "b", Value: "2"}}},
		"domain=d&a=1&optional=user=X-Empty":                                 {},
		"domain=d&optional=ip=client_ip":                                     {{{Key: "ip", Value: "192.0.2.7"}}},
		"domain=d&entry=optional=1":                                          {{{Key: "optional", Value: "1"}}},
	} {
		r := subRequest(query)
		r.Header.Set("X-Empty", "")
		q, err := parseQuery(r)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if diff := cmp.Diff(want, q.toRequest().Descriptors); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	if _, err := parseQuery(subRequest("domain=d&and")); err == nil {
		t.Error("a query without entries passes")
	}
	h := handler(t, Options{Taker: frozen()})
	for range 5 {
		wantStatus(t, auth(h, "domain=shop&user=alice"), http.StatusNoContent)
	}
	wantStatus(t, auth(h, "domain=shop&user=bob&and&user=alice"), http.StatusTooManyRequests)
	for range 20 { // no header, no descriptor: nobody shares a budget of no name
		wantStatus(t, auth(h, "domain=shop&optional=user=X-None"), http.StatusNoContent)
		wantStatus(t, auth(h, "domain=shop&user=alice&and&optional=user=X-None"), http.StatusTooManyRequests)
	}
	for range 5 {
		wantStatus(t, auth(h, "domain=shop&user=bob"), http.StatusNoContent)
	}
}
