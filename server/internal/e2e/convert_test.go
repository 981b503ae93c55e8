package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/weirlimit/weir/internal/testserver"
)

// A conversion is an nginx configuration, and requests that it has to answer as before
// once it asks Weir. Rates are so low that nothing refills during a test.
type conversion struct {
	files    map[string]string // nginx.conf and what it includes
	requests []request
	// verdictsOnly says that nginx delays requests: a dry run tells which it would refuse.
	verdictsOnly bool
}

type request struct {
	path, method, host string
	header             http.Header
}

// readConversion reads an archive. Lines of its comment that start with a number are
// requests: how many, the path, and from=, key=, agent=, cookie=, host= and method=.
func readConversion(t *testing.T, file string) *conversion {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversion{files: map[string]string{}, verdictsOnly: strings.Contains(string(archive.Comment), "verdicts only")}
	for _, f := range archive.Files {
		c.files[f.Name] = string(f.Data)
	}
	for line := range strings.Lines(string(archive.Comment)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
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
	names := map[string]string{"from": "X-Client", "key": "X-Api-Key", "agent": "User-Agent", "cookie": "Cookie"}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		switch {
		case name == "method":
			r.method = value
		case name == "host":
			r.host = value
		case names[name] != "":
			r.header.Set(names[name], value)
		default:
			t.Fatalf("%s is no part of a request", field)
		}
	}
	return r
}

// TestConvert sends the same requests to nginx with limit_req and to nginx that asks Weir
// with the converted configuration. Without Weir, and with one that answers neither yes
// nor no, all of them pass.
func TestConvert(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	files, err := filepath.Glob("../convert/testdata/nginx/*.txtar")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d configurations, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			c := readConversion(t, file)
			app := newApplication(t)
			more, seen := "", statusAndBody
			if c.verdictsOnly {
				more, seen = "limit_req_dry_run on; add_header X-Limit $limit_req_status always; ", verdict
			}
			want := c.answers(t, startConfigured(t, program, c.files, app.addr, more), seen)

			t.Logf("limit_req answers %q", want)
			converted := c.convert(t)
			w := serve(t, filepath.Join(converted, "rules.yaml"), "memory")
			asking := startConfigured(t, program, c.replaced(t, converted, w.addr), app.addr, "")
			if diff := cmp.Diff(want, c.answers(t, asking, seen)); diff != "" {
				t.Errorf("limit_req (-) and Weir (+) answer:\n%s", diff)
			}
			w.Stop(syscall.SIGTERM)
			unhelpful := newUnhelpful(t)
			for name, url := range map[string]string{
				"without Weir":                       asking,
				"with a Weir that answers otherwise": startConfigured(t, program, c.replaced(t, converted, unhelpful), app.addr, ""),
			} {
				for i, got := range c.answers(t, url, statusAndBody) {
					if got != "200 " {
						t.Errorf("%s request %d is answered %s", name, i, got)
					}
				}
			}
		})
	}
}

func statusAndBody(r response) string { return fmt.Sprint(r.status, " ", r.body) }

func verdict(r response) string {
	if r.status != http.StatusOK || r.header.Get("X-Limit") == "REJECTED_DRY_RUN" {
		return "refused"
	}
	return "granted"
}

// newUnhelpful starts a server that answers sub-requests with all that Weir answers when
// it is configured otherwise, or ends their connections.
func newUnhelpful(t *testing.T) string {
	statuses := []int{400, 401, 403, 404, 405, 409, 413, 421, 431, 500, 502, 503, 504, 0}
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := statuses[int(n.Add(1))%len(statuses)]
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// around is put into http on its first line, so that lines keep their numbers.
const around = `http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; ` +
	`uwsgi_temp_path uwsgi; scgi_temp_path scgi; set_real_ip_from 127.0.0.1; real_ip_header X-Client; upstream app { server APP; } `

// startConfigured runs nginx with a configuration, and more directives in http, and returns its URL.
func startConfigured(t *testing.T, program string, files map[string]string, app, more string) string {
	t.Helper()
	prefix, addr := t.TempDir(), testserver.FreeAddr(t)
	for name, text := range files {
		text = strings.ReplaceAll(text, "listen 8000;", "listen "+addr+";")
		if name == "nginx.conf" {
			text = "pid nginx.pid; error_log error.log warn; events {} " +
				strings.Replace(text, "http {", strings.ReplaceAll(around, "APP", app)+more, 1)
		}
		writeTo(t, filepath.Join(prefix, name), text)
	}
	p := start(t, nil, program, "-p", prefix, "-c", filepath.Join(prefix, "nginx.conf"), "-e", "error.log", "-g", "daemon off;")
	t.Cleanup(func() { showLog(t, filepath.Join(prefix, "error.log")) })
	await(t, p, addr)
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
	var all []string
	for _, r := range c.requests {
		req, err := http.NewRequestWithContext(t.Context(), r.method, url+r.path, http.NoBody)
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

// convert writes the configuration, rules.yaml and weir.conf into a folder.
func (c *conversion) convert(t *testing.T) string {
	t.Helper()
	path := binary(t)
	folder := t.TempDir()
	for name, text := range c.files {
		writeTo(t, filepath.Join(folder, name), text)
	}
	cmd := exec.Command(path, "convert", "nginx.conf", "--output", "rules.yaml", "--nginx", "weir.conf")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	// 1 says that something is not quite the same, as delays are.
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("weir convert: %v\n%s", err, out)
	}
	t.Logf("weir convert says:\n%s", out)
	return folder
}

var (
	inHTTP  = regexp.MustCompile(`^# .*\n((?:#.*\n)+?)#\n# Then`)
	inPlace = regexp.MustCompile(`(?m)^# In .* \((\S+):(\d+)\), for the limit_req at (.*):\n#\n((?:#   .*\n?)+)`)
)

// replaced does with the configuration what weir.conf says.
func (c *conversion) replaced(t *testing.T, folder, weirAddr string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "weir.conf"))
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine an answer may take longer, and a request that passes without one
	// would spoil the count.
	text := strings.ReplaceAll(string(content), "_timeout 1s;", "_timeout 10s;")
	lines := map[string][]string{}
	for name, text := range c.files {
		lines[name] = strings.Split(text, "\n")
	}
	for _, m := range inPlace.FindAllStringSubmatch(text, -1) {
		block, err := strconv.Atoi(m[2])
		if err != nil || !strings.HasSuffix(lines[m[1]][block-1], "{") && !strings.Contains(lines[m[1]][block-1], "{ #") {
			t.Fatalf("%s:%s starts no block: %v", m[1], m[2], err)
		}
		lines[m[1]][block-1] += " # \n" + strings.ReplaceAll(m[4], "#   ", "")
		for place := range strings.SplitSeq(m[3], ", ") {
			file, number, _ := strings.Cut(place, ":")
			n, err := strconv.Atoi(number)
			if line := lines[file][n-1]; err != nil || line != "" && !strings.HasPrefix(strings.TrimSpace(line), "limit_req ") {
				t.Fatalf("%s is no limit_req: %v", place, err)
			}
			lines[file][n-1] = ""
		}
	}
	files := map[string]string{"weir.conf": text}
	http := strings.ReplaceAll(strings.ReplaceAll(inHTTP.FindStringSubmatch(text)[1], "#   ", ""), "\n#\n", "\n")
	http = strings.Replace(strings.TrimPrefix(http, "#\n"), "127.0.0.1:8080", weirAddr, 1)
	for name, all := range lines {
		files[name] = regexp.MustCompile(`(?m)^(\s*)server \{`).ReplaceAllString(strings.Join(all, "\n"), "${1}server { include weir.conf;")
	}
	files["nginx.conf"] = strings.Replace(files["nginx.conf"], "http {", "http {\n"+http, 1)
	return files
}
