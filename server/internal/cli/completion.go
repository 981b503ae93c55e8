package cli

import (
	"strings"

	"github.com/spf13/cobra"
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

// mustComplete panics where a completion is for a flag that does not exist.
func mustComplete(err error) {
	if err != nil {
		panic(err) // The flags are our own.
	}
}
