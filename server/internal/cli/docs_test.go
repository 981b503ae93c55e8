package cli

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/server/internal/config"
)

var word = regexp.MustCompile(`'[^']*'|\S+`)

// TestRulesDocs runs the commands of the pages about rules in a folder with the files
// that stand there, and reads their rules.
func TestRulesDocs(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, page := range []string{"docs/configuration.md", "docs/customers.md", "docs/envoy.md", "docs/envoy-gateway.md", "docs/gateways.md", "docs/litellm.md", "docs/migrating.md", "docs/nginx.md", "docs/rlqs.md", "docs/troubleshooting.md"} {
		pages.Hold(t, page, nil, func(b pages.Block) string {
			save(t, b)
			if b.File == "overlay.yaml" {
				if _, err := config.ParseOverlay("docs", []byte(b.Text)); err != nil {
					t.Errorf("%s:%d: %v", b.Page, b.Line, err)
				}
			} else if b.Language == "yaml" && b.File != "bad.yaml" {
				if _, err := config.Parse("docs", []byte(b.Text)); err != nil {
					t.Errorf("%s:%d: %v", b.Page, b.Line, err)
				}
			}
			if strings.HasPrefix(b.File, "ask-") {
				if ask, err := os.ReadFile("ask.conf"); err != nil || !strings.Contains(string(ask), strings.TrimSpace(b.Text)) {
					t.Errorf("%s:%d: convert writes otherwise: %v\n%s", b.Page, b.Line, err, ask)
				}
			}
			if b.Language != "console" {
				return b.Text
			}
			line, _, _ := strings.Cut(b.Text, "\n")
			_, printed := executed(t, strings.TrimPrefix(line, "$ "))
			return line + "\n" + printed
		})
	}
}

// TestFlagsDocs writes, or compares, the tables of flags in docs/cli.md: those of weir serve,
// and those that weir models has of its own.
func TestFlagsDocs(t *testing.T) {
	t.Parallel()
	serve := newServe().Flags()
	pages.Section(t, "docs/cli.md", "serve", flagTables(serve, nil))
	pages.Section(t, "docs/cli.md", "models", flagTables(newModels().Flags(), serve))
}

// flagTables returns a table for each group of flags that others lack or have another default.
func flagTables(flags, others *pflag.FlagSet) string {
	table, group := "", ""
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || others != nil && others.Lookup(f.Name) != nil && others.Lookup(f.Name).DefValue == f.DefValue {
			return
		}
		value := ""
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		if under := f.Annotations[groupOf][0]; under != group {
			group = under
			table += "\n" + group + ":\n\n| flag | default | |\n|---|---|---|\n"
		}
		table += "| `--" + f.Name + "` | " + value + " | " + strings.ReplaceAll(f.Usage, "|", `\|`) + " |\n"
	})
	return strings.TrimPrefix(table, "\n")
}

// TestTryDocs runs what the pages say of weir simulate and weir replay, with a log and
// rules beside them.
func TestTryDocs(t *testing.T) {
	const replayed = "server/internal/cli/testdata/replay/"
	t.Chdir(t.TempDir())
	copyTo(t, pages.Path(replayed+"access.log"), "access.log")
	copyTo(t, pages.Path(replayed+"rules.yaml"), "rules.yaml")
	for _, b := range pages.Mine(t, "docs/simulate.md") {
		for _, line := range b.Commands() {
			if code, printed := executed(t, line); code != ExitOK || printed == "" {
				t.Errorf("%s:%d: %s: exit code %d\n%s", b.Page, b.Line, line, code, printed)
			}
		}
	}
}

func save(t *testing.T, b pages.Block) {
	t.Helper()
	if b.File != "" {
		writeFile(t, b.File, []byte(b.Text))
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, text)
}

func writeFile(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// executed is how a command line ends, and what it prints.
func executed(t *testing.T, line string) (code int, printed string) {
	t.Helper()
	args := word.FindAllString(line, -1)
	if len(args) < 2 || args[0] != "weir" {
		t.Fatalf("%q does not begin with weir", line)
	}
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	var out bytes.Buffer
	code = Execute(context.Background(), args[1:], &out, &out)
	return code, out.String()
}

// TestLimitsDocs holds the table of limits in docs/operations.md against the flags.
func TestLimitsDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(pages.Path("docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Large and hostile requests\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (\\S+) \\|").FindAllStringSubmatch(section, -1)
	if len(rows) != 10 {
		t.Fatalf("%d limits", len(rows))
	}
	flags := newServe().Flags()
	for _, row := range rows {
		if f := flags.Lookup(row[1]); f == nil || f.DefValue != row[2] {
			t.Errorf("--%s: the page says %s, the flag is %v", row[1], row[2], f)
		}
	}
}
