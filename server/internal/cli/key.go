package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/rules"
)

// keyFlags are the flags of weir key's subcommands. Not every one has all.
type keyFlags struct {
	admin      adminClient
	json       bool
	name       string
	budget     string
	cost       string
	lasts, til string
	limit      string
	by, note   string
	raise      string
}

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Show a key of a running server, or change it for a while",
		Long: `Key shows the state of a key of a running server, or changes the key: it resets the
key, moves what it has used to another key, or blocks it, allows it, raises its limit or
gives it another one for a while. It calls the server's admin listener.

Write the key like a request: the domain, a space, and its entries in their order,
separated by commas, or by spaces. A backslash escapes a comma in a value. Keys charged
by CL.THROTTLE are in the domain cl.throttle, as key=KEY. Those of limits in calls are
call=KEY, with the name of the limit in --name.

A change applies to all instances that share a Redis, or to the one instance with a
store in memory. It survives a reload of the rules, and ends by itself.

Exit codes: 0 done (get: the cost would be granted now), 1 get: the cost would be
refused now; other commands: the change applies on this instance, but its peers may
not have it yet, 2 the command failed.`,
		Example: `  weir key get shop user=42
  weir key get shop user=42,path=/login --cost 10
  weir key get llm model=large --budget tokens
  weir key block shop user=42 --for 2h
  weir key override shop user=42 --limit '100/min burst 20' --for 24h
  weir key override llm user=ann --name user --limit '$300/month' --for 48h
  weir key raise llm user=ann --name user --by '$50' --until month-end
  weir key override shop call=user:42 --name login --limit 100/min
  weir key clear shop user=42`,
		Args: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("key is followed by get, reset, block, allow, override, raise, move or clear, not by %q; see 'weir key --help'", strings.Join(args, " "))
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	for _, action := range keyActions {
		cmd.AddCommand(newKeyAction(action))
	}
	return cmd
}

// keyAction is what a subcommand does.
type keyAction struct {
	name, short, example string
	costs, lasts, limits bool // which flags it has
	raises, ends         bool
}

var keyActions = []keyAction{
	{name: "get", short: "Show a key's state, and when its next request would be granted", costs: true, example: "  weir key get shop user=42 --cost 10"},
	{name: "reset", short: "Forget what a key has used", example: "  weir key reset shop user=42"},
	{name: "block", short: "Refuse all requests of a key for a while", lasts: true, example: "  weir key block shop user=42 --for 2h"},
	{name: "allow", short: "Grant all requests of a key for a while", lasts: true, example: "  weir key allow shop user=42 --until 2030-01-01T00:00:00Z"},
	{name: "override", short: "Give a key another limit for a while", lasts: true, limits: true, example: "  weir key override shop user=42 --limit '100/min burst 20' --for 24h"},
	{name: "raise", short: "Add to a limit of a key for a while", raises: true, example: "  weir key raise llm user=ann --name user --by '$50' --until month-end --note 'demo, approved by Bo'"},
	{name: "move", short: "Charge what a key has used to another key, and forget it", example: "  weir key move llm team=web team=platform"},
	{name: "clear", short: "End a block, an allowance, another limit or a raise of a key", ends: true, example: "  weir key clear shop user=42"},
}

func (a *keyAction) use() string {
	if a.name == "move" {
		return "move DOMAIN KEY=VALUE,… KEY=VALUE,…"
	}
	return a.name + " DOMAIN KEY=VALUE,…"
}

func newKeyAction(action keyAction) *cobra.Command {
	var f keyFlags
	cmd := &cobra.Command{
		Use:     action.use(),
		Short:   action.short,
		Example: action.example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) < 2 && f.budget == "" && !strings.Contains(args[0], " ") {
				return fmt.Errorf("key %s needs a domain and at least one KEY=VALUE; see 'weir key %s --help'", action.name, action.name)
			}
			return nil
		},
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if action.name == "get" {
				return f.get(cmd, args)
			}
			return f.change(cmd, action.name, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.admin.url, "admin", app.DefaultAdmin, "admin listener of the server: host:port or a URL")
	flags.StringVar(&f.admin.token, "admin-token-file", "", "file with the token for the listener, on its first line")
	defineInsecureToken(flags, &f.admin.clear)
	flags.StringVar(&f.admin.tls.ca, "admin-ca", "", "CA certificates that sign the listener's, PEM (default: the system's)")
	flags.StringVar(&f.admin.tls.cert, "admin-cert", "", "client certificate, PEM")
	flags.StringVar(&f.admin.tls.key, "admin-key", "", "key of the client certificate, PEM")
	flags.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{fromVariable: nil} })
	flags.BoolVar(&f.json, "json", false, "print the server's JSON answer")
	flags.StringVar(&f.name, "name", "", "name of the limit, if the key has several")
	flags.StringVar(&f.budget, "budget", "", "a budget of the domain or of a descriptor on the path of the key, in place of the key's limits")
	if action.costs {
		flags.StringVar(&f.cost, "cost", "1", "number of units to ask for, or dollars such as '$2.50'")
	}
	if action.lasts {
		flags.StringVar(&f.lasts, "for", "", "duration of the change, such as 90m; at most 720h (default 1h)")
		flags.StringVar(&f.til, "until", "", "end of the change in place of --for, such as 2030-01-01T00:00:00Z")
	}
	if action.raises {
		flags.StringVar(&f.by, "by", "", "what the limit grants more, in units such as 500, or in dollars such as '$50'")
		flags.StringVar(&f.lasts, "for", "", "duration of the raise, such as 90m; at most 8784h")
		flags.StringVar(&f.til, "until", "", "end of the raise in place of --for, such as 2030-01-01T00:00:00Z, or month-end")
		flags.StringVar(&f.note, "note", "", "why, for those who look at the key or the log")
	}
	if action.ends {
		flags.StringVar(&f.raise, "raise", "", "end the raise with this ID, and nothing else")
	}
	if action.limits {
		flags.StringVar(&f.limit, "limit", "", "the limit to apply, such as '100/min burst 20', or '$7000/month' in place of a limit of dollars")
	}
	return cmd
}

// get prints the state of a key.
func (f *keyFlags) get(cmd *cobra.Command, args []string) error {
	domain, entries, err := parseKey(args)
	if err != nil {
		return err
	}
	query := url.Values{"domain": {domain}, "cost": {f.cost}}
	for _, e := range entries {
		query.Add("entry", e.Key+"="+e.Value)
	}
	if f.name != "" {
		query.Set("name", f.name)
	}
	if f.budget != "" {
		query.Set("budget", f.budget)
	}
	body, err := f.admin.call(cmd.Context(), http.MethodGet, "/v1/key?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	var answer struct {
		Passes      bool `json:"passes"`
		Alternative int  `json:"alternative"`
		Limits      []struct {
			Explanation string `json:"explanation"`
		} `json:"limits"`
	}
	if err := f.print(cmd.OutOrStdout(), body, &answer); err != nil {
		return err
	}
	for _, l := range answer.Limits {
		if !f.json {
			fmt.Fprintln(cmd.OutOrStdout(), printed(l.Explanation))
		}
	}
	switch {
	case answer.Passes && answer.Alternative > 0 && !f.json:
		fmt.Fprintf(cmd.OutOrStdout(), "alternative %d grants a cost of %s now\n", answer.Alternative, f.cost)
	case !answer.Passes && answer.Alternative > 0:
		return &problemsFound{fmt.Errorf("a cost of %s does not pass now; the soonest is alternative %d", f.cost, answer.Alternative)}
	case !answer.Passes:
		return &problemsFound{fmt.Errorf("a cost of %s does not pass now", f.cost)}
	}
	return nil
}

// changeAnswer is what the server says of a change.
type changeAnswer struct {
	Keys []struct {
		Name        string `json:"name"`
		Key         string `json:"key"`
		Alternative int    `json:"alternative"`
		Changed     bool   `json:"changed"`
		Override    *struct {
			Limit   string `json:"limit"`
			Blocked bool   `json:"blocked"`
			Until   string `json:"until"`
		} `json:"override"`
		Raise *struct {
			ID    string `json:"id"`
			Adds  string `json:"adds"`
			Until string `json:"until"`
		} `json:"raise"`
	} `json:"keys"`
	Spread      string `json:"spread"`
	SpreadError string `json:"spread_error"`
}

// change does something to a key.
func (f *keyFlags) change(cmd *cobra.Command, action string, args []string) error {
	var to []map[string]string
	if action == "move" {
		if len(args) < 3 {
			return errors.New("key move needs a domain, the key to move, and the key to move it to, such as: weir key move llm team=web team=platform")
		}
		_, aim, err := parseKey([]string{args[0], args[len(args)-1]})
		if err != nil {
			return err
		}
		to, args = entriesOf(aim), args[:len(args)-1]
	}
	domain, parsed, err := parseKey(args)
	if err != nil {
		return err
	}
	entries := entriesOf(parsed)
	if action == "override" {
		if f.limit == "" {
			return errors.New("key override needs --limit, such as --limit '100/min burst 20'")
		}
	}
	if action == "raise" && (f.by == "" || f.lasts == "" && f.til == "") {
		return errors.New("key raise needs --by and --until, such as --by '$50' --until month-end")
	}
	asked := map[string]any{"domain": domain, "entries": entries}
	if to != nil {
		asked["to"] = to
	}
	for name, value := range map[string]string{"name": f.name, "budget": f.budget, "for": f.lasts, "until": f.til, "limit": f.limit, "by": f.by, "note": f.note, "raise": f.raise} {
		if value != "" {
			asked[name] = value
		}
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	body, err := f.admin.call(cmd.Context(), http.MethodPost, "/v1/key/"+action, text)
	if err != nil {
		return err
	}
	var answer changeAnswer
	if err := f.print(cmd.OutOrStdout(), body, &answer); err != nil {
		return err
	}
	if !f.json {
		answer.describe(cmd.OutOrStdout(), action)
	}
	if answer.Spread == "pending" {
		return &problemsFound{errors.New("in force on this instance; other instances are not notified yet: " + printed(answer.SpreadError))}
	}
	return nil
}

// entriesOf returns entries as the server reads them.
func entriesOf(parsed []rules.Entry) []map[string]string {
	entries := []map[string]string{}
	for _, e := range parsed {
		entries = append(entries, map[string]string{"key": e.Key, "value": e.Value})
	}
	return entries
}

// complete completes a domain, and then the entries that the server's rules have there.
func (f *keyFlags) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const patience = time.Second
	if err := applyEnvironment(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	var answer struct {
		Domains []string
		Rules   []struct{ Path string }
	}
	body, err := f.admin.call(ctx, http.MethodGet, "/v1/rules", nil)
	if err != nil || json.Unmarshal(body, &answer) != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if len(args) == 0 {
		return answer.Domains, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, rule := range answer.Rules {
		path, found := strings.CutPrefix(rule.Path, args[0]+"/")
		entries := strings.Split(path, ",")
		if !found || len(entries) < len(args) {
			continue
		}
		word := entries[len(args)-1]
		if !strings.Contains(word, "=") {
			word += "="
		}
		if word != "=" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// print reads an answer, and prints it if it is wanted as it is.
func (f *keyFlags) print(w io.Writer, body []byte, answer any) error {
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("%s answered what is not JSON: is it an admin listener?", f.admin.url)
	}
	if f.json {
		_, err := w.Write(body)
		return err
	}
	return nil
}

// describe says in words what was done.
func (a *changeAnswer) describe(w io.Writer, action string) {
	where := map[string]string{"store": "", "all": " on all instances", "process": " on this instance", "pending": " on this instance"}[a.Spread]
	for _, k := range a.Keys {
		what := "reset"
		switch o := k.Override; {
		case action == "move" && !k.Changed:
			what = "nothing was used"
		case action == "move":
			what = "has what was used"
		case action == "clear" && k.Raise != nil:
			what = "raise " + k.Raise.ID + " of " + k.Raise.Adds + " ended"
		case k.Raise != nil:
			what = k.Raise.Adds + " more until " + k.Raise.Until + " (raise " + k.Raise.ID + ")"
		case action == "clear" && !k.Changed:
			what = "had no override on this instance; cleared"
		case action == "clear":
			what = "override cleared"
		case o == nil:
		case o.Blocked:
			what = "blocked until " + o.Until
		case o.Limit == "":
			what = "without a limit until " + o.Until
		default:
			what = o.Limit + " until " + o.Until
		}
		others := ""
		if k.Alternative > 0 {
			others = fmt.Sprintf("; this is alternative %d, and the others are as they were", k.Alternative)
		}
		fmt.Fprintf(w, "%s (%s): %s%s%s\n", printed(k.Name), printed(k.Key), printed(what), where, others)
	}
}

// printed keeps what a server says from commanding the terminal.
func printed(text string) string { return strings.Map(printable, text) }
