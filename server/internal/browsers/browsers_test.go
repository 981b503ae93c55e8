package browsers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/server/internal/browsers"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	names := []string{"weir.example.internal", "Other"}
	for host, want := range map[string]struct{ local, short bool }{
		"":                           {true, true},
		"localhost":                  {true, true},
		"LOCALHOST:8080":             {true, true},
		"localhost.":                 {true, true},
		"weir.localhost:8080":        {true, false},
		"127.0.0.1:8080":             {true, false},
		"127.8.9.1":                  {true, false},
		"[::1]:8080":                 {true, false},
		"[::ffff:127.0.0.1]":         {true, false},
		"weir.example.internal:8080": {true, false},
		"WEIR.example.internal.":     {true, false},
		"other":                      {true, true},
		"weir":                       {false, true},
		"192.0.2.1:8080":             {false, false},
		"[2001:db8::1]":              {false, false},
		"evil.example":               {false, false},
		"localhost.evil.example":     {false, false},
		"127.0.0.1.evil.example":     {false, false},
		"evil.example.:8080":         {false, false},
	} {
		if got := browsers.Local(host, names); got != want.local {
			t.Errorf("%q is local: %v, want %v", host, got, want.local)
		}
		if got := browsers.Short(host); got != want.short {
			t.Errorf("%q is short: %v, want %v", host, got, want.short)
		}
	}
}

func TestCrossSite(t *testing.T) {
	t.Parallel()
	h := browsers.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		method            string
		header            map[string]string
		status            int
		embedded, foreign bool
	}{
		"a program":                {"POST", nil, 200, false, false},
		"a form of another site":   {"POST", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403, false, true},
		"an old browser":           {"POST", map[string]string{"Origin": "https://evil.example"}, 403, false, false},
		"a sandboxed page":         {"POST", map[string]string{"Origin": "null"}, 403, false, false},
		"a page of its own":        {"POST", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://example.com"}, 200, false, false},
		"an image of another site": {"GET", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 200, true, true},
		"another port":             {"GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 200, true, true},
		"a link":                   {"GET", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200, false, true},
		"the user":                 {"GET", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200, false, false},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		for key, value := range c.header {
			r.Header.Set(key, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || browsers.Embedded(r) != c.embedded || browsers.Foreign(r) != c.foreign {
			t.Errorf("%s: %d, embedded %v, foreign %v", name, w.Code, browsers.Embedded(r), browsers.Foreign(r))
		}
	}
}
