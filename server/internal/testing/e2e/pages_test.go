package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// contexts are where a piece of configuration may stand.
var contexts = []string{
	"%s\npid nginx.pid; events {} http { server { listen 127.0.0.1:1; } }",
	"pid nginx.pid; events {} http {\n%s\n}",
	`pid nginx.pid; events {} http { upstream weir { server 127.0.0.1:1; }
map $remote_addr $weir_client { default $remote_addr; }
server { listen 127.0.0.1:1; location @limited { return 429; }
%s
} }`,
	// A whole configuration, for an application that a name stands for.
	"pid nginx.pid; events {} %s",
}

// TestNginxBlocks has nginx load each piece of configuration of each page, in the
// context that it is for.
func TestNginxBlocks(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	n := 0
	for _, page := range pages.All(t) {
		for _, b := range pages.Blocks(t, page) {
			if b.Language != "nginx" || strings.Contains(b.Text, "include ") {
				continue
			}
			n++
			if why := loads(t, program, b.Text); why != "" {
				t.Errorf("%s:%d: nginx does not load it: %s", page, b.Line, why)
			}
		}
	}
	if n < 7 {
		t.Errorf("%d pieces were found", n)
	}
	if loads(t, program, "auth_requst /_weir;") == "" {
		t.Error("nginx loads what it does not know")
	}
}

// loads says why nginx loads a piece in none of the contexts: what it says of the
// last.
func loads(t *testing.T, program, piece string) string {
	t.Helper()
	dir, said := t.TempDir(), ""
	file := filepath.Join(dir, "nginx.conf")
	piece = strings.Replace(piece, "http {", "http { upstream app { server 127.0.0.1:1; }", 1)
	for _, context := range contexts {
		text := strings.Replace(context, "%s", piece, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, "-t", "-p", dir, "-c", file, "-e", "stderr").CombinedOutput()
		if err == nil {
			return ""
		}
		said = string(out)
	}
	return said
}

// passed is what differs from run to run of a RateLimit header.
var passed = regexp.MustCompile(`;t=\d+`)

// TestReadmeCall makes the first call of the README. The page leaves the X- headers
// and those of every HTTP answer out.
func TestReadmeCall(t *testing.T) {
	t.Parallel()
	w := serve(t, "../../rules/demo.yaml", "memory")
	s := newShell(t, "127.0.0.1:8080", w.addr, "curl ", "curl -sS ")
	pages.Hold(t, "README.md", passed, func(b pages.Block) string {
		call, _, _ := strings.Cut(b.Text, "\n")
		shown := call + "\n"
		for line := range strings.Lines(s.run(strings.TrimPrefix(call, "$ "))) {
			if strings.HasPrefix(line, "HTTP/") || strings.HasPrefix(line, "Ratelimit") || strings.HasPrefix(line, "RateLimit") {
				shown += strings.TrimSpace(line) + "\n"
			}
		}
		return shown
	})
}

// TestEnvoyDocs asks what docs/envoy.md asks: with curl over HTTP, and what it has
// for grpcurl over gRPC.
func TestEnvoyDocs(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	var asked []string
	for _, b := range pages.Mine(t, "docs/envoy.md") {
		if b.Language == "sh" {
			asked = b.Commands()
		} else if err := os.WriteFile(rules, []byte(b.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := serve(t, rules, "memory")
	s := newShell(t, "127.0.0.1:8080", w.addr, "127.0.0.1:8081", w.grpc, "curl ", "curl -sS ")
	over := ""
	for _, command := range asked {
		program, _, _ := strings.Cut(command, " ")
		over += program + " "
		switch program {
		case "weir": // serves
		case "curl":
			var answer struct{ OverallCode string }
			if printed := s.run(command); json.Unmarshal([]byte(printed), &answer) != nil || answer.OverallCode != "OK" {
				t.Errorf("%s: %s", command, printed)
			}
		case "grpcurl":
			w.grpcurl(command)
		}
	}
	if over != "weir grpcurl curl " {
		t.Errorf("the page runs %s", over)
	}
}

var data = regexp.MustCompile(`-d '([^']*)'`)

// grpcurl makes the call that a command describes.
func (w *weir) grpcurl(command string) {
	w.t.Helper()
	request, answer := new(rlsv3.RateLimitRequest), new(rlsv3.RateLimitResponse)
	if err := protojson.Unmarshal([]byte(data.FindStringSubmatch(command)[1]), request); err != nil {
		w.t.Fatal(err)
	}
	method := "/" + command[strings.LastIndex(command, " ")+1:]
	err := dialEnvoy(w.t, w).Invoke(w.t.Context(), method, request, answer)
	if err != nil || answer.GetOverallCode() != rlsv3.RateLimitResponse_OK || answer.GetStatuses()[0].GetCurrentLimit() == nil {
		w.t.Errorf("%s: %v, %v", method, answer, err)
	}
}

// TestRESPDocs runs the commands of docs/resp.md.
func TestRESPDocs(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "redis-cli")
	w := serve(t, "../../rules/demo.yaml", "memory", "--resp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(w.resp)
	s := newShell(t, "-p 6380", "-p "+port)
	var printed []string
	for _, b := range pages.Mine(t, "docs/resp.md") {
		for _, command := range b.Commands() {
			if !strings.HasPrefix(command, "weir serve --resp ") { // which serves
				printed = append(printed, strings.Join(strings.Fields(s.run(command)), " "))
			}
		}
	}
	// A unit of the last budget drains in 0.6 s.
	for i, want := range [][]string{
		{"1 9 0 "},
		{"1 8 0 ", "1 9 0 "},
		{"0 100 95 -1 3"},
		{"0 100 60 -1 6", "0 100 61 -1 6"},
	} {
		if len(printed) <= i || !slices.ContainsFunc(want, func(want string) bool { return strings.HasPrefix(printed[i], want) }) {
			t.Errorf("the commands printed %q; want %q in place %d", printed, want, i)
		}
	}
}

// option is an option of a command's form that has none within, and argument is one of a name.
var (
	option   = regexp.MustCompile(`\[([^\[\]]*)\](?:\.\.\.)?`)
	argument = regexp.MustCompile(`<[^>]*>`)
	gap      = regexp.MustCompile(` {3,}`)
)

// TestRESPForms sends the forms of commands in docs/resp.md: without options, and with each of
// them. A reply is an array, or says that no take has the ID.
func TestRESPForms(t *testing.T) {
	t.Parallel()
	cli := testserver.Require(t, "redis-cli")
	w := serve(t, "../../rules/demo.yaml", "memory", "--resp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(w.resp)
	sent := 0
	for _, b := range pages.Mine(t, "docs/resp.md") {
		for line := range strings.Lines(b.Text) {
			// What a command does stands behind its form.
			form := gap.Split(strings.TrimSpace(line), -1)
			if !strings.Contains(form[0], " ") {
				form[0] += " " + form[1]
			}
			least, options := form[0], []string{""}
			for {
				found := option.FindAllStringSubmatch(least, -1)
				if found == nil {
					break
				}
				for _, o := range found {
					options = append(options, o[1])
				}
				least = option.ReplaceAllString(least, "")
			}
			for _, o := range options {
				if strings.HasPrefix(o, "HOLD") && !strings.Contains(least, "ID id") {
					o += " ID id"
				}
				sent++
				args := filled(least+" "+o, sent)
				out, err := exec.CommandContext(t.Context(), cli, append([]string{"-p", port}, args...)...).CombinedOutput()
				first, _, _ := strings.Cut(string(out), "\n")
				if err != nil || first != "0" && first != "1" && !strings.HasPrefix(first, "UNKNOWNID ") {
					t.Errorf("%q: %v, %s", args, err, out)
				}
			}
		}
	}
	if sent < 25 {
		t.Errorf("%d commands were sent", sent)
	}
}

// filled returns the words of a form with values in the place of names.
func filled(form string, n int) (args []string) {
	limit := "4/min"
	if strings.HasPrefix(form, "WEIR.RELEASE") || strings.HasPrefix(form, "WEIR.RENEW") {
		limit = "4/min concurrency"
	}
	form = argument.ReplaceAllStringFunc(form, func(name string) string {
		return map[string]string{"<key>": "key", "<max_burst>": "4", "<count per period>": "5", "<period in seconds>": "60", "<quantity>": "2", "<units>": "n", "<id>": "id"}[name]
	})
	for i, word := range strings.Fields(form) {
		switch word {
		case "...":
			continue
		case "key":
			word = fmt.Sprintf("key-%d-%d", n, i)
		case "limit":
			word = limit
		case "n":
			word = "1"
		case "ms":
			word = "1000"
		case "id":
			word = fmt.Sprint("id-", n)
		case "domain":
			word = "shop"
		}
		args = append(args, word)
	}
	return args
}

// TestIORedisDocs runs the client of docs/resp.md for Node against a server, and without one.
func TestIORedisDocs(t *testing.T) {
	t.Parallel()
	node := testserver.Require(t, "node")
	if _, err := os.Stat(pages.Path("clients/node/node_modules/ioredis")); err != nil {
		testserver.Missing(t, "node", "ioredis")
	}
	w := serve(t, "../../rules/demo.yaml", "memory", "--resp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(w.resp)
	for _, b := range pages.Mine(t, "docs/resp.md") {
		if b.Language != "js" {
			continue
		}
		// A busy machine takes its time.
		client := strings.NewReplacer("port: 6380", "port: "+port, "Timeout: 250", "Timeout: 60000").Replace(b.Text)
		program := "import Redis from 'ioredis'\n" + client + "try { console.log((await weir.call('WEIR.TAKE', 'user:42', '2/h')).join(' ')) } catch (err) { console.log(err.name) }\nweir.disconnect()\n"
		for _, want := range []string{"1 1 0 1800000 1 0 0 store 2 3600000 2\n", "MaxRetriesPerRequestError\n"} {
			cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", program)
			cmd.Dir = pages.Path("clients/node")
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
				t.Errorf("%v: %s, want %s", err, out, want)
			}
			w.Stop(syscall.SIGTERM)
		}
	}
}

// TestBenchDocs runs the loads of docs/performance.md for a moment.
func TestBenchDocs(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "h2load")
	testserver.Require(t, "redis-benchmark")
	w := serve(t, "../../rules/demo.yaml", "memory", "--resp", "127.0.0.1:0")
	_, port, _ := strings.Cut(w.resp, ":")
	s := newShell(t, "127.0.0.1:8080", w.addr, "127.0.0.1:8081", w.grpc, "-p 6380", "-p "+port)
	t.Cleanup(func() { _ = os.Remove(pages.Path("body.bin")) })
	for _, b := range pages.Mine(t, "docs/performance.md") {
		for _, command := range b.Commands() {
			want := ""
			switch program, _, _ := strings.Cut(command, " "); program {
			case "redis-benchmark":
				want = "requests per second"
			case "h2load":
				want = " succeeded, 0 failed, 0 errored"
				if strings.Contains(command, "--h1") {
					want = " 0 errored, 0 timeout" // refusals count as failed
					break
				}
				// It does not look at the status of a call.
				request, body := new(rlsv3.RateLimitRequest), strings.TrimSuffix(s.run("cat body.bin"), "\n")
				if err := proto.Unmarshal([]byte(body[5:]), request); err != nil || int(body[4]) != len(body)-5 || request.GetDomain() != "demo" ||
					request.GetDescriptors()[0].GetEntries()[0].GetValue() != "u1" {
					t.Errorf("body.bin holds %v, %v", request, err)
				}
			}
			// A slow test loses lines of a long output.
			printed := s.run(command + " | tail -n 30; echo exit ${PIPESTATUS[0]}")
			if !strings.Contains(printed, want) || !strings.HasSuffix(printed, "exit 0\n") {
				t.Errorf("%s: %s", command, printed)
			}
		}
	}
}
