package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/rules"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	type entries = []rules.Entry
	for text, want := range map[string][]entries{
		`d a=b`:                 {{{Key: "a", Value: "b"}}},
		`d a=b,c=d`:             {{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}}},
		`d a=b; c=d;e=`:         {{{Key: "a", Value: "b"}}, {{Key: "c", Value: "d"}}, {{Key: "e"}}},
		`d   a=b c`:             {{{Key: "a", Value: "b c"}}},
		`d q=x=1,r==`:           {{{Key: "q", Value: "x=1"}, {Key: "r", Value: "="}}},
		`d a\=b=c\,d\;e\\f\=\ `: {{{Key: "a=b", Value: `c,d;e\f= `}}},
		`d \ a=b`:               {{{Key: " a", Value: "b"}}},
		"d a=ö\n":               {{{Key: "a", Value: "ö\n"}}},
	} {
		req, err := parseRequest(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, req.Descriptors); diff != "" || req.Domain != "d" {
			t.Errorf("%s: domain %q, %s", text, req.Domain, diff)
		}
	}
	if req, err := parseRequest(`my\ shop a=b`); err != nil || req.Domain != "my shop" {
		t.Errorf("an escaped domain: %+v, %v", req, err)
	}
	for text, want := range map[string]string{
		``: "want key=value", `d`: "want key=value", `d a`: `is "a": want key=value`, `d a=b,`: "want key=value",
		`d a=b;`: "want key=value", `d =b`: `is "=b"`, `d a=b,,c=d`: `is ",c=d"`, `d a=\n`: "behind a backslash", `d a=\`: "behind a backslash",
		`d\n a=b`: "behind a backslash",
	} {
		if _, err := parseRequest(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzParseRequest wants what was escaped to come back.
func FuzzParseRequest(f *testing.F) {
	f.Add("shop", "user", "a,b=c;d\\e f")
	f.Fuzz(func(t *testing.T, domain, key, value string) {
		key = "k" + key // an entry has one
		escape := strings.NewReplacer(" ", `\ `, ",", `\,`, ";", `\;`, "=", `\=`, `\`, `\\`).Replace
		want := [][]rules.Entry{{{Key: key, Value: value}}, {{Key: key, Value: value}, {Key: key, Value: value}}}
		entry := escape(key) + "=" + escape(value)
		req, err := parseRequest(escape(domain) + " " + entry + "; " + entry + "," + entry)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, req.Descriptors); diff != "" || req.Domain != domain {
			t.Fatalf("domain %q, %s", req.Domain, diff)
		}
	})
}
