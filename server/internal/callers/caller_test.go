package callers

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
	"github.com/weirlimit/weir/server/internal/rules"
)

// digestOf returns a token as a file of callers has it.
func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

const edgeText = `callers:
  - name: edge
    tokens: [%s]
    certificates: [Envoy.edge.internal, spiffe://cluster/ns/edge]
    verbs: [take, peek]
    domains: [edge, web]
`

func TestParse(t *testing.T) {
	t.Parallel()
	digest := digestOf(oldToken)
	caller := func(lines ...string) string {
		text := "callers:\n  - name: a\n"
		for _, line := range lines {
			text += "    " + line + "\n"
		}
		return text
	}
	for name, test := range map[string]struct{ text, want string }{
		"good":                              {fmt.Sprintf(edgeText, digest), ""},
		"empty":                             {"", "f:1:1: the file is empty; want callers"},
		"comments":                          {"# nobody\n", "f:1:1: the file is empty; want callers"},
		"no YAML":                           {"callers:\n\t- a\n", "f:2:2: not YAML: found character that cannot start any token; want spaces in place of tabs, and quotes around values that begin with %, @ or `"},
		"two documents":                     {fmt.Sprintf(edgeText, digest) + "---\na: b\n", "f:8:1: a second YAML document; want one document a file"},
		"a list":                            {"- a\n", "f:1:1: no map; want a map with callers"},
		"nobody":                            {"callers: []\n", "f:1:10: callers is no list, or an empty one; want a list with something in it"},
		"a stranger's key":                  {"callers:\n  - {nam: x}\n", `f:2:6: unknown key "nam"; want one of name, labels, tokens, certificates, verbs, domains`},
		"no name":                           {"callers:\n  - tokens: [" + digest + "]\n    verbs: [take]\n    domains: [d]\n", "f:2:5: name is missing; want a name for logs and metrics"},
		"a reserved name":                   {strings.Replace(caller("tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), "name: a", "name: other", 1), `f:2:11: name is "other"; want at most 64 letters, digits, dots, hyphens and underscores, and neither "other" nor "default"`},
		"a name again":                      {fmt.Sprintf(edgeText, digest) + "  - {name: edge, tokens: [" + digestOf(newToken) + "], verbs: [take], domains: [d]}\n", `f:7:12: a second caller is called "edge"; want a name of its own`},
		"no secrets":                        {caller("verbs: [take]", "domains: [d]"), "f:2:5: a caller without tokens and certificates; want tokens, SHA-256 digests, or certificates, names in them"},
		"a token itself":                    {caller("tokens: ["+oldToken+"]", "verbs: [take]", "domains: [d]"), "f:3:14: a token is no SHA-256 digest; want 64 hexadecimal digits: printf %s TOKEN | sha256sum"},
		"a token again":                     {caller("tokens: ["+digest+", "+digest+"]", "verbs: [take]", "domains: [d]"), "f:3:80: a token is there twice; want each token once"},
		"a wildcard":                        {caller(`certificates: ["*.internal"]`, "verbs: [take]", "domains: [d]"), `f:3:20: a certificate is "*.internal"; want a DNS name or a URI of its subject alternative names, without wildcards`},
		"a verb":                            {caller("tokens: ["+digest+"]", "verbs: [take, steal]", "domains: [d]"), `f:4:19: a verb is "steal"; want one of take, refund, settle, release, peek, admin-read, admin-change`},
		"no verbs":                          {caller("tokens: ["+digest+"]", "domains: [d]"), "f:2:5: verbs is missing; want one or several of take, refund, settle, release, peek, admin-read, admin-change"},
		"no domains":                        {caller("tokens: ["+digest+"]", "verbs: [take]"), `f:2:5: domains is missing; want a list of domains, or "*" for every one`},
		"an empty domain":                   {caller("tokens: ["+digest+"]", "verbs: [take]", `domains: [""]`), `f:5:15: a domain is empty; want a name, or "*" for every one`},
		"a list of lists":                   {caller("tokens: ["+digest+"]", "verbs: [[take]]", "domains: [d]"), "f:4:13: a verb is no text; want text"},
		"a key again":                       {caller("tokens: ["+digest+"]", "verbs: [take]", "verbs: [peek]", "domains: [d]"), `f:5:5: "verbs" again in the same map; want each key once`},
		"an alias":                          {caller("tokens: &t ["+digest+"]", "certificates: *t", "verbs: [take]", "domains: [d]"), "f:4:19: certificates is no list, or an empty one; want a list with something in it"},
		"too large":                         {strings.Repeat("#", MaxFile+1), "f:1:1: the file is too large; want at most 67108864 bytes"},
		"large in a form that needs memory": {"callers: [{name: a}" + strings.Repeat(" ", maxFile) + "]", "f:1:1: the file is too large for its form; want at most 65536 bytes, or each caller on lines of its own below callers:, as \"  - name: NAME\""},
		"labels":                            {caller("labels: {user: ann, team: web, cost_center: \"4711\"}", "tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), ""},
		"no labels":                         {caller("labels: {}", "tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), "f:3:13: labels is no map, or an empty or a long one; want a map of at most 8 keys to texts, such as {user: ann, team: web}"},
		"a reserved label":                  {caller("labels: {end_user: ann}", "tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), `f:3:14: a label is called "end_user"; want another name: every request has key, model, end_user already`},
		"a label's form":                    {caller("labels: {Team: web}", "tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), `f:3:14: a label is called "Team"; want at most 64 lower-case letters, digits and underscores, first a letter`},
		"a label of nothing":                {caller("labels: {team: }", "tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), `f:3:20: the label team is ""; want 1 … 256 bytes of text that can be printed`},
		"a label again":                     {caller("labels: {team: a, team: b}", "tokens: ["+digest+"]", "verbs: [take]", "domains: [d]"), "f:3:23: the label team again; want each label once"},
	} {
		set, err := Parse("f", []byte(test.text))
		if test.want == "" {
			if err != nil || set == nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var problems FileError
		if !errors.As(err, &problems) || !slices.Contains(strings.Split(err.Error(), "\n"), test.want) {
			t.Errorf("%s:\n got %v\nwant %s", name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), oldToken) {
			t.Errorf("%s: a token is repeated: %v", name, err)
		}
	}
}

// callersOf returns an authenticator of a file with that text, and the file's name.
func callersOf(t *testing.T, text string, seen *[]string) (*Authenticator, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := OpenFile(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets, _ := secretsOf(t, newToken)
	return New(Options{Listener: "http", File: file, Secrets: secrets, Requests: func(caller string, o Outcome) {
		if seen != nil {
			*seen = append(*seen, caller+" "+o.String())
		}
	}}), name
}

// TestMay: a caller may do what its file says, where it says, at once when it changes.
func TestMay(t *testing.T) {
	t.Parallel()
	var seen []string
	a, name := callersOf(t, fmt.Sprintf(edgeText, digestOf(oldToken)), &seen)
	edge, known := a.Authenticate(&Credentials{Token: oldToken, Shown: true})
	if !known || edge.Name() != "edge" {
		t.Fatal("the token is nobody's")
	}
	for _, test := range []struct {
		verbs  Verbs
		domain string
		want   string
	}{
		{Take, "edge", ""},
		{Take | Peek, "web", ""},
		{Take, "shop", `caller "edge" may not take in the domain "shop"`},
		{Take | Refund, "edge", `caller "edge" may not refund in the domain "edge"`},
		{Refund | Settle, "web", `caller "edge" may not refund, settle in the domain "web"`},
		{Take, AllDomains, `caller "edge" may not take in every domain`},
		{AdminRead, AllDomains, `caller "edge" may not admin-read in every domain`},
	} {
		err := edge.May(test.verbs, test.domain)
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("%s in %q: %v, want %q", test.verbs, test.domain, err, test.want)
		}
	}
	if got := strings.Join(seen, ","); strings.Count(got, "edge admitted") != 2 || strings.Count(got, "edge forbidden") != 5 {
		t.Errorf("counted %s", got)
	}
	change := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a.options.File.watched.reread()
	}
	change(strings.Replace(fmt.Sprintf(edgeText, digestOf(oldToken)), "[take, peek]", "[peek]", 1))
	if edge.May(Take, "edge") == nil || edge.May(Peek, "edge") != nil {
		t.Error("a verb that was taken away is still good")
	}
	change("callers: nonsense")
	if edge.May(Peek, "edge") != nil {
		t.Error("a wrong file took what was in force with it")
	}
	change(strings.Replace(fmt.Sprintf(edgeText, digestOf(oldToken)), "name: edge", "name: another", 1))
	if edge.May(Peek, "edge") == nil {
		t.Error("a caller that has left the file may go on")
	}
	if other, known := a.Authenticate(&Credentials{Token: newToken, Shown: true}); !known || other.Name() != "" || other.May(everything, AllDomains) != nil {
		t.Error("a caller with a token of the plain file may not do everything")
	}
	if (*Identity)(nil).May(everything, AllDomains) != nil {
		t.Error("where nobody is asked somebody may not do everything")
	}
}

// TestCertificates: a caller is known by a name of its certificate, unless it shows a
// token.
func TestCertificates(t *testing.T) {
	t.Parallel()
	a, _ := callersOf(t, fmt.Sprintf(edgeText, digestOf(oldToken)), nil)
	uri, err := url.Parse("spiffe://cluster/ns/edge")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		Credentials
		want bool
	}{
		"by DNS name":         {Credentials{Certificate: &x509.Certificate{DNSNames: []string{"else", "envoy.EDGE.internal"}}}, true},
		"by URI":              {Credentials{Certificate: &x509.Certificate{URIs: []*url.URL{uri}}}, true},
		"another name":        {Credentials{Certificate: &x509.Certificate{DNSNames: []string{"edge.internal"}}}, false},
		"a common name":       {Credentials{Certificate: new(x509.Certificate)}, false},
		"nothing":             {Credentials{}, false},
		"and a wrong token":   {Credentials{Token: "a-wrong-token-0123", Shown: true, Certificate: &x509.Certificate{URIs: []*url.URL{uri}}}, false},
		"a digest as a token": {Credentials{Token: digestOf(oldToken), Shown: true}, false},
		"as a user":           {Credentials{Token: oldToken, Shown: true, User: "edge"}, true},
		"as another user":     {Credentials{Token: oldToken, Shown: true, User: "web"}, false},
	} {
		if _, known := a.Authenticate(&test.Credentials); known != test.want {
			t.Errorf("%s: known %t", name, known)
		}
	}
}

func TestVerbsOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		request rules.Request
		want    Verbs
	}{
		{rules.Request{Cost: 1}, Take},
		{rules.Request{}, Peek},
		{rules.Request{UpTo: 3}, Take},
		{rules.Request{Kind: acts.KindRefund, Cost: 1}, Refund},
		{rules.Request{Each: []rules.Ask{{Cost: 1, Record: true}}}, Settle},
		{rules.Request{Kind: acts.KindSettle}, Settle},
		{rules.Request{Kind: acts.KindRecord, Cost: 1}, Settle},
		{rules.Request{Costs: map[string]int64{"output": 1}}, Take},
		{rules.Request{Cost: 1, Calls: []rules.Call{{}}}, Peek},
		{rules.Request{Calls: []rules.Call{{}, {Cost: 1}}}, Take},
		{rules.Request{Cost: 1, Descriptors: [][]rules.Entry{{}}, Calls: []rules.Call{{}}}, Take},
		{rules.Request{Kind: acts.KindRecord, Calls: []rules.Call{{Cost: 1}}}, Take},
		{rules.Request{Kind: acts.KindReset, Calls: []rules.Call{{}}}, Refund},
		{rules.Request{Cost: 1, Dry: true}, Peek},
		{rules.Request{Dry: true, Calls: []rules.Call{{Cost: 1}}}, Peek},
		{rules.Request{Kind: acts.KindRelease}, Release},
		{rules.Request{Kind: acts.KindRenew}, Release},
		{rules.Request{Each: []rules.Ask{{}}}, Peek},
		{rules.Request{Each: []rules.Ask{{Cost: 1}, {}, {Cost: 1, Refund: true}}}, Take | Peek | Refund},
	} {
		if got := verbsOf(&test.request); got != test.want {
			t.Errorf("%+v: %s, want %s", test.request, got, test.want)
		}
	}
}

// FuzzParse: whatever a file says, it is read within bounds, and no error repeats what
// stands where a token belongs.
func FuzzParse(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(edgeText, digestOf(oldToken))))
	f.Add([]byte("callers:\n  - tokens: [a-token-that-is-no-digest]\n"))
	f.Add([]byte("callers: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzztest.Within(t, 1<<20, 8*len(text), func() {
			set, err := Parse("f", text)
			if (set == nil) == (err == nil) {
				t.Errorf("%q: %v, %v", text, set, err)
			}
		})
	})
}
