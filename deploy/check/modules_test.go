package check

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
)

// A proxy is a module proxy with the modules of a release, and the environment of go
// commands that use it. Other modules come from the user's module cache.
type proxy struct {
	t   *testing.T
	env []string
}

func newProxy(t *testing.T) proxy {
	t.Helper()
	m := release(t)
	dir := t.TempDir()
	if _, err := extract(filepath.Join(m.dist, "weir_1.2.3_modules.tar.gz"), dir); err != nil {
		t.Fatal(err)
	}
	cached := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	return proxy{t, append(os.Environ(),
		"GOPROXY=file://"+dir+"/weir_1.2.3_modules,file://"+cached+"/cache/download,"+strings.TrimSpace(output(t, "go", "env", "GOPROXY")),
		"GOSUMDB=off", "GOMODCACHE="+t.TempDir(), "GOFLAGS=-trimpath -modcacherw", "GOWORK=off", "CGO_ENABLED=0")}
}

// do runs a go command in a folder and returns its standard output.
func (p proxy) do(dir string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command("go", args...)
	var log strings.Builder
	cmd.Dir, cmd.Env, cmd.Stderr = dir, p.env, &log
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", cmd, err, &log)
	}
	return string(out)
}

// TestGoInstall installs the program as docs/install.md says, in an empty folder.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	command := strings.Fields(strings.ReplaceAll(block(t, "docs/install.md", "sh", "go install"), "@latest", "@"+version))
	bin := t.TempDir()
	p.env = append(p.env, "GOBIN="+bin)
	p.do(t.TempDir(), command[1:]...)
	if got := output(t, filepath.Join(bin, "weir"), "version"); !strings.HasPrefix(got, "weir "+version+" go") {
		t.Errorf("installed %q", got)
	}
	// The program's go.sum has the hashes of the modules that were published with it.
	sources := strings.TrimSpace(p.do(t.TempDir(), "env", "GOMODCACHE")) + "/github.com/weirlimit/weir/server@" + version
	p.do(sources, "list", "-deps", "./cmd/weir")
}

// TestGoGet adds the library, and its gRPC interceptors, to a program.
func TestGoGet(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	program := t.TempDir()
	const main = `package main

import "github.com/weirlimit/weir/memstore"

func main() { _ = memstore.New }
`
	write(t, filepath.Join(program, "main.go"), main, 0o644)
	p.do(program, "mod", "init", "example.org/program")
	p.do(program, "get", "github.com/weirlimit/weir@"+version)
	p.do(program, "build", "-o", "program", ".")
	p.do(program, "get", "github.com/weirlimit/weir/weirgrpc@"+version, "github.com/weirlimit/weir/trace@"+version, "github.com/weirlimit/weir/weirprom@"+version)
	p.do(program, "build", "github.com/weirlimit/weir/weirgrpc", "github.com/weirlimit/weir/trace", "github.com/weirlimit/weir/weirprom")
}

// TestReplaces types what docs/middleware.md has for a program beside a clone, which imports the
// modules for gRPC and Prometheus.
func TestReplaces(t *testing.T) {
	t.Parallel()
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "hello")
	if err := errors.Join(os.Symlink(clone, filepath.Join(dir, "weir")), os.Mkdir(program, 0o755)); err != nil {
		t.Fatal(err)
	}
	const main = `package main

import (
	"github.com/weirlimit/weir/weirgrpc"
	"github.com/weirlimit/weir/weirprom"
)

func main() { _, _ = weirgrpc.MetadataKey, weirprom.NewAnswers }
`
	write(t, filepath.Join(program, "main.go"), main, 0o644)
	script := "set -e\ngo mod init hello\n"
	for _, b := range pages.Mine(t, "docs/middleware.md") {
		script += b.Text
	}
	cmd := exec.Command("sh", "-c", script+"go build -o hello .\n")
	cmd.Dir, cmd.Env = program, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mod := string(read(t, filepath.Join(program, "go.mod")))
	if !strings.Contains(mod, "weir/weirprom v0.0.0") || strings.Contains(mod, "require github.com/weirlimit/weir/trace") {
		t.Errorf("go.mod is\n%s", mod)
	}
}

// TestReleaseCommit writes the versions of a release into a copy of this tree, commits and
// tags it, and downloads the modules from that repository. The go.sum files of the commit
// must have the hashes of what its tags serve.
func TestReleaseCommit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: a release takes a minute, which -short does not have")
	}
	repository := t.TempDir()
	copyTracked(t, repository)
	git := func(args ...string) {
		t.Helper()
		output(t, "git", append([]string{"-C", repository, "-c", "user.name=test", "-c", "user.email=test@example.org"}, args...)...)
	}
	git("init", "-q")
	git("add", "-A")
	if err := run([]string{"GOWORK=off"}, filepath.Join(root, "tools/release"), "go", "run", "./modules", "-root", repository, "-version", version, "-write"); err != nil {
		t.Fatal(err)
	}
	git("commit", "-q", "-a", "-m", "Release")
	for _, folder := range []string{"", "trace/", "weirgrpc/", "weirprom/", "server/"} {
		git("tag", folder+version)
	}

	p := proxy{t, append(os.Environ(),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/weirlimit/weir",
		"GOPRIVATE=github.com/weirlimit", "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw", "GOWORK=off")}
	for folder, required := range map[string][]string{
		".":        {"github.com/weirlimit/weir/server@" + version, "github.com/weirlimit/weir/weirgrpc@" + version},
		"trace":    {"github.com/weirlimit/weir"},
		"weirgrpc": {"github.com/weirlimit/weir"},
		"weirprom": {"github.com/weirlimit/weir"},
		"server":   {"github.com/weirlimit/weir", "github.com/weirlimit/weir/trace"},
	} {
		sums := filepath.Join(repository, folder, "go.sum")
		before := string(read(t, sums))
		p.do(filepath.Join(repository, folder), append([]string{"mod", "download"}, required...)...)
		if after := string(read(t, sums)); folder != "." && after != before {
			t.Errorf("%s lacks sums of the release's modules", sums)
		}
	}
}

// copyTracked copies the files of this tree that git tracks.
func copyTracked(t *testing.T, to string) {
	t.Helper()
	for name := range strings.SplitSeq(output(t, "git", "-C", root, "ls-files", "-z"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if name == "" || errors.Is(err, fs.ErrNotExist) {
			continue // the end, or removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, name), content, 0o644)
	}
}
