package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/clientip"
)

// TestClientIPByStrategy: what a client adds to the headers changes nothing of
// whose budget is charged.
func TestClientIPByStrategy(t *testing.T) {
	t.Parallel()
	for text, proxied := range map[string]http.Header{
		"remote_addr":                                         {},
		"single_header:X-Real-IP,192.0.2.0/24":                {"X-Real-Ip": {"198.51.100.7"}},
		"trusted_ranges:192.0.2.0/24,203.0.113.0/24":          {"X-Forwarded-For": {"CLIENT, 198.51.100.7, 203.0.113.1"}},
		"trusted_hops:2":                                      {"X-Forwarded-For": {"CLIENT, 198.51.100.7, 203.0.113.1"}},
		"forwarded_hops:1":                                    {"Forwarded": {"CLIENT, for=198.51.100.7"}},
		"forwarded_ranges:192.0.2.1, 203.0.113.0/24, ::1/128": {"Forwarded": {"CLIENT, for=198.51.100.7, for=203.0.113.1"}},
	} {
		h := handler(t, Options{Taker: frozen(), ClientIP: clientip.Must(clientip.Parse(text))})
		statuses := map[int]int{}
		for _, invented := range []string{"", "10.1.1.1", "10.1.1.2", "for=10.1.1.3", `"`, "for=\"", "unknown", "198.51.100.9, 198.51.100.8"} {
			r := httptest.NewRequest(http.MethodGet, "/v1/auth?domain=shop&from=user=client_ip", nil)
			r.RemoteAddr = "192.0.2.1:999"
			for name, values := range proxied {
				r.Header.Set(name, strings.Replace(values[0], "CLIENT", invented, 1))
			}
			if _, ok := proxied["X-Forwarded-For"]; !ok {
				r.Header.Set("X-Forwarded-For", invented)
			}
			if _, ok := proxied["X-Real-Ip"]; !ok {
				r.Header.Set("X-Real-IP", invented)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			statuses[w.Code]++
		}
		if statuses[http.StatusNoContent] != 5 || statuses[http.StatusTooManyRequests] != 3 {
			t.Errorf("%s: %v, want 5 of one client to pass", text, statuses)
		}
	}
}
