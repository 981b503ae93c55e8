package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testserver"
)

// A conversion is a configuration of nginx, and requests that are answered
// alike by its limit_req and by the rules that they are converted to. Rates are
// so low that nothing comes back during a test.
type conversion struct {
	zones, server string
	requests      []string // paths, with the value of X-Api-Key behind a space
}

var conversions = map[string]conversion{
	"no burst": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;",
		"limit_req zone=z;",
		times(4, "/"),
	},
	"burst": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=2r/m;",
		"limit_req zone=z burst=5 nodelay;",
		times(12, "/"),
	},
	"delayed": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;",
		"limit_req zone=z burst=5;",
		times(12, "/"),
	},
	"delayed later": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;",
		"limit_req zone=z burst=7 delay=3;",
		times(12, "/"),
	},
	"status": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m; limit_req_status 429;",
		"limit_req zone=z burst=1 nodelay;",
		times(4, "/"),
	},
	"keys, some empty": {
		"limit_req_zone $http_x_api_key zone=z:1m rate=1r/m;",
		"limit_req zone=z burst=1 nodelay;",
		[]string{"/ a", "/ b", "/ a", "/ a", "/", "/", "/", "/", "/ b", "/ b", "/ a"},
	},
	"exempt by map": {
		`limit_req_zone $limited zone=z:1m rate=1r/m; map $http_x_api_key $limited { default $http_x_api_key; "~^free" ""; }`,
		"limit_req zone=z;",
		[]string{"/ a", "/ a", "/ free", "/ free", "/ b", "/ b"},
	},
	"two of one key": {
		"limit_req_zone $binary_remote_addr zone=short:1m rate=1r/m; limit_req_zone $remote_addr zone=long:1m rate=3r/m;",
		"limit_req zone=long burst=6 nodelay;\nlimit_req zone=short burst=3 nodelay;",
		times(10, "/"),
	},
	"pages of hosts": {
		"limit_req_zone $host$uri zone=z:1m rate=1r/m;",
		"location /pages { proxy_pass http://app;\nlimit_req zone=z burst=1 nodelay;\n}",
		[]string{"/pages/1", "/pages/1", "/pages/1", "/pages/2", "/pages/2", "/pages/2", "/pages/1", "/free", "/free", "/free"},
	},
	"redirected inside": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;",
		"limit_req zone=z burst=3 nodelay;\nlocation /files { try_files /none @app; }\nlocation @app { proxy_pass http://app; }",
		times(6, "/files"),
	},
	"inherited, and not": {
		"limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m; limit_req_zone $binary_remote_addr zone=y:1m rate=1r/m;",
		"limit_req zone=z burst=1 nodelay;\nlocation /a { proxy_pass http://app; }\nlocation /b { proxy_pass http://app;\nlimit_req zone=y burst=2 nodelay;\n}",
		[]string{"/", "/a", "/a", "/", "/b", "/b", "/b", "/b", "/a"},
	},
}

func times(n int, path string) []string {
	return strings.Split(strings.Repeat(path+"\n", n-1)+path, "\n")
}

// TestConvert sends the same requests to nginx with limit_req, and to nginx that
// asks Weir with what the configuration was converted to.
func TestConvert(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	for name, c := range conversions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newApplication(t)
			// A dry run says what nginx would do, without its delays.
			watched := c.start(t, program, c.text(app.addr, "limit_req_dry_run on; add_header X-Limit $limit_req_status always;"))
			want := c.answers(t, watched, func(r response) bool { return r.header.Get("X-Limit") != "REJECTED_DRY_RUN" })

			converted := t.TempDir()
			text := c.text(app.addr, "")
			convert(t, converted, text)
			w := serve(t, filepath.Join(converted, "rules.yaml"), "memory")
			asking := c.start(t, program, replaced(t, converted, text, w.addr))
			got := c.answers(t, asking, func(r response) bool { return r.status == http.StatusOK })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("limit_req (-) and Weir (+) let through:\n%s", diff)
			}
			if !strings.Contains(want, "0") || !strings.Contains(want, "1") {
				t.Errorf("limit_req lets through %s, which proves nothing", want)
			}
		})
	}
}

// TestConvertedStatus wants a refusal by Weir to have the status of limit_req's.
func TestConvertedStatus(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	c := conversions["status"]
	app := newApplication(t)
	converted := t.TempDir()
	text := c.text(app.addr, "")
	convert(t, converted, text)
	w := serve(t, filepath.Join(converted, "rules.yaml"), "memory")
	for name, url := range map[string]string{
		"limit_req": c.start(t, program, text),
		"Weir":      c.start(t, program, replaced(t, converted, text, w.addr)),
	} {
		got := c.answers(t, url, func(r response) bool {
			if r.status != http.StatusOK && r.status != http.StatusTooManyRequests {
				t.Errorf("%s: status %d", name, r.status)
			}
			return r.status == http.StatusOK
		})
		if got != "1100" {
			t.Errorf("%s lets through %s", name, got)
		}
	}
}

// text is the configuration, with more in http.
func (c *conversion) text(app, more string) string {
	return fmt.Sprintf(`pid nginx.pid;
error_log error.log warn;
events {}
http {
access_log off;
client_body_temp_path body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
upstream app { server %s; }
%s
%s
server {
listen ADDRESS;
%s
location / { proxy_pass http://app; }
}
}
`, app, more, c.zones, c.server)
}

// start runs nginx and returns its URL.
func (c *conversion) start(t *testing.T, program, conf string) string {
	t.Helper()
	prefix, addr := t.TempDir(), freeAddr(t)
	path := filepath.Join(prefix, "nginx.conf")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(conf, "ADDRESS", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, program, "-p", prefix, "-c", path, "-e", "error.log", "-g", "daemon off;")
	t.Cleanup(func() { showLog(t, filepath.Join(prefix, "error.log")) })
	await(t, p, addr)
	return "http://" + addr
}

// answers sends the requests and returns a 1 for each that passed, and a 0.
func (c *conversion) answers(t *testing.T, url string, passed func(response) bool) string {
	t.Helper()
	client := newClient(t)
	var b strings.Builder
	for _, request := range c.requests {
		path, key, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("X-Api-Key", key)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if passed(response{status: resp.StatusCode, header: resp.Header}) {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	return b.String()
}

// convert writes rules.yaml and weir.conf into a folder.
func convert(t *testing.T, folder, conf string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "convert", "nginx.conf", "--output", "rules.yaml", "--nginx", "weir.conf")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	// 1 says that something is not quite the same, as delays are.
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("weir convert: %v\n%s", err, out)
	}
	t.Logf("weir convert says:\n%s", out)
}

var inPlace = regexp.MustCompile(`(?m)^# In .*, for the limit_req at (.*):\n#\n((?:#   .*\n?)+)`)

// replaced does with a configuration what weir.conf says.
func replaced(t *testing.T, folder, conf, weirAddr string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "weir.conf"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(conf, "\n")
	for _, m := range inPlace.FindAllStringSubmatch(string(text), -1) {
		for i, place := range strings.Split(m[1], ", ") {
			number, err := strconv.Atoi(strings.TrimPrefix(place, "nginx.conf:"))
			if err != nil || !strings.HasPrefix(lines[number-1], "limit_req ") {
				t.Fatalf("%s is no limit_req: %v", place, err)
			}
			lines[number-1] = ""
			if i == 0 {
				lines[number-1] = strings.ReplaceAll(m[2], "#   ", "")
			}
		}
	}
	// On a busy machine a question may take longer, and one that is given up
	// would spoil the count.
	servers := strings.ReplaceAll(string(text), "_timeout 1s;", "_timeout 10s;")
	conf = strings.Join(lines, "\n")
	conf = strings.Replace(conf, "upstream app", "upstream weir { server "+weirAddr+"; keepalive 32; }\nupstream app", 1)
	return strings.Replace(conf, "listen ADDRESS;", "listen ADDRESS;\n"+servers, 1)
}
