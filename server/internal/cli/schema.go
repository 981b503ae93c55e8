package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/config"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rules files, for editors",
		Long: `Schema prints the JSON Schema (draft 7) of rules files. An editor that is told of
it completes keys, shows what they mean and marks mistakes; "weir check" finds
those too that a schema cannot.

The first line of a rules file tells editors with the YAML language server:

  # yaml-language-server: $schema=weir.schema.json`,
		Example: `  weir schema > weir.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
