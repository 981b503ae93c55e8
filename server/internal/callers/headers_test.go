package callers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
)

// TestNewHeaders wants every way refused in which somebody else could say who calls.
func TestNewHeaders(t *testing.T) {
	t.Parallel()
	const proxy, socket = "spiffe://example.org/gateway", "unix:/run/weir.sock"
	for name, test := range map[string]struct {
		labels, from, listen string
		certificates         bool
		field, want          string // of the error; no field for none
	}{
		"a certificate":        {"user=X-User,team=x-team", proxy, ":0", true, "", ""},
		"a DNS name":           {"user=X-User", "gateway.internal", ":0", true, "", ""},
		"a socket":             {"user=X-User", socket, socket, false, "", ""},
		"nothing":              {"", "", ":0", false, "", ""},
		"from anybody":         {"user=X-User", "", ":0", true, "identity header", "--identity-from beside it"},
		"no header":            {"", proxy, ":0", true, "identity from", "--identity-header beside it"},
		"an address":           {"user=X-User", "10.0.0.1", ":0", true, "identity from", "an address proves nothing"},
		"an address of IPv6":   {"user=X-User", "fd00::1", ":0", true, "identity from", "an address proves nothing"},
		"a network":            {"user=X-User", "10.0.0.0/8", ":0", true, "identity from", "an address proves nothing"},
		"host and port":        {"user=X-User", "gateway.internal:443", ":0", true, "identity from", "an address proves nothing"},
		"any":                  {"user=X-User", "any", ":0", true, "identity from", "an address proves nothing"},
		"a wildcard":           {"user=X-User", "*.internal", ":0", true, "identity from", "an address proves nothing"},
		"no certificates":      {"user=X-User", proxy, ":0", false, "identity from", "--models-tls-client-ca beside it"},
		"another socket":       {"user=X-User", socket, "unix:/run/other", false, "identity from", "--listen " + socket},
		"a reserved label":     {"key=X-User", proxy, ":0", true, "identity header", "every request has key, model, end_user already"},
		"a capital":            {"User=X-User", proxy, ":0", true, "identity header", "lower-case letters"},
		"no name":              {"user", proxy, ":0", true, "identity header", "LABEL=NAME for each label"},
		"an empty name":        {"user=", proxy, ":0", true, "identity header", "LABEL=NAME for each label"},
		"a label twice":        {"user=X-A,user=X-B", proxy, ":0", true, "identity header", "each label once"},
		"a header twice":       {"user=X-A,team=x-a", proxy, ":0", true, "identity header", "a header for each label"},
		"no header's name":     {"user=X User", proxy, ":0", true, "identity header", "the name of a header of its own"},
		"the credential":       {"user=authorization", proxy, ":0", true, "identity header", "the name of a header of its own"},
		"more labels than fit": {"a=A,b=B,c=C,d=D,e=E,f=F,g=G,h=H,i=I", proxy, ":0", true, "identity header", "at most 8 labels"},
	} {
		_, err := NewHeaders(test.labels, test.from, test.listen, test.certificates)
		invalid := new(weir.InvalidError)
		if errors.As(err, &invalid) != (test.field != "") || invalid.Field != test.field || !strings.Contains(invalid.Want, test.want) {
			t.Errorf("%s: %v, want %s: %s", name, err, test.field, test.want)
		}
	}
}

// TestFromProxy wants the labels of a proxy's headers, and everybody else who sends one refused.
func TestFromProxy(t *testing.T) {
	t.Parallel()
	headers, err := NewHeaders("user=X-User,team=X-Team", "spiffe://Example.org/gateway", ":0", true)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[Outcome]int{}
	by := New(Options{Listener: "models", Headers: headers, Requests: func(_ string, o Outcome) { outcomes[o]++ }})
	certificate := func(uri string) *tls.ConnectionState {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{URIs: []*url.URL{u}}
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	proxy := certificate("spiffe://example.org/gateway")
	unverified := *proxy
	unverified.VerifiedChains = nil
	both := http.Header{"X-User": {"ann"}, "X-Team": {"web & co"}}
	for name, test := range map[string]struct {
		from   *tls.ConnectionState
		header http.Header
		status int // of the error; 0 for none
		want   string
	}{
		"the proxy":           {proxy, both, 0, "user=ann [{team web & co} {user ann}]"},
		"no certificate":      {nil, both, 400, "the header X-User says who calls: want it from the trusted proxy only"},
		"another one":         {certificate("spiffe://example.org/other"), both, 400, "want it from the trusted proxy only"},
		"an unverified one":   {&unverified, both, 400, "want it from the trusted proxy only"},
		"one header":          {nil, http.Header{"X-Team": {""}}, 400, "the header X-Team says who calls"},
		"a client":            {nil, http.Header{"Authorization": {"Bearer x"}}, 0, ""},
		"no header":           {proxy, http.Header{}, 401, "the header X-User is missing: want it from the trusted proxy"},
		"one is missing":      {proxy, http.Header{"X-User": {"ann"}}, 401, "the header X-Team is missing"},
		"one is empty":        {proxy, http.Header{"X-User": {"ann"}, "X-Team": {""}}, 401, "the header X-Team is missing"},
		"twice":               {proxy, http.Header{"X-User": {"ann", "bo"}, "X-Team": {"web"}}, 400, "the header X-User is repeated"},
		"not to be printed":   {proxy, http.Header{"X-User": {"a\tb"}, "X-Team": {"web"}}, 400, "the header X-User is no label: want 1 … 256 bytes"},
		"too long for labels": {proxy, http.Header{"X-User": {strings.Repeat("a", 257)}, "X-Team": {"web"}}, 400, "the header X-User is no label"},
	} {
		who, err := by.FromProxy(&http.Request{Header: test.header, TLS: test.from})
		refused := new(RefusedError)
		errors.As(err, &refused)
		got := refused.Message
		if who != nil {
			got = who.Name() + " " + fmt.Sprint(who.Labels())
		}
		if refused.Status != test.status || !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%s: %d %q, want %d %q", name, refused.Status, got, test.status, test.want)
		}
		if who != nil && (who.May(Take|Peek, "any") != nil || who.May(AdminRead, "any") == nil || !who.Still(Take, "any")) {
			t.Errorf("%s: may other things than take", name)
		}
	}
	if diff := cmp.Diff(map[Outcome]int{Admitted: 1, Forbidden: 1, Unauthenticated: 10}, outcomes); diff != "" {
		t.Error(diff)
	}
	sent := http.Header{"X-User": {"ann"}, "X-Team": {"web"}, "Accept": {"a"}}
	if headers.Remove(sent); len(sent) != 1 {
		t.Errorf("%v go on", sent)
	}
}
