package cli

import "github.com/spf13/cobra"

// completeFiles completes arguments with folders and with files of these
// extensions.
func completeFiles(extensions ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

// mustComplete panics where a completion is for a flag that does not exist.
func mustComplete(err error) {
	if err != nil {
		panic(err) // The flags are our own.
	}
}
