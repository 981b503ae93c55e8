package app

import (
	"net/http"
	"testing"
)

// TestPagesOfOthers: a page that a browser on this host shows can neither spend budgets
// nor read what the listeners say.
func TestPagesOfOthers(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Admin: AdminOptions{Address: "127.0.0.1:0"}, Hosts: []string{"limits.example"}})
	addrs := app.Addrs()
	api, admin := "http://"+addrs[0].Address, "http://"+addrs[len(addrs)-1].Address
	const take = `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"victim"}]}],"cost":5}`
	form := []string{"Content-Type: application/x-www-form-urlencoded", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}
	for name, c := range map[string]struct {
		method, url, body string
		header            []string
		want              int
	}{
		"a form":                     {"POST", api + "/v1/take", take, form, http.StatusForbidden},
		"a form of an old browser":   {"POST", api + "/v1/take", take, []string{"Origin: https://evil.example"}, http.StatusForbidden},
		"a form for Envoy's service": {"POST", api + "/json", take, form, http.StatusForbidden},
		"rules, rebound":             {"GET", api + "/rlconfig", "", []string{"Host: evil.example"}, http.StatusMisdirectedRequest},
		"metrics, rebound":           {"GET", api + "/metrics", "", []string{"Host: evil.example:8080"}, http.StatusMisdirectedRequest},
		"readiness, rebound":         {"GET", api + "/readyz", "", []string{"Host: evil.example"}, http.StatusMisdirectedRequest},
		"a take, rebound":            {"POST", api + "/v1/take", take, []string{"Host: evil.example"}, http.StatusMisdirectedRequest},
		"a configured name":          {"GET", api + "/rlconfig", "", []string{"Host: limits.example:8080"}, http.StatusOK},
		"a proxy's group":            {"GET", api + "/v1/auth?domain=demo&user=a", "", []string{"Host: weir", "Sec-Fetch-Site: cross-site"}, http.StatusNoContent},
		"a program":                  {"POST", api + "/v1/take", take, nil, http.StatusOK},
		"rules for others":           {"GET", admin + "/v1/rules", "", []string{"Host: evil.example"}, http.StatusMisdirectedRequest},
		"rules by a short name":      {"GET", admin + "/v1/rules", "", []string{"Host: weir"}, http.StatusMisdirectedRequest},
		"rules, embedded":            {"GET", admin + "/v1/rules", "", []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"}, http.StatusForbidden},
		"rules by a configured name": {"GET", admin + "/v1/rules", "", []string{"Host: limits.example"}, http.StatusOK},
		"a profile by a link":        {"GET", admin + "/debug/pprof/profile?seconds=1", "", form, http.StatusForbidden},
		"a profile as an image":      {"GET", admin + "/debug/pprof/trace?seconds=1", "", []string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden},
		"a long profile":             {"GET", admin + "/debug/pprof/profile?seconds=86400", "", nil, http.StatusBadRequest},
		"a long trace":               {"GET", admin + "/debug/pprof/trace?seconds=1e9", "", nil, http.StatusBadRequest},
		"a long difference":          {"GET", admin + "/debug/pprof/heap?seconds=61", "", nil, http.StatusBadRequest},
		"no time at all":             {"GET", admin + "/debug/pprof/trace?seconds=NaN", "", nil, http.StatusBadRequest},
		"a heap":                     {"GET", admin + "/debug/pprof/heap", "", nil, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := sendTo(t, nil, c.method, c.url, c.body, c.header...); got.StatusCode != c.want {
				t.Errorf("%d, want %d", got.StatusCode, c.want)
			}
		})
	}
}
