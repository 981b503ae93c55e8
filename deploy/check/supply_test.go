package check

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestSignature verifies the checksums as docs/install.md says: they are signed by the
// key of who made the release, and by nobody else's.
func TestSignature(t *testing.T) {
	t.Parallel()
	m := release(t)
	testserver.Require(t, "ssh-keygen")
	dir := t.TempDir()
	signature := string(read(t, filepath.Join(m.dist, "checksums.txt.sig")))
	verify := func(key, text string) error {
		for name, content := range map[string]string{
			"allowed_signers": "release@example.org " + key + "\n", "checksums.txt": text, "checksums.txt.sig": signature,
		} {
			write(t, filepath.Join(dir, name), content, 0o600)
		}
		cmd := exec.Command("sh", "-c", block(t, "docs/install.md", "sh", "ssh-keygen"))
		cmd.Dir = dir
		return cmd.Run()
	}
	key, sums := string(read(t, filepath.Join(scratch, "key.pub"))), string(read(t, filepath.Join(m.dist, "checksums.txt")))
	if err := verify(key, sums); err != nil {
		t.Errorf("the signature is not the key's: %v", err)
	}
	if verify(key, sums+" ") == nil {
		t.Error("the signature is that of another text too")
	}
	other := filepath.Join(dir, "other")
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other)
	if verify(string(read(t, other+".pub")), sums) == nil {
		t.Error("the signature is that of another key too")
	}
}

// TestProvenance: a statement says of each file that is offered from which commit it
// was made, by whom and with what.
func TestProvenance(t *testing.T) {
	t.Parallel()
	m := release(t)
	type digest map[string]string
	var statement struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest digest
		}
		PredicateType string
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]string
				InternalParameters   map[string]string
				ResolvedDependencies []struct {
					URI    string
					Digest digest
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(m.dist, "provenance.intoto.json")), &statement); err != nil {
		t.Fatal(err)
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("a statement of the type %s with %s", statement.Type, statement.PredicateType)
	}
	got := ""
	for _, s := range statement.Subject {
		got += s.Digest["sha256"] + "  " + s.Name + "\n"
	}
	if want := m.sums(t); got != want {
		t.Errorf("it is about\n%swant\n%s", got, want)
	}
	b := statement.Predicate.BuildDefinition
	if from := b.ResolvedDependencies[0]; from.Digest["gitCommit"] != commit || !strings.HasSuffix(from.URI, "@"+commit) {
		t.Errorf("made from %+v", from)
	}
	if b.ExternalParameters["version"] != version || b.InternalParameters["go"] != runtime.Version() || statement.Predicate.RunDetails.Builder.ID != builder {
		t.Errorf("made by %+v: %+v", statement.Predicate.RunDetails, b)
	}
}

// program writes a shell script and returns its path.
func program(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	write(t, path, "#!/bin/sh\n"+text+"\n", 0o755)
	return path
}

// TestPin: each image that is not built here gets a digest behind its tag, and a new
// one when it is asked for again.
func TestPin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	docker, compose := filepath.Join(dir, "Dockerfile"), filepath.Join(dir, "compose.yaml")
	for from, to := range map[string]string{"deploy/docker/Dockerfile": docker, "deploy/compose/compose.yaml": compose} {
		write(t, to, read(t, filepath.Join(root, from)), 0o600)
	}
	pin := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(root, "scripts/pin.sh"), args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "FILES="+docker+" "+compose)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, digit := range []string{"1", "2"} {
		digest := "sha256:" + strings.Repeat(digit, 64)
		program(t, dir, "docker", `echo `+digest)
		if out, err := pin(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text := string(read(t, docker)) + string(read(t, compose))
		for _, image := range []string{"GO_IMAGE=golang:1.26.8-bookworm", "static-debian12:nonroot", "image: redis:7.4-alpine", "image: envoyproxy/envoy:distroless-v1.38.4"} {
			if !strings.Contains(text, image+"@"+digest+"\n") {
				t.Errorf("%s has no digest %s in\n%s", image, digest, text)
			}
		}
		if n := strings.Count(text, "@sha256:"); n != 6 {
			t.Errorf("%d digests, want 6", n)
		}
		if out, err := pin("--check"); err != nil || out != "" {
			t.Errorf("pinned, and yet: %s", out)
		}
	}
	program(t, dir, "docker", "exit 1")
	if _, err := pin(); err == nil {
		t.Error("a registry that cannot be reached is no failure")
	}
}

// TestVulnerabilities: a finding fails, and so does a failure of another kind; a
// database that cannot be reached is told in one line. It fails a release.
func TestVulnerabilities(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		code int
		want int
		line string
	}{
		"nothing":     {"echo No vulnerabilities found.", 0, 0, ""},
		"a finding":   {"echo Vulnerability", 3, 3, "Vulnerability"},
		"no database": {"echo 'govulncheck: fetching vulnerabilities: no such host'; echo more", 1, 0, "SKIPPED"},
		"no package":  {"echo 'govulncheck: loading packages'", 1, 1, "loading"},

		"release":              {"echo No vulnerabilities found.", 0, 0, ""},
		"release, a finding":   {"echo Vulnerability", 3, 3, "Vulnerability"},
		"release, no database": {"echo 'govulncheck: fetching vulnerabilities: no such host'", 1, 1, "a release needs it"},
	} {
		cmd := exec.Command(filepath.Join(root, "scripts/vulnerabilities.sh"))
		if strings.HasPrefix(name, "release") {
			cmd.Args = append(cmd.Args, "--required")
		}
		cmd.Env = append(os.Environ(), "GOVULNCHECK="+program(t, t.TempDir(), "govulncheck", fmt.Sprintf("%s; exit %d", c.says, c.code)))
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.want || !strings.Contains(string(out), c.line) || strings.Count(string(out), "\n") > 1 {
			t.Errorf("%s: %d, %q", name, got, out)
		}
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil || !strings.Contains(string(makefile), "\n\t@GO='$(GO)' scripts/vulnerabilities.sh --required\n\t@GO='$(GO)' scripts/release.sh\n") {
		t.Errorf("make release does not look for vulnerabilities first: %v", err)
	}
}
