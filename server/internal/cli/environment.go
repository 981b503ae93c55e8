package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variableOf names the environment variable of a flag: WEIR_LOG_FORMAT for
// log-format.
func variableOf(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// nameVariables adds to each flag's help which variable stands in for it.
func nameVariables(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage += " [$" + variableOf(f.Name) + "]"
	})
}

// applyEnvironment sets the flags that were not given from their variables, which
// counts as giving them. An empty variable counts as unset.
func applyEnvironment(cmd *cobra.Command) error {
	var firstErr error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variableOf(f.Name))
		if f.Changed || value == "" || f.Name == "help" || firstErr != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			firstErr = fmt.Errorf("invalid value %q in $%s: %w", value, variableOf(f.Name), err)
		}
		f.Changed = true
	})
	return firstErr
}
