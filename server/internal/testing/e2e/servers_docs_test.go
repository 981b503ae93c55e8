package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// startedIn are the pages whose commands start servers, and what a command needs: the files of
// other pages, and whether it is typed in a clone.
var startedIn = []struct {
	page  string
	from  []string
	clone bool
}{
	{page: "docs/access.md"},
	{page: "docs/any.md"},
	{page: "docs/install.md", clone: true},
	{page: "docs/litellm.md", from: []string{"docs/models.md"}},
	{page: "docs/migrating-envoyproxy.md"},
	{page: "docs/migrating.md"},
	{page: "docs/models.md"},
	{page: "docs/redis.md"},
	{page: "docs/rlqs.md"},
	{page: "docs/testing.md"},
}

// TestServersInPages types the commands of the pages that start servers, until each serves. Only
// the addresses are others. LiteLLM itself is not started: it is 750 MB of packages.
func TestServersInPages(t *testing.T) {
	t.Parallel()
	store := testserver.StartRedis(t)
	compared := serve(t, "../../rules/demo.yaml", "memory")
	for _, at := range startedIn {
		t.Run(strings.TrimSuffix(filepath.Base(at.page), ".md"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			save(t, dir, append([]string{"docs/troubleshooting.md", at.page}, at.from...)...)
			s := newShell(
				t, "0.0.0.0:8080", "127.0.0.1:0", "127.0.0.1:6380", "127.0.0.1:0", "redis.internal:6379", store.Addr(), "//redis:6379", "//"+store.Addr(),
				"REDIS_URL=redis:6379", "REDIS_URL="+store.Addr(), " ratelimit:8081", " "+compared.grpc, "/data", dir,
				"clustercfg.limits.abc123.euw1.cache.amazonaws.com:6379", testserver.FreeAddr(t),
			)
			s.run("cd '" + dir + "'")
			if at.clone {
				s.run("git clone -q " + committed(t) + " clone && cd clone && export GOWORK=")
			}
			s.run("export WEIR_HTTP=127.0.0.1:0 WEIR_GRPC=127.0.0.1:0 WEIR_ADMIN=127.0.0.1:0 WEIR_LISTEN=127.0.0.1:0")
			s.run("export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test")
			started := 0
			for _, b := range pages.Mine(t, at.page) {
				for _, command := range b.Commands() {
					switch {
					case strings.HasPrefix(command, "litellm "):
					case strings.Contains(command, "weir serve"), strings.Contains(command, "weir models"):
						s.serves(command)
						started++
					default:
						if printed := s.run(command + "; echo exit $?"); !strings.HasSuffix(printed, "exit 0\n") {
							t.Errorf("%s: %s", command, printed)
						}
					}
				}
			}
			if started == 0 {
				t.Error("no server was started")
			}
		})
	}
}

// save writes the rules and callers of pages into a folder, and what else commands name.
func save(t *testing.T, dir string, from ...string) {
	t.Helper()
	cert, key := certificate(t)
	for name, file := range map[string]string{"cert.pem": cert, "key.pem": key} {
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	writeText(t, filepath.Join(dir, "tokens"), "a-token-of-32-characters-0123456\n")
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit/config"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "ratelimit/config/rules.yaml"), "domain: edge\ndescriptors:\n  - {key: path, rate_limit: {unit: minute, requests_per_unit: 10}}\n")
	for _, page := range from {
		for _, b := range pages.Blocks(t, page) {
			if b.File != "" && b.Language == "yaml" {
				writeText(t, filepath.Join(dir, b.File), b.Text)
			}
		}
	}
}

// serves runs a command in the background until the server has named its last address.
func (s *shell) serves(command string) {
	s.t.Helper()
	last := "admin "
	if strings.Contains(command, "--admin off") {
		last = "http "
	}
	printed := s.run(command + " &")
	for deadline := time.After(commandTimeout); !strings.Contains("\n"+printed, "\n"+last); {
		select {
		case line, open := <-s.Lines:
			if !open {
				s.t.Fatalf("%s ended: %s", command, printed)
			}
			printed += line + "\n"
		case <-deadline:
			s.t.Fatalf("%s does not serve: %s", command, printed)
		}
		if strings.Contains(printed, "\nweir: ") {
			s.t.Fatalf("%s: %s", command, printed)
		}
	}
}

// manyCosts are rules for a call with several costs.
const manyCosts = `domain: llm
descriptors:
  - key: key
    rate_limits:
      - {name: input, count: input, algorithm: gcra, requests_per_unit: 10000, unit: minute}
      - {name: output, count: output, algorithm: gcra, requests_per_unit: 10000, unit: minute}
      - {name: usd, count: usd, algorithm: fixed_window, dollars: 20, unit: day}
      - {name: open, algorithm: concurrency, requests_per_unit: 4, period: 1m}
`

// TestCallsInPages types the single calls of pages to a server with the rules of
// docs/troubleshooting.md, and looks for a part of each answer.
func TestCallsInPages(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "curl")
	dir := t.TempDir()
	for _, b := range pages.Blocks(t, "docs/troubleshooting.md") {
		if b.File == "rules.yaml" {
			writeText(t, filepath.Join(dir, b.File), b.Text)
		}
	}
	writeText(t, filepath.Join(dir, "costs.yaml"), manyCosts)
	writeText(t, filepath.Join(dir, "web.yaml"), "domain: web\ndescriptors:\n  - key: remote_address\n    rate_limit: {algorithm: gcra, requests_per_unit: 9, unit: hour}\n")
	p := start(t, []string{"WEIR_ADMIN=127.0.0.1:0"}, binary(t), "serve", "--config", dir, "--http", "127.0.0.1:0", "--grpc", "off")
	addrs := p.named("http", "admin")
	s := newShell(t, "127.0.0.1:8080", addrs["http"], "127.0.0.1:6070", addrs["admin"])
	s.run("cd '" + dir + "'; export WEIR_ADMIN=" + addrs["admin"])
	for page, want := range map[string][]string{
		"docs/troubleshooting.md": {"answer: allowed", "shop/user ", `"state":"healthy"`, "HTTP/1.1 204"},
		"docs/customers.md":       {"500/h burst 200 until "},
		"docs/operations.md":      {`"state":"healthy"`},
		"docs/http.md":            {`"allowed":true`, `"allowed":true`, `"allowed":true`},
	} {
		var commands []string
		for _, b := range pages.Mine(t, page) {
			commands = append(commands, b.Commands()...)
		}
		if len(commands) != len(want) {
			t.Fatalf("%s has %d commands, want %d", page, len(commands), len(want))
		}
		for i, command := range commands {
			if printed := s.run(command); !strings.Contains(printed, want[i]) {
				t.Errorf("%s: %s prints\n%s\nwant %s", page, command, printed, want[i])
			}
		}
	}
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
