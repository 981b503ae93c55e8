package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/lab/convert"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/rules"
)

// convertFlags are the flags of weir convert.
type convertFlags struct{ domain, output, nginx string }

func newConvert() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert FILE…",
		Short: "Convert nginx's limit_req to rules, and LiteLLM's prices to a price file",
		Long: `Convert reads nginx configurations with the files that they include, and writes a
rules file that refuses the same requests as their limit_req. The directives that make
nginx ask Weir follow as comments, or go to the file that --nginx names.

Convert lists on stderr, with file and line, everything that it cannot convert exactly.
The rules end with commands that replay an access log for each limit.

Exit codes: 0 everything was converted exactly, 1 something was not, 2 a file cannot be
read or is not an nginx configuration.`,
		Example: `  weir convert /etc/nginx/nginx.conf
  weir convert nginx.conf --output rules.yaml --nginx weir.conf`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("convert needs the path of an nginx configuration; see 'weir convert --help'")
			}
			return nil
		},
		ValidArgsFunction: completeFiles("conf"),
		RunE:              func(cmd *cobra.Command, files []string) error { return f.run(cmd, files) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.domain, "domain", "nginx", "domain of the rules")
	flags.StringVarP(&f.output, "output", "o", "", "write the rules to this file (default: stdout)")
	flags.StringVar(&f.nginx, "nginx", "", "write nginx's directives to this file (default: comments after the rules)")
	for _, name := range []string{"output", "nginx"} {
		mustComplete(cmd.RegisterFlagCompletionFunc(name, completeFiles("yaml", "yml", "conf")))
	}
	cmd.AddCommand(newConvertPrices())
	return cmd
}

func (f *convertFlags) run(cmd *cobra.Command, files []string) error {
	result, err := convert.NGINX(f.domain, files...)
	if err != nil {
		return err
	}
	text := result.Rules
	if _, err := rules.Parse("the rules", text); err != nil {
		return err
	}
	text = append(text, f.replays(result)...)
	if f.nginx == "" {
		text = append(text, commented(result.Servers)...)
	} else if err := os.WriteFile(f.nginx, append(result.Servers, '\n'), 0o644); err != nil {
		return err
	}
	if f.output == "" {
		_, err = cmd.OutOrStdout().Write(text)
	} else {
		err = os.WriteFile(f.output, text, 0o644)
	}
	if err != nil {
		return err
	}
	return f.report(cmd, result)
}

// replays returns the commands that replay an access log, as comments.
func (f *convertFlags) replays(result *convert.Result) []byte {
	if len(result.Replays) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("# Which requests of an access log each limit would have refused, by itself:\n")
	for _, r := range result.Replays {
		log, read := "access.log", ""
		if r.Pattern != "" {
			log, read = "-", "grep -P "+shellQuoted(r.Pattern)+" access.log | "
		}
		if r.Descriptor == "" {
			fmt.Fprintf(&b, "#   %s: the combined format does not have %s\n", shellQuoted(r.Zone), shellQuoted(r.Key))
			continue
		}
		fmt.Fprintf(&b, "#   %sweir replay %s --config %s --descriptor %s\n", read, log, shellQuoted(cmp.Or(f.output, "rules.yaml")), shellQuoted(r.Descriptor))
	}
	return b.Bytes()
}

var shellPlain = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

// shellQuoted is a word of a command line, without line breaks.
func shellQuoted(word string) string {
	if shellPlain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(strings.Map(printable, word), "'", `'\''`) + "'"
}

// report prints the directives that were not converted.
func (f *convertFlags) report(cmd *cobra.Command, result *convert.Result) error {
	for _, loss := range result.Lost {
		fmt.Fprintln(cmd.ErrOrStderr(), loss)
	}
	switch {
	case result.Limits == 0 && len(result.Lost) == 0:
		return &problemsFound{errors.New("no limit_req was found in a server or a location")}
	case len(result.Lost) > 0:
		return &problemsFound{fmt.Errorf("%s converted; %s not, or not exactly", report.Counted(result.Limits, "limit"), report.Counted(len(result.Lost), "directive"))}
	}
	return nil
}

// commented is a text as comments.
func commented(text []byte) []byte {
	if len(text) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteByte('\n')
	for line := range strings.Lines(string(text)) {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight("# "+strings.TrimRight(line, "\n"), " "))
	}
	return b.Bytes()
}
