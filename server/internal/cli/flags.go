package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/config"
)

// groupOf is the annotation of a flag with its heading in help texts.
const groupOf = "weir_group"

// fromVariable is the annotation of a flag that an environment variable can set: the settings of
// servers, and the addresses and credentials of the store and of the admin listener. Other flags can
// only be given on the command line.
const fromVariable = "weir_variable"

// hint leads from a mistake in the flags of a command to its help. It says which flag was probably
// meant by one that the command does not have, or else which arguments it takes.
func hint(cmd *cobra.Command, err error) string {
	const see = "; see"
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) {
		return see
	}
	// With one dash, the name is taken for flags of one letter each.
	name := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName())
	name, _, _ = strings.Cut(name, "=")
	var names, longer []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
			if strings.HasPrefix(f.Name, name) {
				longer = append(longer, f.Name)
			}
		}
	})
	meant := config.Nearest(name, names)
	switch {
	case slices.Contains(names, name):
		meant = name
	case name == "rules" && slices.Contains(names, "config"):
		meant = "config" // which has the rules
	case len(longer) == 1 && len(name) > 2:
		meant = longer[0]
	}
	switch {
	case meant != "":
		return "; did you mean --" + meant + "? See"
	case strings.Contains(cmd.Use, " "):
		return "; want " + cmd.UseLine() + see
	}
	return see
}

// bind defines the flag of a setting.
func bind(cmd *cobra.Command, s *app.Setting) {
	flags, help := cmd.Flags(), strings.ReplaceAll(s.Help, "\n", " ")
	switch field := s.Field.(type) {
	case *string:
		flags.StringVar(field, s.Flag, s.Default.(string), help)
	case *bool:
		flags.BoolVar(field, s.Flag, s.Default.(bool), help)
	case *int:
		flags.IntVar(field, s.Flag, s.Default.(int), help)
	case *float64:
		flags.Float64Var(field, s.Flag, s.Default.(float64), help)
	case *time.Duration:
		flags.DurationVar(field, s.Flag, s.Default.(time.Duration), help)
	case *[]string:
		flags.StringSliceVar(field, s.Flag, nil, help)
	case app.Value:
		flags.Var(field, s.Flag, help)
	default:
		panic(fmt.Sprintf("the setting %s has a field of type %T", s.Flag, field))
	}
	flags.Lookup(s.Flag).Annotations = map[string][]string{groupOf: {s.Group}, fromVariable: nil}
	if len(s.Words) > 0 {
		mustComplete(cmd.RegisterFlagCompletionFunc(s.Flag, completeWords(s.Words...)))
	}
}

// A removed flag takes no value. Its text says what became of it.
type removed string

// Set returns the text as an error.
func (r removed) Set(string) error { return errors.New(string(r)) }

// String returns nothing, as if the flag were not set.
func (removed) String() string { return "" }

// Type names the kind of value in help texts, which do not show the flag.
func (removed) Type() string { return "string" }

// bindRemoved defines a flag that was removed.
func bindRemoved(cmd *cobra.Command, flag, text string) {
	cmd.Flags().Var(removed(text), flag, "")
	f := cmd.Flags().Lookup(flag)
	f.Hidden, f.Annotations = true, map[string][]string{fromVariable: nil}
}

// variableOf names the environment variable of a flag: WEIR_LOG_FORMAT for log-format.
func variableOf(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hasVariable reports whether a flag has an environment variable.
func hasVariable(f *pflag.Flag) bool {
	_, has := f.Annotations[fromVariable]
	return has
}

// applyEnvironment sets the flags that were not given from their variables, which counts
// as giving them. An empty variable counts as unset.
func applyEnvironment(cmd *cobra.Command) error {
	var firstErr error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variableOf(f.Name))
		if !hasVariable(f) || f.Changed || value == "" || firstErr != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			firstErr = fmt.Errorf("invalid value %q in $%s: %w", value, variableOf(f.Name), err)
		}
		f.Changed = true
	})
	return firstErr
}

// maxHelpWidth bounds the lines of help texts, which are hard to read beyond it.
const maxHelpWidth = 100

// printFlags prints the help of a command's flags under their headings, in the order in
// which these first appear, wrapped to the terminal.
func printFlags(cmd *cobra.Command) string {
	width := maxHelpWidth
	if columns := cmp.Or(terminalWidth(cmd.OutOrStdout()), atoi(os.Getenv("COLUMNS"))); columns > 0 {
		width = min(width, max(columns, 40))
	}
	var order []string
	groups := map[string]*strings.Builder{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "Flags"
		if under := f.Annotations[groupOf]; len(under) > 0 {
			name = under[0]
		}
		if groups[name] == nil {
			groups[name] = new(strings.Builder)
			order = append(order, name)
		}
		writeFlag(groups[name], f, width)
	})
	var all strings.Builder
	for _, name := range order {
		fmt.Fprintf(&all, "\n%s:\n%s", name, groups[name])
	}
	return all.String()
}

// writeFlag writes the help of one flag.
func writeFlag(w io.Writer, f *pflag.Flag, width int) {
	name, words := describeFlag(f)
	fmt.Fprintln(w, "  "+name)
	const indent = "      "
	line := ""
	for _, word := range words {
		if line != "" && len(indent+line)+1+len([]rune(word)) > width {
			fmt.Fprintln(w, indent+line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	fmt.Fprintln(w, indent+line)
}

// describeFlag returns a flag with its type, and the words of its help with its default
// and its variable.
func describeFlag(f *pflag.Flag) (name string, words []string) {
	kind, usage := pflag.UnquoteUsage(f)
	name = strings.TrimSpace("--" + f.Name + " " + kind)
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	words = strings.Fields(usage)
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
	default:
		words = append(words, "(default "+f.DefValue+")")
	}
	if hasVariable(f) {
		words = append(words, "[$"+variableOf(f.Name)+"]")
	}
	return name, words
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// terminalWidth returns the columns of a terminal; 0 if w is none.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	return columnsOf(file)
}
