package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/config"
	"github.com/weirlimit/weir/server/rules"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check PATH…",
		Short: "Check rules files without serving them",
		Long: `Check reads rules files, or folders of them, as "weir serve --config" does. It
says what they hold, or lists every mistake in them at once, each with its place
and what was probably meant.

Exit codes: 0 the rules are good, 1 they are not.`,
		Example: `  weir check rules.yaml
  weir check /etc/weir`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("check needs the path of a rules file or folder; see 'weir check --help'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, err := rules.Load(paths...)
			if problems := config.Problems(nil); errors.As(err, &problems) {
				return &problemsFound{err}
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), summary(set))
			return err
		},
	}
}

// summary says what a set of rules holds.
func summary(set *rules.Set) string {
	domains := set.Domains()
	return fmt.Sprintf("ok: %s (%s), %s",
		counted(len(domains), "domain"), strings.Join(domains, ", "), counted(len(set.Rules()), "rule"))
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
