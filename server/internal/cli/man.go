package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "Print the manual page, in roff",
		Example: "  weir man | man -l -",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), manual(cmd.Root()))
			return err
		},
	}
}

// manual returns the manual page of a command and its subcommands.
func manual(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(".TH WEIR 1 \"\" Weir \"User Commands\"\n")
	fmt.Fprintf(&b, ".SH NAME\nweir \\- %s\n", roff(root.Short))
	b.WriteString(".SH SYNOPSIS\n.B weir\n.I command\n[flags]\n.SH DESCRIPTION\n")
	preformatted(&b, root.Long)
	b.WriteString(".SH COMMANDS\n")
	for _, cmd := range everyCommand(root) {
		if !cmd.Hidden && cmd.Name() != "help" && cmd.Name() != "completion" && cmd.Parent().Name() != "completion" {
			manualOf(&b, cmd)
		}
	}
	b.WriteString(".SH ENVIRONMENT\nEach flag can be set by the variable in brackets behind it. A flag given on the command line has precedence.\n")
	return b.String()
}

// manualOf writes the section of one subcommand.
func manualOf(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, ".SS %s\n", quoteRoff(cmd.UseLine()))
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	preformatted(b, text)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, words := describeFlag(f)
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(name), roff(strings.Join(words, " ")))
	})
	if cmd.Example != "" {
		b.WriteString(".PP\nExamples:\n")
		preformatted(b, cmd.Example)
	}
}

// preformatted writes text whose lines stay as they are.
func preformatted(b *strings.Builder, text string) {
	b.WriteString(".PP\n.nf\n")
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		b.WriteString(roff(line))
	}
	b.WriteString(".fi\n")
}

// roff escapes a line: a backslash, a hyphen that is one, and a dot or quote at its beginning.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "'", `\(aq`).Replace(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

// quoteRoff returns text as one argument of a macro.
func quoteRoff(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
