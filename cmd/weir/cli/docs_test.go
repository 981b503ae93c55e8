package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/server/config"
)

var update = flag.Bool("update", false, "write what the commands print, and the table of variables, into the docs")

const rulesDocs = "../../../docs/configuration.md"

var (
	fence   = regexp.MustCompile("(?ms)^```(\\w+)(?: (\\S+))?\n(.*?)^```$")
	command = regexp.MustCompile(`'[^']*'|\S+`)
)

// TestRulesDocs runs the commands of docs/configuration.md in a folder with the
// files that stand there, and reads its rules.
func TestRulesDocs(t *testing.T) {
	text, err := os.ReadFile(rulesDocs)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.OpenRoot("../../../docs")
	if err != nil {
		t.Fatal(err)
	}
	defer docs.Close()
	t.Chdir(t.TempDir())
	commands := 0
	printed := fence.ReplaceAllStringFunc(string(text), func(block string) string {
		m := fence.FindStringSubmatch(block)
		language, file, content := m[1], m[2], m[3]
		if file != "" {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if language == "yaml" && file != "bad.yaml" {
			if _, err := config.Parse("docs", []byte(content)); err != nil {
				t.Error(err)
			}
		}
		if language != "console" {
			return block
		}
		commands++
		line, _, _ := strings.Cut(content, "\n")
		return fmt.Sprintf("```console\n%s\n%s```", line, printedBy(t, line))
	})
	if commands == 0 {
		t.Fatal("the docs have no command")
	}
	if printed == string(text) {
		return
	}
	if !*update {
		t.Fatalf("docs/configuration.md is not what the commands print, which is\n%s", printed)
	}
	if err := docs.WriteFile("configuration.md", []byte(printed), 0o644); err != nil {
		t.Fatal(err)
	}
}

// printedBy is what a command line prints.
func printedBy(t *testing.T, line string) string {
	t.Helper()
	args := command.FindAllString(line, -1)
	if len(args) < 2 || args[0] != "$" || args[1] != "weir" {
		t.Fatalf("%q does not begin with $ weir", line)
	}
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	var out bytes.Buffer
	Execute(context.Background(), args[2:], &out, &out)
	return out.String()
}
