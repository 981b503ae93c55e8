package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

func newScript() *cobra.Command {
	var limits []string
	var o redisstore.Options
	cmd := &cobra.Command{
		Use:   "script",
		Short: "Print the Lua script that decides in Redis, for gateways that call it themselves",
		Long: `Script prints the Lua script that decides in Redis. Its first comment documents the
arguments and the reply. With --limit it prints as JSON what a program in another
language needs to call the script for the same keys as Weir: the script's SHA-1, the
form of the keys, and each limit as an argument.

The output belongs to this version of Weir: print it again after an upgrade.`,
		Example: `  weir script > script.lua
  weir script --limit 'burst=10/s burst 20' --limit 'daily=1000/day' > recipe.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(limits) == 0 {
				_, err := io.WriteString(cmd.OutOrStdout(), redisstore.Script())
				return err
			}
			return printRecipe(cmd.OutOrStdout(), o, limits)
		},
	}
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "a `LIMIT` to prepare, as NAME=LIMIT or LIMIT; may be repeated")
	cmd.Flags().StringVar(&o.Prefix, "prefix", "weir:", "prefix of every key")
	return cmd
}

func printRecipe(out io.Writer, o redisstore.Options, texts []string) error {
	var limits []weir.Limit
	for _, text := range texts {
		name, rest, named := strings.Cut(text, "=")
		if !named {
			name, rest = "", text
		}
		limit, err := weir.ParseLimit(rest)
		if err != nil {
			return fmt.Errorf("--limit %q: %w", text, err)
		}
		limit.Name = name
		limits = append(limits, limit)
	}
	recipe, err := redisstore.NewRecipe(o, limits...)
	if err != nil {
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(recipe)
}
