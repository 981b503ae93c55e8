package check

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	root = "../.."
	// What the release under test is called. Its date is 2026-01-02.
	version = "v1.2.3"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	epoch   = "1767312000"
	builder = "https://ci.example.org/release"
)

// naming makes a release that is called so, whatever the checkout.
var naming = []string{"VERSION=" + version, "COMMIT=" + commit, "SOURCE_DATE_EPOCH=" + epoch}

// scratch is a folder for what all tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "weir"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// A made release.
type made struct {
	dist   string // folder with what is offered
	name   string // of this platform's files in it, without ending
	binary string // from the archive
}

var makeRelease = sync.OnceValues(func() (made, error) {
	m := made{dist: filepath.Join(scratch, "dist"), name: "weir_1.2.3_linux_" + runtime.GOARCH}
	variables := append(slices.Clone(naming), "PLATFORMS=linux/"+runtime.GOARCH, "DIST="+m.dist, "BUILDER="+builder)
	if _, err := exec.LookPath("ssh-keygen"); err == nil {
		key := filepath.Join(scratch, "key")
		if err := run(nil, scratch, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key); err != nil {
			return m, err
		}
		variables = append(variables, "SIGNING_KEY="+key)
	}
	err := run(variables, root, "scripts/release.sh")
	if err != nil {
		return m, err
	}
	m.binary, err = extract(filepath.Join(m.dist, m.name+".tar.gz"), scratch)
	return m, err
})

// release makes this platform's part of a release, once for all tests.
func release(t *testing.T) made {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: a release takes a minute, which -short does not have")
	}
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED, NOTHING WAS TESTED: needs Linux")
	}
	m, err := makeRelease()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs a program in a folder, with variables added to the environment.
func run(variables []string, dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), variables...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// output returns what a program prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// extract unpacks an archive and returns the path of the binary in it.
func extract(archive, dir string) (string, error) {
	file, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return "", err
	}
	binary := ""
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return binary, nil
		}
		if err != nil {
			return "", err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, content, header.FileInfo().Mode()); err != nil {
			return "", err
		}
		if filepath.Base(path) == "weir" {
			binary = path
		}
	}
}

// write writes a file, and the folder that it is in.
func write[T string | []byte](t *testing.T, path string, content T, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestChecksums: each file that is offered has its checksum.
func TestChecksums(t *testing.T) {
	t.Parallel()
	m := release(t)
	want := m.sum(t, "provenance.intoto.json") + m.sums(t)
	if got := string(read(t, filepath.Join(m.dist, "checksums.txt"))); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// sum is the line of a file in the list of checksums, and sums the lines of all files that
// are installed.
func (m made) sum(t *testing.T, name string) string {
	t.Helper()
	return fmt.Sprintf("%x  %s\n", sha256.Sum256(read(t, filepath.Join(m.dist, name))), name)
}

func (m made) sums(t *testing.T) string {
	t.Helper()
	return m.sum(t, m.name+".cdx.json") + m.sum(t, m.name+".deb") + m.sum(t, m.name+".tar.gz") + m.sum(t, "weir_1.2.3_modules.tar.gz")
}

// TestBinary: what is offered says what it is and needs nothing of its host.
func TestBinary(t *testing.T) {
	t.Parallel()
	m := release(t)
	want := fmt.Sprintf("weir %s (%s, 2026-01-02T00:00:00Z) %s linux/%s\n", version, commit, runtime.Version(), runtime.GOARCH)
	if got := output(t, m.binary, "version"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	file, err := elf.Open(m.binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("links %v, %v: want a static binary", libraries, err)
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("wants an interpreter")
		}
	}
	for _, beside := range []string{"LICENSE", "README.md", "SECURITY.md", "THIRD_PARTY_LICENSES"} {
		if len(read(t, filepath.Join(filepath.Dir(m.binary), beside))) == 0 {
			t.Errorf("%s is empty", beside)
		}
	}
}

// TestLicenses: every module in the binary has its licence beside it.
func TestLicenses(t *testing.T) {
	t.Parallel()
	m := release(t)
	licences := string(read(t, filepath.Join(filepath.Dir(m.binary), "THIRD_PARTY_LICENSES")))
	for path, version := range modules(t, m.binary) {
		if !own(path) && !strings.Contains(licences, "==== "+path+" "+version+": ") {
			t.Errorf("no licence of %s %s", path, version)
		}
	}
}

// own reports whether a module is one of this repository's.
func own(path string) bool { return strings.HasPrefix(path+"/", "github.com/weirlimit/weir/") }

// modules returns the versions of the modules linked into a binary, by path.
func modules(t *testing.T, binary string) map[string]string {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]string{}
	for _, dep := range info.Deps {
		linked[dep.Path] = dep.Version
		if own(dep.Path) {
			linked[dep.Path] = version
		}
	}
	if len(linked) < 5 {
		t.Fatalf("%s names %d modules", binary, len(linked))
	}
	return linked
}

// TestMaterials: the bill of materials names exactly what is in the binary.
func TestMaterials(t *testing.T) {
	t.Parallel()
	m := release(t)
	var bill struct {
		BOMFormat string
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(read(t, filepath.Join(m.dist, m.name+".cdx.json")), &bill); err != nil {
		t.Fatal(err)
	}
	if c := bill.Metadata.Component; bill.BOMFormat != "CycloneDX" || c.Name != "github.com/weirlimit/weir/server" || c.Version != version {
		t.Errorf("a bill of %+v in the format %q", c, bill.BOMFormat)
	}
	got := map[string]string{}
	for _, c := range bill.Components {
		got[c.Name] = c.Version
	}
	delete(got, "std")
	if want := modules(t, m.binary); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// sources lists the project's files.
func sources(t *testing.T) []string {
	t.Helper()
	list := output(t, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	return strings.FieldsFunc(list, func(r rune) bool { return r == 0 })
}
