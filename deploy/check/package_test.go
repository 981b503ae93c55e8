package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestPackage installs the package in a folder, changes what administrators
// change, upgrades, removes and purges it.
func TestPackage(t *testing.T) {
	t.Parallel()
	m := release(t)
	dpkg := testserver.Require(t, "dpkg")
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: dpkg installs as root only, also in a folder")
	}
	host := newHost(t, dpkg)
	host.do("--install", filepath.Join(m.dist, m.name+".deb"))
	host.has("usr/bin/weir", 0o755)
	host.has("usr/lib/systemd/system/weir.service", 0o644)
	host.has("etc/weir/rules.yaml", 0o644)
	host.has("etc/weir/weir.env", 0o600)
	host.has("usr/share/doc/weir/copyright", 0o644)
	host.has("usr/share/doc/weir/CHANGELOG.md", 0o644)
	for file, text := range map[string]string{
		"usr/share/bash-completion/completions/weir": "bash completion", "usr/share/zsh/vendor-completions/_weir": "#compdef weir",
		"usr/share/fish/vendor_completions.d/weir.fish": "fish completion",
	} {
		if got := string(read(t, host.path(file))); !strings.Contains(got, text) {
			t.Errorf("%s is no completion:\n%.200s", file, got)
		}
	}
	if got := output(t, host.path("usr/bin/weir"), "check", host.path("etc/weir/rules.yaml")); !strings.HasPrefix(got, "ok: ") {
		t.Errorf("the shipped rules: %s", got)
	}

	const changed = "domain: mine\n"
	write(t, host.path("etc/weir/rules.yaml"), changed, 0o644)
	newer := filepath.Join(t.TempDir(), "newer.deb")
	if err := run(append(slices.Clone(naming), "VERSION=v1.3.0"), root, "scripts/package.sh", m.binary, goarch, newer); err != nil {
		t.Fatal(err)
	}
	host.do("--install", newer)
	if got := output(t, "dpkg-query", "--admindir", host.path("var/lib/dpkg"), "--showformat", "${Version}", "--show", "weir"); got != "1.3.0" {
		t.Errorf("upgraded to %q, want 1.3.0", got)
	}
	host.holds("etc/weir/rules.yaml", changed)
	host.do("--remove", "weir")
	host.lacks("usr/bin/weir")
	host.holds("etc/weir/rules.yaml", changed)
	host.do("--purge", "weir")
	host.lacks("etc/weir/rules.yaml")
	host.lacks("etc/weir/weir.env")
}

// A host is a folder that packages are installed in.
type host struct {
	t    *testing.T
	dpkg string
	root string
}

func newHost(t *testing.T, dpkg string) host {
	t.Helper()
	h := host{t, dpkg, t.TempDir()}
	for _, folder := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(h.path("var/lib/dpkg", folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, h.path("var/lib/dpkg/status"), "", 0o644)
	return h
}

func (h host) path(elements ...string) string {
	return filepath.Join(append([]string{h.root}, elements...)...)
}

// do runs dpkg. The package's scripts run outside of the folder, which has no
// shell, and are told where it is.
func (h host) do(args ...string) {
	h.t.Helper()
	output(h.t, h.dpkg, append([]string{"--root", h.root, "--force-script-chrootless", "--log", "/dev/null"}, args...)...)
}

func (h host) has(path string, mode os.FileMode) {
	h.t.Helper()
	info, err := os.Stat(h.path(path))
	if err != nil || info.Mode().Perm() != mode {
		h.t.Errorf("%s: %v, %v; want the mode %v", path, info, err, mode)
	}
}

func (h host) lacks(path string) {
	h.t.Helper()
	if _, err := os.Lstat(h.path(path)); !os.IsNotExist(err) {
		h.t.Errorf("%s is still there: %v", path, err)
	}
}

func (h host) holds(path, want string) {
	h.t.Helper()
	if got := string(read(h.t, h.path(path))); got != want {
		h.t.Errorf("%s: got %q, want %q", path, got, want)
	}
}

// TestPackageAgain: the same sources give the same package.
func TestPackageAgain(t *testing.T) {
	t.Parallel()
	m := release(t)
	again := filepath.Join(t.TempDir(), "again.deb")
	if err := run(naming, root, "scripts/package.sh", m.binary, goarch, again); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(read(t, filepath.Join(m.dist, m.name+".deb")), read(t, again)) {
		t.Error("made again, the package is another")
	}
}

// TestMaintainerScripts: they are shell, and ask for systemd before they call it.
func TestMaintainerScripts(t *testing.T) {
	t.Parallel()
	shell := testserver.Require(t, "sh")
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		path := filepath.Join(root, "deploy/package", name)
		output(t, shell, "-n", path)
		// With a root of its own given, there is nothing to tell systemd.
		if err := run([]string{"DPKG_ROOT=" + t.TempDir(), "PATH=/nonexistent"}, ".", shell, path, "configure", "1.0"); err != nil {
			t.Error(err)
		}
	}
}
