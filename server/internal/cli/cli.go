// Package cli is the command weir: one file for each subcommand.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of every subcommand.
const (
	ExitOK       = 0
	ExitProblems = 1 // what was asked for was done, and found something wrong
	ExitUsage    = 2 // what was asked for could not be begun
)

// problemsFound wraps the error of a subcommand that did its work and found
// something wrong. All other errors mean that it could not begin.
type problemsFound struct{ err error }

func (p *problemsFound) Error() string { return p.err.Error() }

func (p *problemsFound) Unwrap() error { return p.err }

// Execute runs the command with its arguments, the program's name left out, and
// returns the exit code. Answers go to out, everything else to errOut.
func Execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	printError(errOut, err)
	if found := new(problemsFound); errors.As(err, &found) {
		return ExitProblems
	}
	return ExitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "A rate limiter for many hosts: exact answers, one store",
		Long: `Weir decides whether a request fits a limit. All hosts of a service can share the
limit.

Start with "weir serve": without flags it serves demonstration rules from memory
and prints calls to try. To get from an access log to an enforced limit, follow
https://github.com/weirlimit/weir/blob/main/docs/quickstart.md

To complete commands in bash, run: source <(weir completion bash). For other shells
see "weir completion --help".

Exit codes: 0 success, 1 problems were found, 2 the command could not start.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return applyEnvironment(cmd) },
	}
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	const plainFlags = "\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	addTemplateFuncs()
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), plainFlags, "\n{{printFlags . | trimTrailingWhitespaces}}", 1))
	root.AddCommand(newServe(), newModels(), newCheck(), newSchema(), newConvert(), newSimulate(), newReplay(), newKey(), newReport(), newVersion())
	for _, cmd := range everyCommand(root) {
		nameGuide(cmd)
	}
	// All commands have it from the root.
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w%s '%s --help'", err, hint(cmd, err), cmd.CommandPath())
	})
	return root
}

// interruptible returns the context of a command, which also ends when the user interrupts.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

// addTemplateFuncs adds to a map that all commands of a process share.
var addTemplateFuncs = sync.OnceFunc(func() { cobra.AddTemplateFunc("printFlags", printFlags) })

// everyCommand returns the subcommands, and theirs.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		all = append(append(all, sub), everyCommand(sub)...)
	}
	return all
}

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

// docs is where the pages are.
const docs = "https://github.com/weirlimit/weir/blob/main/docs/"

// guides are the pages that say more about a subcommand than its help.
var guides = map[string]string{
	"check":    "configuration.md",
	"convert":  "nginx.md#convert-limit_req",
	"key":      "admin.md",
	"models":   "models.md",
	"replay":   "simulate.md#weir-replay",
	"report":   "spending.md",
	"schema":   "configuration.md#editors",
	"serve":    "quickstart.md",
	"simulate": "simulate.md",
	"version":  "install.md",
}

// nameGuide ends a subcommand's help with its page. The subcommands of key have key's.
func nameGuide(cmd *cobra.Command) {
	page := guides[cmd.Name()]
	if parent := cmd.Parent(); page == "" && parent != nil {
		page = guides[parent.Name()]
	}
	if cmd.Long == "" {
		cmd.Long = cmd.Short
	}
	cmd.Long += "\n\nMore: " + docs + page
}
