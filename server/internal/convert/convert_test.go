package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/rules"
)

// flat is directives as nested lists of words.
func flat(list []directive) []any {
	var all []any
	for _, d := range list {
		all = append(all, strings.Join(d.words, "|"))
		if d.block != nil {
			all = append(all, flat(d.block))
		}
	}
	return all
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]any{
		"":                           nil,
		"# a;\n  # b":                nil,
		"a;":                         {"a"},
		"a b\tc\n d;e;":              {"a|b|c|d", "e"},
		"a # x;\n b;":                {"a|b"},
		"a b#c;":                     {"a|b#c"},
		`a "b c" 'd;e{}' "";`:        {"a|b c|d;e{}|"},
		`a "q\"q" 'q\'q' \\ x\.y\;;`: {`a|q"q|q'q|\|x\.y\;`},
		`a x\.y \"z\" "t\tt";`:       {"a|x\\.y|\"z\"|t\tt"},
		"a { b { c; } d; } e;":       {"a", []any{"b", []any{"c"}, "d"}, "e"},
		"a ${b}c{ d; }":              {"a|${b}c", []any{"d"}},
		"location ~ ^/x{2;} b;":      {"location|~|^/x", []any{"2"}, "b"},
		"\ufeffa;\r\nb;":             {"a", "b"},
		"rewrite_by_lua_block { local t = {1} } b;": {"rewrite_by_lua_block", "b"},
	} {
		list, err := parse("f", text)
		if diff := cmp.Diff(want, flat(list)); diff != "" || err != nil {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for text, want := range map[string]string{
		"a":                       `f:1: not nginx's: the file ends within a directive; want ";"`,
		"a;\nb {":                 `f:2: not nginx's: the file ends within a block; want "}"`,
		"a; }":                    `f:1: not nginx's: a "}" too many`,
		"a\n}":                    `f:2: not nginx's: "}" within a directive; want ";"`,
		"\n;":                     `f:2: not nginx's: ';' without a directive`,
		"{ a; }":                  `'{' without a directive`,
		"\na \"b\n\nc":            `f:2: not nginx's: a quote that nothing closes`,
		`a b\;`:                   `the file ends within a directive`,
		"x_by_lua_block {":        `the file ends within a block`,
		strings.Repeat("a {", 99): "blocks nest too deep",
	} {
		if _, err := parse("f", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"$binary_remote_addr":             {"remote_addr"},
		"$host$uri":                       {"host", "uri"},
		"${host}s-$arg_a.x":               {"host", "arg_a"},
		"$remote_addr$binary_remote_addr": {"remote_addr"},
		"constant":                        nil,
		"$1$":                             {"1"},
	} {
		if diff := cmp.Diff(want, newKey(text).variables); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		name = filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "nginx.conf")
}

// TestInclude wants included files found from the main file's folder on, in the
// order of their names, wherever they are included.
func TestInclude(t *testing.T) {
	t.Parallel()
	main := write(t, map[string]string{
		"nginx.conf":    "include conf.d/*.conf; include none/*.conf; z;",
		"conf.d/b.conf": "b;",
		"conf.d/a.conf": "a { include more.inc; }",
		"more.inc":      "more;",
	})
	list, err := read(main)
	if diff := cmp.Diff([]any{"a", []any{"more"}, "b", "z"}, flat(list)); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for text, want := range map[string]string{
		"include nginx.conf;": "nginx.conf includes itself",
		"include away.conf;":  "away.conf: no such file",
		"include [;":          "syntax error in pattern",
		"include .;":          "is a directory",
	} {
		if _, err := read(write(t, map[string]string{"nginx.conf": text})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// around is a configuration with the lines of a server.
func around(zones, server string) string {
	return "http {\n" + zones + "\nserver {\n" + server + "\n}\n}"
}

// TestLost wants to be told of everything that is not carried over.
func TestLost(t *testing.T) {
	t.Parallel()
	const zone = "limit_req_zone $remote_addr zone=z:1m rate=1r/s;"
	for name, c := range map[string]struct{ zones, server, want string }{
		"all is carried over":  {zone, "limit_req zone=z burst=2 nodelay;", ""},
		"no burst, no delay":   {zone, "limit_req zone=z;", ""},
		"delay":                {zone, "limit_req zone=z burst=2;", ":4: limit_req zone=z burst=2: nginx delays"},
		"delay=":               {zone, "limit_req zone=z burst=2 delay=1;", "nginx delays"},
		"unknown zone":         {zone, "limit_req zone=y;", "no limit_req_zone is called y"},
		"no zone":              {zone, "limit_req burst=2;", "zone= is missing"},
		"burst":                {zone, "limit_req zone=z burst=x;", "burst=x: want 0 … 999999999"},
		"unknown word":         {zone, "limit_req zone=z fast;", "fast is not known"},
		"rate":                 {"limit_req_zone $host zone=z:1m rate=1r/h;", "", ":2: rate=1r/h: want"},
		"rate 0":               {"limit_req_zone $host zone=z:1m rate=0r/s;", "", "rate=0r/s: want"},
		"zone twice":           {zone + zone, "limit_req zone=z;", "zone z again"},
		"zone without name":    {"limit_req_zone $host rate=1r/s;", "", "zone= is missing"},
		"zone with too little": {"limit_req_zone $host;", "", "want a key, zone= and rate="},
		"zone of bytes":        {"limit_req_zone $host \"zone=\xff\" rate=1r/s;", "", "want at most 128 bytes of printable text"},
		"many variables":       {"limit_req_zone $a$b$c$d$e$f$g$h$i$j$k$l$m$n$o$p zone=z rate=1r/s;", "", ""},
		"status":               {zone, "limit_req_status 200; limit_req zone=z;", "limit_req_status 200: want 400 … 599"},
		"log level":            {zone, "limit_req_log_level info; limit_req zone=z;", "limit_req_log_level"},
		"places":               {zone, "limit_conn c 5; limit_req zone=z;", "limit_conn c 5: a sub-request ends"},
		"another auth_request": {zone, "limit_req zone=z; location / { auth_request /login; }", ":4: location / of server without a name has an auth_request of its own"},
		"question is off":      {zone, "limit_req zone=z; location / { auth_request off; }", ""},
		"one check of two":     {zone, "satisfy any; limit_req zone=z;", ":3: server without a name has satisfy any"},
		"two bursts":           {zone, "limit_req zone=z; location / { limit_req zone=z burst=3 nodelay; }", "zone z is used with several bursts"},
		"alone and not":        {zone + "limit_req_zone $remote_addr zone=y:1m rate=1r/s;", "limit_req zone=z; location / { limit_req zone=z; limit_req zone=y; }", ""},
		"two keys":             {zone + "limit_req_zone $host zone=y:1m rate=1r/s;", "limit_req zone=z; limit_req zone=y;", ""},
		"server and uri":       {"limit_req_zone $uri zone=z:1m rate=1r/s;", "limit_req zone=z;", "$uri changes in a sub-request"},
		"map of uri":           {"map $uri $m { a b; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", "$m changes in a sub-request"},
		"map of a header":      {"map $http_a $m { a $http_b; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
		"binary address":       {"map $http_a $m { a $binary_remote_addr; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
		"binary assignment":    {"limit_req_zone $k zone=z:1m rate=1r/s;", "set $k $binary_remote_addr;", ":4: set $k $binary_remote_addr: no header can carry"},
		"deny":                 {zone, "limit_req zone=z; deny 192.0.2.1;", ":3: server without a name has deny"},
		"page for 403":         {zone, "limit_req zone=z; error_page 403 /forbidden;", "has an error_page for 403"},
		"geo":                  {"geo $m { default 1; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			main := write(t, map[string]string{"nginx.conf": around(c.zones, c.server)})
			result, err := NGINX("d", main)
			if err != nil {
				t.Fatal(err)
			}
			var lost []string
			for _, loss := range result.Lost {
				lost = append(lost, loss.String())
			}
			got := strings.Join(lost, "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("lost %q, want %q", got, c.want)
			}
			if _, err := rules.Parse("rules", result.Rules); err != nil {
				t.Errorf("%s\n%v", result.Rules, err)
			}
		})
	}
}

// FuzzNGINX wants any text to become good rules, or an error.
func FuzzNGINX(f *testing.F) {
	f.Add("http { limit_req_zone $a zone=z:1m rate=5r/m; server { server_name s; limit_req zone=z burst=3 nodelay; } }")
	f.Add("limit_req_zone \"$a${b}\xff\" \"zone=y\x00\" rate=5r/s sync; server { location \"/\n\" { limit_req_dry_run on; limit_req \"zone=y\x00\"; } }")
	f.Add("limit_req_zone k zone=no rate=1r/s; limit_req_zone k zone=z rate=1r/s; server { limit_req zone=no; limit_req zone=z; }")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse("nginx.conf", text)
		if err != nil {
			return
		}
		got := convert("d", list)
		if _, err := rules.Parse("rules", got.Rules); err != nil {
			t.Fatalf("%s\n%s\n%v", text, got.Rules, err)
		}
		if _, err := parse("weir.conf", string(got.Servers)); err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
	})
}
