package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestUnknownFlag wants a flag that a command does not have answered with the one that was
// probably meant, or with the arguments of the command.
func TestUnknownFlag(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"models --moc":                         "weir: unknown flag: --moc; did you mean --mock? See 'weir models --help'",
		"models -mock":                         "weir: unknown shorthand flag: 'm' in -mock; did you mean --mock? See 'weir models --help'",
		"models -listen=x":                     "weir: unknown shorthand flag: 'l' in -listen=x; did you mean --listen? See 'weir models --help'",
		"models --upstream-key x":              "weir: unknown flag: --upstream-key; did you mean --upstream-key-file? See 'weir models --help'",
		"replay --rules rules.yaml log":        "weir: unknown flag: --rules; did you mean --config? See 'weir replay --help'",
		"check --config rules.yaml":            "weir: unknown flag: --config; want weir check PATH… [flags]; see 'weir check --help'",
		"check --xplain=3":                     "weir: unknown flag: --xplain; did you mean --explain? See 'weir check --help'",
		"key get --domain llm":                 "weir: unknown flag: --domain; want weir key get DOMAIN KEY=VALUE,… [flags]; see 'weir key get --help'",
		"convert litellm-prices --providr x p": "weir: unknown flag: --providr; did you mean --provider? See 'weir convert litellm-prices --help'",
		"key --zzzzzz":                         "weir: unknown flag: --zzzzzz; see 'weir key --help'",
		"--verson":                             "weir: unknown flag: --verson; did you mean --version? See 'weir --help'",
		"models --max-body x":                  `weir: invalid argument "x" for "--max-body" flag`,
		"models --config":                      "weir: flag needs an argument: --config; see 'weir models --help'",
	} {
		var errOut bytes.Buffer
		if code := Execute(t.Context(), strings.Fields(args), &bytes.Buffer{}, &errOut); code != ExitUsage || !strings.HasPrefix(errOut.String(), want) {
			t.Errorf("%s: %d %s, want %s", args, code, errOut.String(), want)
		}
	}
}

// TestNearestFlag wants each flag of each command suggested where its last letter is left out.
func TestNearestFlag(t *testing.T) {
	t.Parallel()
	root := newRoot()
	for _, cmd := range append(everyCommand(root), root) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		for _, name := range names {
			short := name[:len(name)-1]
			if len(name) < 4 || slices.Contains(names, short) {
				continue
			}
			err := new(cobra.Command).Flags().Parse([]string{"--" + short})
			if got := hint(cmd, err); !strings.HasPrefix(got, "; did you mean --") {
				t.Errorf("%s --%s: %s", cmd.CommandPath(), short, got)
			} else if meant := strings.TrimSuffix(strings.TrimPrefix(got, "; did you mean --"), "? See"); meant != name {
				t.Errorf("%s --%s: meant is %s, want %s", cmd.CommandPath(), short, meant, name)
			}
		}
	}
}
