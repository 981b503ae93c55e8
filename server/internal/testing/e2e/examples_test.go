package e2e

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// examples are the pages of the examples, the address that the program of each listens at, and
// what its calls print. TestCaddy and the like run the other proxies.
var examples = []struct{ page, address, prints string }{
	{"examples/nethttp/README.md", "127.0.0.1:8091", "200 200 200 200 200 "},
	{"examples/chi/README.md", "127.0.0.1:8092", "429\n200\n200\n"},
	{"examples/gin/README.md", "127.0.0.1:8093", "401 401 401 401 401 429 429 \nHTTP/1.1 429 "},
	{"examples/echo/README.md", "127.0.0.1:8094", " 429 "},
	{"examples/grpc/README.md", "127.0.0.1:8095", ""},
	{"examples/tokens/README.md", "127.0.0.1:8090", "HTTP/1.1 200 OK"},
	{"examples/nginx/README.md", "127.0.0.1:8080", strings.Repeat("200 ", 30) + strings.Repeat("429 ", 5) + "\nHTTP/1.1 429 "},
	{"examples/caddy/README.md", "127.0.0.1:8080", ""},
	{"examples/haproxy/README.md", "127.0.0.1:8080", ""},
	{"examples/traefik/README.md", "127.0.0.1:8080", ""},
}

// TestExamples types what the pages of the examples have, with a clone of this tree: each go run,
// and the calls of the programs. Only the addresses are others, in the programs too.
func TestExamples(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the examples")
	}
	for _, program := range []string{"git", "curl", "nginx", "python3"} {
		testserver.Require(t, program)
	}
	found, err := fs.Glob(os.DirFS(pages.Path(".")), "examples/*/README.md")
	if err != nil || len(found) != len(examples)+1 { // quickstart has a log and no program
		t.Errorf("%d pages of examples, %v: want each in the list", len(found), err)
	}
	clone := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("git", "clone", "-q", committed(t), clone).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	store := testserver.StartRedis(t)
	for _, e := range examples {
		t.Run(filepath.Base(filepath.Dir(e.page)), func(t *testing.T) {
			address := testserver.FreeAddr(t)
			front, application := testserver.FreeAddr(t), testserver.FreeAddr(t)
			// A busy machine takes its time, and asks an hour long.
			elsewhere(t, filepath.Dir(filepath.Join(clone, e.page)), strings.NewReplacer(
				e.address, address, "127.0.0.1:8000", front, "127.0.0.1:3000", application, "_timeout 1s;", "_timeout 30s;", "unit: minute", "unit: hour",
			))
			_, port, _ := net.SplitHostPort(application)
			s := newShell(t, e.address, address, "127.0.0.1:7100", store.Addr(), "127.0.0.1:8000", front, "127.0.0.1:3000", application,
				"127.0.0.1 3000", "127.0.0.1 "+port, "/tmp/weir-nginx", t.TempDir())
			s.ready = map[string]string{"nginx": "127.0.0.1:8000", "python3": "127.0.0.1:3000"}
			s.run("cd " + clone)
			s.run("export GOWORK= WEIR_GRPC=off WEIR_ADMIN=off WEIR_HTTP=" + address)
			// Jobs are groups of processes, as in a shell that people use.
			s.run(`set -m; trap 'for job in $(jobs -p); do kill -- -$job; done 2>&-; wait' EXIT`)
			ran, printed := false, ""
			for _, b := range pages.Mine(t, e.page) {
				for _, command := range b.Commands() {
					program, _, _ := strings.Cut(command, " ")
					_, missing := exec.LookPath(program)
					switch {
					case strings.Contains(command, "go run "):
						// Its lines must not stand among those of the calls.
						logs := filepath.Join(t.TempDir(), "logs")
						s.run(command[:strings.LastIndex(command, "&")] + "2>> " + logs + " &")
						awaitAddress(s, address, logs)
						ran = true
					case program == "redis-server": // the test's runs
					case e.prints == "" && e.address == "127.0.0.1:8080", program == "grpcurl" && missing != nil:
					case strings.HasSuffix(command, "&"):
						s.background(strings.TrimSuffix(command, "&") + "2>> background.log &")
					default:
						printed += s.run(command)
					}
				}
			}
			if !ran || !strings.Contains(printed, e.prints) {
				t.Errorf("go run: %v; the calls print\n%s\nwant %q", ran, printed, e.prints)
			}
		})
	}
}

// elsewhere replaces addresses in the files of a folder.
func elsewhere(t *testing.T, folder string, to *strings.Replacer) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeText(t, file, to.Replace(string(text)))
	}
}

// awaitAddress waits until a program listens that go run compiles in the background, with its errors in
// the file logs.
func awaitAddress(s *shell, address, logs string) {
	s.t.Helper()
	printed := ""
	for deadline := time.Now().Add(commandTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return
		}
		jobs := s.run("jobs -r")
		if printed += jobs; !strings.Contains(jobs, "go run ") {
			break
		}
	}
	said, _ := os.ReadFile(logs)
	s.t.Fatalf("nobody listens at %s: %s%s", address, printed, said)
}
