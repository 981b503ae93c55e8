package check

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const dockerfile = root + "/deploy/docker/Dockerfile"

// stages parses the Dockerfile, with every warning of BuildKit an error.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	parsed, err := parser.Parse(bytes.NewReader(read(t, dockerfile)))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range parsed.Warnings {
		t.Errorf("%s: %s", dockerfile, warning.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(name, description, _, message string, _ []parser.Range) {
		t.Errorf("%s: %s: %s (%s)", dockerfile, name, message, description)
	}})
	all, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("%d stages, want one that builds and one that ships", len(all))
	}
	return all
}

// instructionsOf returns a stage's instructions of one kind.
func instructionsOf[T any](stage instructions.Stage) []T {
	var found []T
	for _, command := range stage.Commands {
		if c, ok := command.(T); ok {
			found = append(found, c)
		}
	}
	return found
}

// TestImage: what is shipped runs the binary that was built, as nobody.
func TestImage(t *testing.T) {
	t.Parallel()
	shipped := stages(t)[1]
	var targets []string
	for _, c := range instructionsOf[*instructions.CopyCommand](shipped) {
		targets = append(targets, c.DestPath)
		for _, source := range c.SourcePaths {
			if _, err := os.Stat(filepath.Join(root, source)); c.From == "" && err != nil {
				t.Errorf("COPY %s: %v", source, err)
			}
		}
	}
	entry := instructionsOf[*instructions.EntrypointCommand](shipped)
	if len(entry) != 1 || entry[0].PrependShell || !slices.Contains(targets, entry[0].CmdLine[0]) {
		t.Errorf("ENTRYPOINT %v is none of what was copied: %v", entry, targets)
	}
	if !slices.Contains(targets, "/bin/ratelimit") {
		t.Errorf("Envoy Gateway starts /bin/ratelimit, which is none of what was copied: %v", targets)
	}
	user := instructionsOf[*instructions.UserCommand](shipped)
	if len(user) != 1 || user[0].User != nobody+":"+nobody {
		t.Errorf("USER %v, want %s by number", user, nobody)
	}
}

// TestImageStarts runs the image's command with its environment.
func TestImageStarts(t *testing.T) {
	t.Parallel()
	m := release(t)
	shipped := stages(t)[1]
	help := output(t, m.binary, "serve", "--help")
	var env []string
	for _, c := range instructionsOf[*instructions.EnvCommand](shipped) {
		for _, pair := range c.Env {
			env = append(env, pair.Key+"="+pair.Value)
			if !strings.Contains(help, "[$"+pair.Key+"]") {
				t.Errorf("ENV %s is no variable of serve", pair.Key)
			}
		}
	}
	if len(env) == 0 {
		t.Error("no ENV")
	}
	command := append([]string{m.binary}, instructionsOf[*instructions.CmdCommand](shipped)[0].CmdLine...)
	s := serve(t, served{command: command, env: env})
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := s.get(path); got != 200 {
			t.Errorf("%s: %d, want 200", path, got)
		}
	}
	s.stop()
}

// TestImageBuilds builds from what the build would be sent, as the Dockerfile does, and so in
// another folder than the release. scripts/reproduce.sh does that with nothing cached, which
// takes minutes.
func TestImageBuilds(t *testing.T) {
	t.Parallel()
	m := release(t)
	context := t.TempDir()
	send(t, context)
	if _, err := os.Stat(filepath.Join(context, ".git")); err == nil {
		t.Error("the repository is sent too")
	}
	var commands []string
	for _, c := range instructionsOf[*instructions.RunCommand](stages(t)[0]) {
		commands = append(commands, c.CmdLine...)
	}
	built := filepath.Join(t.TempDir(), "out")
	script := strings.NewReplacer("/out/", built+"/", "${TARGETOS}", "linux", "${TARGETARCH}", goarch).Replace(strings.Join(commands, "\n"))
	if !strings.Contains(script, "go mod download") || !strings.Contains(script, built+"/weir") {
		t.Fatalf("builds nothing: %s", script)
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run(naming, context, "sh", "-ec", script); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(read(t, m.binary), read(t, filepath.Join(built, "weir"))) {
		t.Error("the image's binary is not the release's")
	}
	if len(read(t, filepath.Join(built, "THIRD_PARTY_LICENSES"))) == 0 {
		t.Error("no licences")
	}
}

// send copies what the ignore file lets through.
func send(t *testing.T, context string) {
	t.Helper()
	patterns, err := ignorefile.ReadAll(bytes.NewReader(read(t, dockerfile+".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		switch {
		case err != nil:
			return err
		case skip && entry.IsDir():
			return filepath.SkipDir
		case skip:
			return nil
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		write(t, filepath.Join(context, name), read(t, path), info.Mode())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
