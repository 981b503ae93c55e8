package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// clientMap finds the map by which nginx's configurations tell clients apart.
var clientMap = regexp.MustCompile(`(?s)map \$remote_addr \$weir_client \{.*?\n *\}`)

// TestNginxCountsNetworks asks the shipped configuration as clients of many
// addresses, and has what it says about them.
func TestNginxCountsNetworks(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	var said string
	weir := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = r.Header.Get("Weir-Client")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer weir.Close()
	from := "; set_real_ip_from 127.0.0.1; real_ip_header X-Address;"
	addr := startNginxWith(t, program, weir.Listener.Addr().String(), newApplication(t).addr, from)
	for client, want := range map[string]string{
		"192.0.2.7":                   "192.0.2.7",
		"::ffff:192.0.2.7":            "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":        "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::1":        "2001:db8:1:2::/64",
		"2001:db8:1:2::1":             "2001:db8:1:2::/64",
		"2001:db8:1:2::":              "2001:db8:1:2::/64",
		"2001:db8:1:0:3:4:5:6":        "2001:db8:1:0::/64",
		"2001:db8:1:0:0:0:0:6":        "2001:db8:1::/64",
		"2001:db8:1::":                "2001:db8:1::/64",
		"2001:db8:0:0:3:4:5:6":        "2001:db8::/64",
		"2001:db8::1":                 "2001:db8::/64",
		"2001:db8:0:2:3:4:5:6":        "2001:db8:0:2::/64",
		"2001:db8:0:2::1":             "2001:db8:0:2::/64",
		"2001:0:0:4:5:6:7:8":          "2001:0:0:4::/64",
		"2001:0:0:4::1":               "2001:0:0:4::/64",
		"2001::1":                     "2001::/64",
		"2001:0:0:0:5:6:7:8":          "2001::/64",
		"0:2:3:4:5:6:7:8":             "0:2:3:4::/64",
		"::1":                         "::/64",
		"2001:DB8:A:B::C":             "2001:db8:a:b::/64",
		"2001:db8:1:2:3:4:192.0.2.33": "2001:db8:1:2::/64",
	} {
		request, err := http.NewRequest("GET", "http://"+addr+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Address", client)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if said != want || answer.StatusCode != http.StatusOK {
			t.Errorf("%s is counted as %q (%d), want %s", client, said, answer.StatusCode, want)
		}
	}
}

// TestConfigurationsCountNetworks wants the same map in all configurations.
func TestConfigurationsCountNetworks(t *testing.T) {
	t.Parallel()
	want := ""
	for _, file := range []string{filepath.Join(example, "nginx.conf"), "../../../../deploy/compose/nginx.conf", "../../../../docs/nginx.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(strings.Fields(clientMap.FindString(string(text))), " ")
		if want == "" {
			want = got
		}
		if got == "" || got != want || strings.Contains(string(text), "remote_address=X-Real-IP") {
			t.Errorf("%s counts other clients than the example: %s", file, got)
		}
	}
}
