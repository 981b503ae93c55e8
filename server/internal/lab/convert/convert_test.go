package convert

import (
	"os"
	"path/filepath"
	"regexp"
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
		"all is carried over":    {zone, "limit_req zone=z burst=2 nodelay;", ""},
		"no burst, no delay":     {zone, "limit_req zone=z;", ""},
		"delay":                  {zone, "limit_req zone=z burst=2;", ":4: limit_req zone=z burst=2: nginx delays"},
		"delay=":                 {zone, "limit_req zone=z burst=2 delay=1;", "nginx delays"},
		"unknown zone":           {zone, "limit_req zone=y;", "no limit_req_zone is called y"},
		"no zone":                {zone, "limit_req burst=2;", "zone= is missing"},
		"burst":                  {zone, "limit_req zone=z burst=x;", "burst=x: want 0 … 999999999"},
		"unknown word":           {zone, "limit_req zone=z fast;", "fast is not known"},
		"rate":                   {"limit_req_zone $host zone=z:1m rate=1r/h;", "", ":2: rate=1r/h: want"},
		"rate 0":                 {"limit_req_zone $host zone=z:1m rate=0r/s;", "", "rate=0r/s: want"},
		"zone twice":             {zone + zone, "limit_req zone=z;", "zone z again"},
		"zone without name":      {"limit_req_zone $host rate=1r/s;", "", "zone= is missing"},
		"zone with too little":   {"limit_req_zone $host;", "", "want a key, zone= and rate="},
		"zone of bytes":          {"limit_req_zone $host \"zone=\xff\" rate=1r/s;", "", "want at most 128 bytes of printable text"},
		"many variables":         {"limit_req_zone $a$b$c$d$e$f$g$h$i$j$k$l$m$n$o$p zone=z rate=1r/s;", "", ""},
		"status":                 {zone, "limit_req_status 200; limit_req zone=z;", "limit_req_status 200: want 400 … 599"},
		"log level":              {zone, "limit_req_log_level info; limit_req zone=z;", "limit_req_log_level"},
		"places":                 {zone, "limit_conn c 5; limit_req zone=z;", "limit_conn c 5: a sub-request ends"},
		"another auth_request":   {zone, "limit_req zone=z; location / { auth_request /login; }", ":4: location / of server without a name has the auth_request of"},
		"question is off":        {zone, "limit_req zone=z; location / { auth_request off; }", ""},
		"inherited auth_request": {zone, "auth_request /login; location / { limit_req zone=z; }", ":4: location / of server without a name has the auth_request of"},
		"one check of two":       {zone, "satisfy any; limit_req zone=z;", ":3: server without a name has satisfy any"},
		"two bursts":             {zone, "limit_req zone=z; location / { limit_req zone=z burst=3 nodelay; }", "zone z is used with several bursts"},
		"alone and not":          {zone + "limit_req_zone $remote_addr zone=y:1m rate=1r/s;", "limit_req zone=z; location / { limit_req zone=z; limit_req zone=y; }", ""},
		"two keys":               {zone + "limit_req_zone $host zone=y:1m rate=1r/s;", "limit_req zone=z; limit_req zone=y;", ""},
		"server and uri":         {"limit_req_zone $uri zone=z:1m rate=1r/s;", "limit_req zone=z; location / { }", ""},
		"break and uri":          {"limit_req_zone $uri zone=z:1m rate=1r/s;", "limit_req zone=z; location / { rewrite ^/a /b break; }", ":4: rewrite ^/a /b break: ends the rewrite directives before"},
		"map of uri":             {"map $uri $m { a b; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
		"map of a header":        {"map $http_a $m { a $http_b; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
		"binary address":         {"map $http_a $m { a $binary_remote_addr; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
		"binary assignment":      {"limit_req_zone $k zone=z:1m rate=1r/s;", "set $k $binary_remote_addr;", ":4: set $k $binary_remote_addr: no header can carry"},
		"deny":                   {zone, "limit_req zone=z; deny 192.0.2.1;", ":4: deny 192.0.2.1: nginx refuses such requests before"},
		"deny before allow":      {zone, "deny all; location / { allow all; limit_req zone=z; }", ""},
		"deny without a limit":   {zone, "location /a { deny all; } location / { limit_req zone=z; }", ""},
		"password":               {zone, "auth_basic shop; location / { limit_req zone=z; }", ":4: auth_basic shop: nginx refuses such requests before"},
		"no password":            {zone, "auth_basic shop; location / { auth_basic off; limit_req zone=z; }", ""},
		"methods":                {zone, "limit_req zone=z; location / { limit_except GET { deny all; } }", ":4: limit_except GET: nginx refuses"},
		"token":                  {zone, "auth_jwt shop; limit_req zone=z;", ":4: auth_jwt shop is not of nginx itself"},
		"another module":         {zone + "modsecurity on;", "limit_req zone=z;", ":2: modsecurity on is not of nginx itself"},
		"another module aside":   {zone, "location /a { modsecurity on; } location / { limit_req zone=z; }", ""},
		"page for 403":           {zone, "limit_req zone=z; error_page 403 /forbidden;", ""},
		"page for 401":           {zone, "limit_req zone=z; error_page 401 /login;", ":4: error_page 401 /login: Weir's refusals are 401"},
		"page and 401":           {zone, "limit_req zone=z; error_page 503 /slow; location / { return 401; }", ":4: return 401: its 401 gets the error_page"},
		"page and try_files":     {zone, "limit_req zone=z; error_page 503 /slow; location / { try_files /a =401; }", ":4: try_files /a =401: its 401"},
		"page inside if":         {zone, "location / { limit_req zone=z; if ($host) { error_page 404 /a; } }", ":4: if ($host): the error_page inside it"},
		"limit inside if":        {zone, "location / { if ($host) { limit_req zone=z; } }", ":4: limit_req zone=z is inside if ($host): nginx allows it"},
		"limit in limit_except":  {zone, "location / { limit_except GET { limit_req zone=z; } }", ":4: limit_req zone=z is inside limit_except GET"},
		"with a dry run":         {zone, "location /a { limit_req zone=z; limit_req_dry_run on; } location /b { limit_req zone=z; }", "zone z is used with and without limit_req_dry_run"},
		"counted page":           {zone, "limit_req zone=z; error_page 404 /none; location / { return 404; } location /none { }", ":4: error_page 404 /none: a request that was not counted before is counted in location /none"},
		"counted pattern":        {zone, "location / { error_page 404 /none; } location ~ (?<!a)none$ { limit_req zone=z; }", "is counted in location ~ (?<!a)none$"},
		"counted ^~":             {zone, "location / { error_page 404 /none/a; } location ^~ /none { } location ~ none { limit_req zone=z; }", ""},
		"counted again":          {zone, "limit_req zone=z; if ($http_a) { return 404; } error_page 404 /none;", ""},
		"counted by path":        {zone, "limit_req zone=z; if ($uri = /a) { return 404; } error_page 404 /none;", ":4: error_page 404 /none"},
		"counted once":           {zone, "limit_req zone=z; error_page 502 /down;", ""},
		"sub-requests":           {zone, "location / { mirror /copy; } location /copy { limit_req zone=z; }", ":4: mirror /copy: nginx counts its sub-requests in location /copy"},
		"sub-requests aside":     {zone, "location / { mirror /copy; } location /copy { } location /a { limit_req zone=z; }", ""},
		"includes":               {zone, "location / { ssi on; } location /a { limit_req zone=z; }", ":4: ssi on: nginx counts its sub-requests in location /a"},
		"no includes":            {zone, "ssi off; location /a { limit_req zone=z; }", ""},
		"terminal":               {"limit_req_zone $host zone=\x1b[31m:1m rate=1r/s;", "", `zone="\x1b[31m"`},
		"terminal, unknown":      {zone, "limit_req zone=\x1b[31m;", `no limit_req_zone is called \x1b[31m`},
		"geo":                    {"geo $m { default 1; } limit_req_zone $m zone=z:1m rate=1r/s;", "limit_req zone=z;", ""},
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

// TestNames wants a name of its own for each rule, which clients see in RateLimit.
func TestNames(t *testing.T) {
	t.Parallel()
	main := write(t, map[string]string{"nginx.conf": around("limit_req_zone $host zone=z:1m rate=1r/s;",
		"limit_req zone=z; location /a { limit_req zone=z burst=2; } location /b { limit_req_dry_run on; limit_req zone=z; }")})
	result, err := NGINX("d", main)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`name: (.*)}`).FindAllSubmatch(result.Rules, -1) {
		names = append(names, string(m[1]))
	}
	if diff := cmp.Diff([]string{"z_burst0", "z_burst2", "z_burst0+dry_run"}, names); diff != "" {
		t.Errorf("%s\n%s", diff, result.Rules)
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
