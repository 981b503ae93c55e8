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
		`d   a=b\ c`:            {{{Key: "a", Value: "b c"}}},
		`d a=b c=d , e=f;g=h `:  {{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}, {Key: "e", Value: "f"}}, {{Key: "g", Value: "h"}}},
		`d a= b=c ; d=e`:        {{{Key: "a"}, {Key: "b", Value: "c"}}, {{Key: "d", Value: "e"}}},
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
		`d\n a=b`: "behind a backslash", `d a=b c`: `is "c": want key=value`,
	} {
		if _, err := parseRequest(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestParseKey: a key is written like a request, or with an argument for each entry.
func TestParseKey(t *testing.T) {
	t.Parallel()
	want := []rules.Entry{{Key: "user", Value: "4 2"}, {Key: "path", Value: "/a,b"}}
	for _, args := range [][]string{
		{"shop", `user=4 2,path=/a\,b`}, {"shop", "user=4 2", `path=/a\,b`}, {`shop user=4\ 2,path=/a\,b`}, {`shop user=4\ 2 path=/a\,b`},
	} {
		domain, entries, err := parseKey(args)
		if diff := cmp.Diff(want, entries); err != nil || domain != "shop" || diff != "" {
			t.Errorf("%q: domain %q, %v, %s", args, domain, err, diff)
		}
	}
	if domain, entries, err := parseKey([]string{"shop"}); err != nil || domain != "shop" || entries != nil {
		t.Errorf("a domain alone: %q, %v, %v", domain, entries, err)
	}
	for _, args := range [][]string{{"shop", "user"}, {"shop", "path=/a,b"}, {"shop", "user=1;path=/"}, {"shop user=1;path=/"}, {"shop user"}} {
		if _, _, err := parseKey(args); err == nil {
			t.Errorf("%q is accepted", args)
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
