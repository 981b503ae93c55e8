package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A runtime runs the programs of a language.
type runtime struct {
	// program must be installed, and ready, if not empty, succeed: it looks for a package.
	program string
	ready   []string
	args    []string
	// more are files beside the program, and links to folders.
	more  map[string]string
	links map[string]string
	// outage are the statuses without a server.
	outage string
}

const project = `<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><OutputType>Exe</OutputType><TargetFramework>net8.0</TargetFramework>
<RollForward>Major</RollForward><ImplicitUsings>enable</ImplicitUsings><Nullable>enable</Nullable></PropertyGroup>
<ItemGroup><PackageReference Include="StackExchange.Redis" Version="2.8.16" /></ItemGroup></Project>`

var runtimes = map[string]runtime{
	"take.py": {program: "python3", args: []string{"-B"}, outage: "200 429 429 429"},
	"take.mjs": {
		program: "node", links: map[string]string{"node_modules/@weirlimit/client": "../../../../clients/node"},
		outage: "200 429 429 429",
	},
	"Take.java": {program: "java", args: []string{"-XX:TieredStopAtLevel=1"}, outage: "200 200 200 200"},
	"take.rb":   {program: "ruby", ready: []string{"-e", `require "redis"`}, outage: "200 200 200 200"},
	"take.php":  {program: "php", ready: []string{"-r", `exit(extension_loaded("redis") ? 0 : 1);`}, outage: "200 200 200 200"},
	"Program.cs": {
		program: "dotnet", args: []string{"run", "--project", "any.csproj", "--"}, more: map[string]string{"any.csproj": project},
		outage: "200 200 200 200",
	},
}

// TestAnyLanguage runs the programs of the page "docs/any.md" until they are refused, and again
// without a server.
func TestAnyLanguage(t *testing.T) {
	t.Parallel()
	for _, b := range pages.Mine(t, "docs/any.md") {
		t.Run(b.File, func(t *testing.T) {
			t.Parallel()
			with, known := runtimes[b.File]
			if !known {
				t.Fatal("no runtime is known for it")
			}
			program := testserver.Require(t, with.program)
			if with.ready != nil {
				if out, err := exec.CommandContext(t.Context(), program, with.ready...).CombinedOutput(); err != nil {
					t.Skipf("SKIPPED, NOTHING WAS TESTED: %s has no client of Redis: %s", with.program, out)
				}
			}
			w := serve(t, "../../../../examples/nginx/rules.yaml", "memory", "--resp", "127.0.0.1:0")
			folder := t.TempDir()
			// A busy machine takes its time.
			text := strings.NewReplacer("127.0.0.1:6380", w.resp, "127.0.0.1:8080", w.addr, "'127.0.0.1', 6380", quoted(w.resp, "'"),
				`host: "127.0.0.1", port: 6380`, "host: "+strings.Replace(quoted(w.resp, `"`), ",", ", port:", 1),
				"ofMillis(250)", "ofSeconds(30)", "ofMillis(500)", "ofSeconds(30)", "Timeout=250", "Timeout=30000", "Timeout=500", "Timeout=30000",
				"timeout: 0.25", "timeout: 30", "timeout: 0.5", "timeout: 30", "0.25, 'weir', 0, 0.5", "30, 'weir', 0, 30",
				`("weir://`+"127.0.0.1:6380"+`")`, `("weir://`+w.resp+`", timeout=30)`,
				"('weir://127.0.0.1:6380')", "('weir://"+w.resp+"', { timeoutMs: 30000 })").Replace(b.Text)
			with.more = merged(with.more, b.File, text)
			for name, text := range with.more {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for name, to := range with.links {
				to, err := filepath.Abs(to)
				if err := errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700), os.Symlink(to, filepath.Join(folder, name))); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff("200 200 200 429", statuses(t, folder, program, append(with.args, b.File))); diff != "" {
				t.Error(diff)
			}
			w.Stop(syscall.SIGTERM)
			if diff := cmp.Diff(with.outage, statuses(t, folder, program, append(with.args, b.File))); diff != "" {
				t.Errorf("without a server: %s", diff)
			}
		})
	}
}

// quoted returns an address as two arguments, "HOST", PORT.
func quoted(addr, quote string) string {
	host, port, _ := strings.Cut(addr, ":")
	return quote + host + quote + ", " + port
}

func merged(files map[string]string, name, text string) map[string]string {
	all := map[string]string{name: text}
	for name, text := range files {
		all[name] = text
	}
	return all
}

// statuses runs a program and returns the first words of its lines.
func statuses(t *testing.T, folder, program string, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client, err := filepath.Abs("../../../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PYTHONPATH="+client)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s%s", err, out, &errs)
	}
	var words []string
	for line := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestPythonInPages runs the programs for Python of other pages, in one process for each.
func TestPythonInPages(t *testing.T) {
	t.Parallel()
	python := testserver.Require(t, "python3")
	w := serve(t, "../../../../examples/nginx/rules.yaml", "memory", "--resp", "127.0.0.1:0")
	for page, want := range map[string]struct{ more, statuses string }{
		"README.md":         {strings.Repeat("d = Weir(timeout=30).take(\"user:42\", \"5/min\")\nprint(200 if d else 429)\n", 5), "200 200 200 200 200 429"},
		"docs/customers.md": {"for _ in range(3): print(status({'id': 7, 'per_minute': 2}))\nprint(status({'id': 7, 'per_minute': 3}))\n", "200 200 429 200"},
	} {
		for _, b := range pages.Mine(t, page) {
			text := strings.NewReplacer("Weir()", "Weir(\"weir://"+w.resp+"\", timeout=30)", "Weir(timeout", "Weir(\"weir://"+w.resp+"\", timeout").Replace(b.Text + want.more)
			if diff := cmp.Diff(want.statuses, statuses(t, t.TempDir(), python, []string{"-B", "-c", text})); diff != "" {
				t.Errorf("%s: %s", page, diff)
			}
		}
	}
}
