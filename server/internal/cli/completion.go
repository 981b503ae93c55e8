package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/config"
)

// completeFiles completes arguments with folders and with files of these
// extensions.
func completeFiles(extensions ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

// completeWords completes a flag with words, behind some of which more follows.
func completeWords(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		for _, word := range words {
			if strings.HasSuffix(word, "/") {
				directive |= cobra.ShellCompDirectiveNoSpace
			}
		}
		return words, directive
	}
}

// completeServe completes the flags of weir serve.
func completeServe(cmd *cobra.Command) {
	for flag, complete := range map[string]cobra.CompletionFunc{
		"config":           completeFiles("yaml", "yml"),
		"store":            completeWords("memory", "redis://", "rediss://", "unix:///"),
		"headers":          completeWords(strings.Split(ratelimitheader.StyleNames(), ", ")...),
		"log-format":       completeWords("auto", "text", "json"),
		"on-store-failure": completeWords(strings.Split(config.StoreFailureNames(), ", ")...),
		"log-level":        completeWords("debug", "info", "warn", "error"),
	} {
		mustComplete(cmd.RegisterFlagCompletionFunc(flag, complete))
	}
}

// mustComplete panics where a completion is for a flag that does not exist.
func mustComplete(err error) {
	if err != nil {
		panic(err) // The flags are our own.
	}
}
