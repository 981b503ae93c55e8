package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A conversion is an nginx configuration, and requests that it has to answer as before
// once it asks Weir. Rates are so low that nothing refills during a test.
type conversion struct {
	files    map[string]string // nginx.conf and what it includes
	nginx    string            // the part of nginx that asks Weir
	requests []request
	// lost are the lines that convert has to name, and no others.
	lost []string
	// differs says that the answers are others for one of the lost lines.
	differs bool
	// verdictsOnly says that nginx delays requests: a dry run tells which it would refuse.
	verdictsOnly bool
}

type request struct {
	path, method, host string
	header             http.Header
	body               int // bytes
}

// readConversion reads an archive. Lines of its comment that start with a number are
// requests: how many, the path, and the fields of readRequest. Those that start with
// "lost" have a line of a file, "answers differ" says that such a line changes answers.
func readConversion(t *testing.T, file string) *conversion {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	comment := string(archive.Comment)
	c := &conversion{files: map[string]string{}, verdictsOnly: strings.Contains(comment, "verdicts only"), differs: strings.Contains(comment, "\nanswers differ\n")}
	for _, f := range archive.Files {
		c.files[f.Name] = string(f.Data)
	}
	for line := range strings.Lines(comment) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if fields[0] == "lost" {
			c.lost = append(c.lost, fields[1])
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		c.requests = append(c.requests, slices.Repeat([]request{readRequest(t, fields[1:])}, n)...)
	}
	return c
}

func readRequest(t *testing.T, fields []string) request {
	t.Helper()
	r := request{path: fields[0], method: http.MethodGet, header: http.Header{"X-Client": {"192.0.2.1"}}}
	names := map[string]string{"from": "X-Client", "key": "X-Api-Key", "agent": "User-Agent", "cookie": "Cookie", "referer": "Referer"}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		number, _ := strconv.Atoi(value)
		switch {
		case name == "method":
			r.method = value
		case name == "host":
			r.host = value
		case name == "password":
			r.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("ann:"+value)))
		case name == "body":
			r.body = number
		case name == "headers": // KiB
			for i := range number / 4 {
				r.header.Set(fmt.Sprint("X-Large-", i), strings.Repeat("x", 4<<10-100))
			}
		case names[name] != "":
			r.header.Set(names[name], value)
		default:
			t.Fatalf("%s is no part of a request", field)
		}
	}
	return r
}

// TestConvert sends the same requests to nginx with limit_req and to nginx that asks Weir
// with the converted configuration. The answers are the same, unless convert named the line
// that changes them. Without Weir, and with one that answers neither yes nor no, they are
// those of a dry run.
func TestConvert(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	files, err := filepath.Glob("../../lab/convert/testdata/nginx/*.txtar")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d configurations, %v", len(files), err)
	}
	recipes, folder := map[string]*conversion{}, t.TempDir()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		recipes[name] = readConversion(t, file)
		recipes[name].convert(t, name, filepath.Join(folder, name+".yaml"))
	}
	app, asked := newApplication(t), newSwitched(t, serve(t, folder, "memory"))
	for name, c := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := statusAndBody
			if c.verdictsOnly {
				seen = verdict
			}
			dry := startConfigured(t, program, c.files, app.addr, "limit_req_dry_run on; add_header X-Limit $limit_req_status always; ")
			want := c.answers(t, dry, seen)
			unlimited := want
			if c.verdictsOnly {
				unlimited = c.answers(t, dry, statusAndBody)
			} else {
				want = c.answers(t, startConfigured(t, program, c.files, app.addr, ""), seen)
			}
			t.Logf("limit_req answers %q", want)

			asking := startConfigured(t, program, c.replaced(t, asked.addr), app.addr, "")
			told := 0
			got := c.answers(t, asking, func(r response) string {
				if r.header.Get("Retry-After") != "" {
					told++
				}
				return seen(r)
			})
			if refused := !slices.Equal(want, unlimited) && !strings.Contains(c.files["nginx.conf"], "error_page"); refused && c.nginx != "" && !c.differs && told == 0 {
				t.Error("no refusal has a Retry-After")
			}
			switch diff := cmp.Diff(want, got); {
			case c.differs && diff == "":
				t.Error("the answers are the same")
			case !c.differs && diff != "":
				t.Errorf("limit_req (-) and Weir (+) answer:\n%s", diff)
			}
			asked.off.Store(name, true)
			kept := c.nginx == "" || strings.Contains(c.nginx, "\n#   limit_req ") // in nginx
			if got := c.answers(t, asking, statusAndBody); !kept && !c.differs {
				if diff := cmp.Diff(unlimited, got); diff != "" {
					t.Errorf("a dry run (-) and nginx without Weir's decisions (+):\n%s", diff)
				}
			}
		})
	}
}

// A switched server passes sub-requests on to Weir. For a domain that is off it answers
// them with all that a Weir answers that is configured otherwise, or ends their connections.
type switched struct {
	addr string
	off  sync.Map // by domain
}

func newSwitched(t *testing.T, w *weir) *switched {
	statuses := []int{401, 403, 404, 405, 409, 413, 421, 500, 502, 503, 504, 0}
	var (
		s switched
		n atomic.Int64
	)
	address, err := url.Parse(w.url())
	if err != nil {
		t.Fatal(err)
	}
	weir := httputil.NewSingleHostReverseProxy(address)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, off := s.off.Load(r.URL.Query().Get("domain")); !off {
			weir.ServeHTTP(w, r)
			return
		}
		status := statuses[int(n.Add(1))%len(statuses)]
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	s.addr = server.Listener.Addr().String()
	return &s
}

func statusAndBody(r response) string { return fmt.Sprint(r.status, " ", r.body) }

func verdict(r response) string {
	if r.status != http.StatusOK || r.header.Get("X-Limit") == "REJECTED_DRY_RUN" {
		return "refused"
	}
	return "granted"
}

// around is put into http on its first line, so that lines keep their numbers.
const around = `http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; ` +
	`uwsgi_temp_path uwsgi; scgi_temp_path scgi; set_real_ip_from 127.0.0.1; real_ip_header X-Client; upstream app { server APP; } `

// startConfigured runs nginx with a configuration, and more directives in http, and returns its URL.
func startConfigured(t *testing.T, program string, files map[string]string, app, more string) string {
	t.Helper()
	prefix, listener := t.TempDir(), listenForNginx(t)
	addr := listener.Addr().String()
	for name, text := range files {
		writeTo(t, filepath.Join(prefix, name), strings.ReplaceAll(text, "listen 8000;", "listen "+addr+";"))
	}
	conf := strings.ReplaceAll(files["nginx.conf"], "listen 8000;", "listen "+addr+";")
	conf = "pid nginx.pid; error_log error.log warn; events {} " + strings.Replace(conf, "http {", strings.ReplaceAll(around, "APP", app)+more, 1)
	if os.Geteuid() == 0 { // others cannot read the folders of tests
		conf = "user root; " + conf
	}
	runNginx(t, program, prefix, listener, conf)
	return "http://" + addr
}

func writeTo(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// answers sends the requests and returns what is seen of each answer.
func (c *conversion) answers(t *testing.T, url string, seen func(response) string) []string {
	t.Helper()
	client := newClient(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var all []string
	for _, r := range c.requests {
		var content io.Reader = http.NoBody
		if r.body > 0 {
			content = strings.NewReader(strings.Repeat("x", r.body))
		}
		req, err := http.NewRequestWithContext(t.Context(), r.method, url+r.path, content)
		if err != nil {
			t.Fatal(err)
		}
		req.Header, req.Host = r.header, r.host
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		// nginx writes pages of its own for statuses without one.
		text := string(body)
		if strings.HasPrefix(text, "<html>") {
			text = "nginx's page"
		}
		all = append(all, seen(response{status: resp.StatusCode, header: resp.Header, body: text}))
	}
	return all
}

// convert writes the rules, and keeps nginx's part.
func (c *conversion) convert(t *testing.T, domain, rules string) {
	t.Helper()
	path := binary(t)
	folder := t.TempDir()
	for name, text := range c.files {
		writeTo(t, filepath.Join(folder, name), text)
	}
	cmd := exec.Command(path, "convert", "nginx.conf", "--domain", domain, "--output", rules, "--nginx", "weir.conf")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, m := range regexp.MustCompile(`(?m)^(\S+:\d+): `).FindAllStringSubmatch(string(out), -1) {
		lost = append(lost, m[1])
	}
	if diff := cmp.Diff(c.lost, slices.Compact(lost)); diff != "" || (code == 1) != (len(c.lost) > 0) || code > 1 {
		t.Errorf("convert of %s exits with %d and names other lines than those lost (-):\n%s\n%s", domain, code, diff, out)
	}
	text, err := os.ReadFile(filepath.Join(folder, "weir.conf"))
	if err != nil {
		t.Fatal(err)
	}
	c.nginx = strings.TrimSpace(string(text))
}

var (
	inHTTP  = regexp.MustCompile(`^# .*\n((?:#.*\n)+?)#\n# Then`)
	inPlace = regexp.MustCompile(`(?m)^# At the end of .* \((\S+:\d+)\), for the limit_req at (.*):\n#\n((?:#   .*\n?)+)`)
	places  = regexp.MustCompile(`[^ ,]+:\d+`)
)

// replaced does with the configuration what nginx's part says.
func (c *conversion) replaced(t *testing.T, weirAddr string) map[string]string {
	t.Helper()
	if c.nginx == "" { // no limit was converted
		return c.files
	}
	// On a busy machine an answer may take longer, and a request that passes without one
	// would spoil the count.
	text := strings.ReplaceAll(c.nginx, "_timeout 1s;", "_timeout 10s;")
	lines := map[string][]string{}
	for name, text := range c.files {
		lines[name] = strings.Split(text, "\n")
	}
	at := func(place string) *string {
		file, number, _ := strings.Cut(place, ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		return &lines[file][n-1]
	}
	// The ends of the blocks come first, while all lines have their numbers.
	for _, m := range inPlace.FindAllStringSubmatch(text, -1) {
		last := at(endOf(t, lines, m[1]))
		brace := strings.LastIndexByte(*last, '}')
		*last = (*last)[:brace] + "\n" + strings.ReplaceAll(m[3], "#   ", "") + (*last)[brace:]
		for _, place := range places.FindAllString(m[2], -1) {
			line := at(place)
			if strings.HasPrefix(strings.TrimSpace(*line), "limit_req ") || strings.HasPrefix(strings.TrimSpace(*line), "auth_request off") {
				*line = ""
			} else if *line != "" {
				t.Fatalf("%s is no limit_req: %s", place, *line)
			}
		}
	}
	files := map[string]string{"weir.conf": text}
	http := strings.ReplaceAll(strings.ReplaceAll(inHTTP.FindStringSubmatch(text)[1], "#   ", ""), "\n#\n", "\n")
	http = strings.Replace(strings.TrimPrefix(http, "#\n"), "127.0.0.1:8080", weirAddr, 1)
	for name, all := range lines {
		files[name] = regexp.MustCompile(`(?m)^(\s*)server \{`).ReplaceAllString(strings.Join(all, "\n"), "${1}server { include weir.conf;")
	}
	end := strings.LastIndexByte(files["nginx.conf"], '}')
	files["nginx.conf"] = files["nginx.conf"][:end] + http + "}\n"
	return files
}

// endOf returns the place of the line with the brace that ends a block. Blocks of the
// recipes end on lines of their own.
func endOf(t *testing.T, lines map[string][]string, place string) string {
	t.Helper()
	file, number, _ := strings.Cut(place, ":")
	n, err := strconv.Atoi(number)
	if err != nil || !strings.Contains(lines[file][n-1], "{") {
		t.Fatalf("%s starts no block: %v", place, err)
	}
	for depth, i := 0, n-1; i < len(lines[file]); i++ {
		if depth += strings.Count(lines[file][i], "{") - strings.Count(lines[file][i], "}"); depth == 0 {
			return fmt.Sprint(file, ":", i+1)
		}
	}
	t.Fatalf("%s does not end", place)
	return ""
}

// TestConvertReplay runs the commands that convert prints on a log, with shells and grep,
// and wants each limit asked about the requests of its locations.
func TestConvertReplay(t *testing.T) {
	t.Parallel()
	path, folder := binary(t), t.TempDir()
	writeTo(t, filepath.Join(folder, "nginx.conf"), `http {
    limit_req_zone $binary_remote_addr zone=site:1m rate=5r/m;
    limit_req_zone $remote_addr zone=login:1m rate=5r/m;
    limit_req_zone $remote_addr zone=it's:1m rate=5r/m;
    limit_req_zone everybody zone=php:1m rate=5r/m;
    limit_req_zone $http_x_api_key zone=keys:1m rate=5r/m;
    limit_req_zone $remote_user zone=all:1m rate=5r/m;
    server {
        limit_req zone=site;
        location / { proxy_pass http://app; }
        location = /login { limit_req zone=login; }
        location /api/ {
            limit_req zone=it's;
            location /api/keys { limit_req zone=keys; }
            location /api/old { limit_req zone=site; }
        }
        location ^~ /static/ { limit_req zone=login; }
        location ~ "^/[a-z]{3,}\.php$" { limit_req zone=php; }
        location ~* \.(php|cgi)$ { limit_req zone=php burst=2; limit_req zone=login; }
    }
    server {
        limit_req zone=all;
    }
}
`)
	cmd := exec.Command(path, "convert", "nginx.conf", "--output", "the rules.yaml", "--nginx", "weir.conf")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() > 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	want := map[string]int{ // the requests of each zone
		"site": 4, "login": 6, "it": 2, "php_burst0": 1, "php_burst2": 2, "all": 12,
	}
	var log strings.Builder
	for i, path := range []string{
		"/", "/login2", "/login/x", "/api/old/x", // of the site
		"/login", "/login?next=/api/", "/static/a.php", "/static/b.css?x=.php ", // of the login
		"/api/a", "/api/b?c=/api/old", // of it's
		"/abc.php",              // of php
		"/x/a.PHP?y", "/ab.cgi", // of php and the login
		"/api/keys?x",
	} {
		user := "ann"
		if i >= 12 {
			user = "-"
		}
		fmt.Fprintf(&log, "192.0.2.1 - %s [10/Oct/2025:14:00:%02d +0000] \"GET %s HTTP/1.1\" 200 5 \"-\" \"curl\"\n", user, i, strings.TrimSpace(path))
	}
	writeTo(t, filepath.Join(folder, "access.log"), log.String())
	text, err := os.ReadFile(filepath.Join(folder, "the rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "#   keys: the combined format does not have '$http_x_api_key'\n") {
		t.Errorf("nothing is said of a key that no log has:\n%s", text)
	}
	got := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#   (.*weir replay .* --descriptor 'nginx zone=(.*?)[,'\n].*)$`).FindAllStringSubmatch(string(text), -1) {
		cmd := exec.Command("sh", "-c", m[1]+" --format json")
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		var result struct {
			Limits []struct{ Matched int }
		}
		if err := errors.Join(err, json.Unmarshal(out, &result)); err != nil {
			t.Errorf("%s: %v\n%s", m[1], err, out)
		}
		for _, l := range result.Limits {
			got[m[2]] += l.Matched
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests that are wanted (-) and asked about (+): %s\n%s", diff, text)
	}
}
