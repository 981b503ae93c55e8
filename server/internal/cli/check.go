package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/settingfile"
	"github.com/weirlimit/weir/server/internal/store"

	"github.com/weirlimit/weir/internal/algo"
)

func newCheck() *cobra.Command {
	var requests, buckets []string
	var callersFile, overlayFile string
	var options app.Options
	cmd := &cobra.Command{
		Use:   "check PATH…",
		Short: "Check rules files, and explain which rules apply to a request",
		Long: `Check reads rules files, or folders of them, as "weir serve --config" does. It
prints a summary, or lists all mistakes at once, each with its line and column and a
suggestion.

With --explain it prints which rules apply to a request and why, which rules nearly
apply, and how each limit answers for a key that was never used. A request is
` + requestSyntax + `

With --explain-quota it does so for a bucket id of Envoy's rate limit quota service, whose
entries have no order. The rule needs quota: true, and exactly the keys of the id.

With --overlay it changes the rules as "weir serve --rules-overlay" does, and lists the
lines that change no rule.

With --callers it also reads a file of callers, as "weir serve --callers" does; you may
then leave out the rules. Mistakes are listed without the lines of the file, which can
contain secrets. With --explain it says which limit of a label is less than those of the
level below it come to, such as of all people of a team.

With --store it also checks the servers of a store, which the flags name as those of
"weir serve" do: that they do what Weir needs, with the permissions of the user, and that no
setting of theirs breaks limits.

Exit codes: 0 all is correct, 1 it is not, 2 a request or the command line
is invalid.`,
		Example: `  weir check rules.yaml
  weir check /etc/weir --callers /etc/weir-callers.yaml
  weir check --store redis://redis.internal:6379/0
  weir check rules.yaml --explain 'shop user=alice,path=/login'
  weir check rules.yaml --explain 'shop user=alice; path=/login' --explain 'shop user=a\,b'
  weir check rules.yaml --explain-quota 'shop path=/login,user=alice'`,
		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 && (callersFile == "" && !cmd.Flags().Changed("store") || len(requests)+len(buckets) > 0) {
				return errors.New("check needs the path of a rules file or folder; see 'weir check --help'")
			}
			if cmd.Flags().Changed("store") {
				if err := checkStore(cmd, &options); err != nil {
					return err
				}
			}
			var people *callers.Set
			if callersFile != "" {
				var err error
				if people, err = checkCallers(cmd, callersFile); err != nil {
					return err
				}
			}
			if len(paths) == 0 {
				return nil
			}
			return check(cmd, paths, overlayFile, people, requests, buckets)
		},
	}
	cmd.Flags().StringArrayVar(&requests, "explain", nil, "explain a request, such as 'shop user=alice,path=/login'; may be repeated")
	cmd.Flags().StringArrayVar(&buckets, "explain-quota", nil, "explain a bucket id of Envoy's quota service, such as 'shop path=/login,user=alice'; may be repeated")
	cmd.Flags().StringVar(&callersFile, "callers", "", "check a `file` of callers")
	cmd.Flags().StringVar(&overlayFile, "overlay", "", "change the rules by an overlay `file`, as serve --rules-overlay does")
	for _, s := range options.StoreSettings() {
		bind(cmd, &s)
	}
	_ = cmd.MarkFlagFilename("callers", "yaml", "yml")
	_ = cmd.MarkFlagFilename("overlay", "yaml", "yml")
	return cmd
}

// checkTimeout bounds the check of all servers of a store.
const checkTimeout = 10 * time.Second

// checkStore prints what is wrong with the settings of a store's servers.
func checkStore(cmd *cobra.Command, o *app.Options) error {
	redis.SetLogger(redisLog{slog.New(slog.DiscardHandler)}) // the error says it
	opened, err := store.Open(o.StoreOptions())
	if err != nil {
		return err
	}
	defer opened.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
	defer cancel()
	found, err := opened.Check(ctx)
	for _, f := range found {
		fmt.Fprintln(cmd.OutOrStdout(), f)
	}
	switch {
	case err != nil:
		return &problemsFound{fmt.Errorf("the store cannot be checked: %w", opened.Blame(err))}
	case len(found) > 0:
		return &problemsFound{errors.New(report.Counted(len(found), "problem") + " with the store")}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok: the store")
	return err
}

func checkCallers(cmd *cobra.Command, file string) (*callers.Set, error) {
	text, err := settingfile.Read(file, callers.MaxFile)
	if err != nil {
		return nil, err
	}
	set, err := callers.Parse(file, text)
	if err != nil {
		return nil, &problemsFound{err}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok:", report.Counted(set.Len(), "caller"))
	return set, err
}

func check(cmd *cobra.Command, paths []string, overlayFile string, people *callers.Set, texts, buckets []string) error {
	requests := make([]*rules.Request, len(texts), len(texts)+len(buckets))
	for i, text := range texts {
		req, err := parseRequest(text)
		if err != nil {
			return err
		}
		requests[i] = req
	}
	for _, text := range buckets {
		domain, entries, err := parseKey([]string{text})
		if err != nil {
			return err
		}
		requests = append(requests, &rules.Request{Domain: domain, Descriptors: [][]rules.Entry{entries}})
	}
	source := config.Source{Paths: paths}
	if overlayFile != "" {
		var err error
		if source.Overlay, err = config.LoadOverlay(overlayFile); err != nil {
			return &problemsFound{err}
		}
	}
	domains, err := source.Load()
	if problems := config.Problems(nil); errors.As(err, &problems) {
		return &problemsFound{err}
	}
	if err != nil {
		return err
	}
	set, err := rules.Compile(domains)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if _, err := fmt.Fprintln(out, summary(set)); err != nil {
		return err
	}
	for _, d := range domains {
		printGuarantees(out, d.Descriptors)
		if len(requests) == 0 {
			printExempt(out, d.Descriptors)
			if len(d.Models) == 0 { // weir models returns its slots
				printHeld(out, d.Descriptors)
			}
			printCovered(out, d.Descriptors)
			printWindows(out, d.Descriptors, time.Now())
			printRefills(out, d.Descriptors)
		}
	}
	for i, req := range requests {
		fmt.Fprintln(out)
		tell := explain
		if i >= len(texts) {
			tell = explainBucket
		}
		if err := tell(cmd.Context(), out, set, req); err != nil {
			return err
		}
		if people != nil {
			if err := printOverbooked(out, set, people, req); err != nil {
				return err
			}
		}
	}
	if err := source.Overlay.Check(domains); err != nil {
		return &problemsFound{err}
	}
	return nil
}

// printExempt prints a note for each rule that limits nothing: that is an exemption, or its
// rate_limit was forgotten.
func printExempt(w io.Writer, list []*config.Descriptor) {
	for _, d := range list {
		if d.Shares == nil && d.Trial == nil && len(d.Limits)+len(d.Descriptors) == 0 {
			printNote(w, d, "no limit, exempt")
		}
		printExempt(w, d.Descriptors)
	}
}

// printHeld prints a note for each rule with a concurrency limit: not every way to ask can
// return its slots.
func printHeld(w io.Writer, list []*config.Descriptor) {
	for _, d := range list {
		if slices.ContainsFunc(d.Limits, func(l config.RateLimit) bool { return algo.TraitsOf(l.Limit.Algorithm).HoldsSlots }) {
			printNote(w, d, "concurrency: GET /v1/auth takes a slot that a proxy cannot return; use POST /v1/take with an id")
		}
		printHeld(w, d.Descriptors)
	}
}

// printCovered prints a note for each wildcard or default that no request reaches, because another
// wildcard of its list matches whatever it matches and is chosen first.
func printCovered(w io.Writer, list []*config.Descriptor) {
	for i, d := range list {
		isDefault := !strings.Contains(d.Key, "*") && d.Value == ""
		exact := !isDefault && !wild(d)
		for j, other := range list {
			// Wildcards are chosen in the order of the file, and a default behind all of them.
			if !exact && wild(other) && (j < i || isDefault) && covers(other, d) {
				printNote(w, d, fmt.Sprintf("never applies: %s:%d, %s, is chosen first", other.At.File, other.At.Line, entryOf(other)))
				break
			}
		}
		printCovered(w, d.Descriptors)
	}
}

func wild(d *config.Descriptor) bool { return strings.Contains(d.Key+d.Value, "*") }

// covers reports whether a wildcard matches all that another descriptor matches. No text of a
// pattern but a star matches a star.
func covers(first, d *config.Descriptor) bool {
	value := func(d *config.Descriptor) string { return cmp.Or(d.Value, "*") }
	return config.NewGlob(first.Key).Match(d.Key) && config.NewGlob(value(first)).Match(value(d))
}

// printWindows prints a note for each limit whose unit is named after a part of the calendar that
// it does not follow.
func printWindows(w io.Writer, list []*config.Descriptor, now time.Time) {
	for _, d := range list {
		for i := range d.Limits {
			l := &d.Limits[i]
			if l.Unlimited || l.Limit.Algorithm != weir.FixedWindow || l.Limit.TimeZone != "" || l.Limit.Anchor != weir.AnchorEpoch ||
				!slices.Contains([]string{"week", "month", "year"}, l.Unit) {
				continue
			}
			next := time.Unix(0, 0).Add(now.Sub(time.Unix(0, 0)).Truncate(l.Limit.Period) + l.Limit.Period).UTC()
			printNote(w, d, fmt.Sprintf("unit: %s is %d days, counted from 1970, and begins next on %s; fixed_window with a time_zone follows the calendar",
				l.Unit, l.Limit.Period/(24*time.Hour), next.Format("Monday, 2006-01-02")))
		}
		printWindows(w, d.Descriptors, now)
	}
}

// printRefills prints a note for each token_bucket that is refilled in lumps, where the buckets of
// other limiters are refilled steadily.
func printRefills(w io.Writer, list []*config.Descriptor) {
	for _, d := range list {
		for i := range d.Limits {
			if l := &d.Limits[i].Limit; !d.Limits[i].Unlimited && l.Algorithm == weir.TokenBucket && l.Count > 1 {
				printNote(w, d, fmt.Sprintf("token_bucket adds %d units at once every %v; gcra with this burst adds one after the other, as the token buckets of x/time/rate and bucket4j do", l.Count, l.Period))
			}
		}
		printRefills(w, d.Descriptors)
	}
}

func printNote(w io.Writer, d *config.Descriptor, text string) {
	fmt.Fprintf(w, "note: %s:%d: %s: %s\n", d.At.File, d.At.Line, entryOf(d), text)
}

// entryOf describes the key and the value of a descriptor.
func entryOf(d *config.Descriptor) string {
	if d.Value == "" {
		return fmt.Sprintf("key %q", d.Key)
	}
	return fmt.Sprintf("key %q, value %q", d.Key, d.Value)
}

// printGuarantees prints the guarantee of each value, and the most that it can use at
// once.
func printGuarantees(w io.Writer, list []*config.Descriptor) {
	for _, d := range list {
		if d.Shares != nil && d.Value == "" {
			fmt.Fprintln(w, d.Guaranteed())
		}
		if d.Value == "" || d.Shares == nil {
			printGuarantees(w, d.Descriptors)
		}
	}
}

// summary describes the size of a set of rules.
func summary(set *rules.Set) string {
	domains := set.Domains()
	return fmt.Sprintf("ok: %s (%s), %s",
		report.Counted(len(domains), "domain"), strings.Join(domains, ", "), report.Counted(len(set.Rules()), "rule"))
}

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rules files, for editors",
		Long: `Schema prints the JSON Schema (draft 7) of rules files. With it an editor completes
keys, shows their documentation and marks mistakes. "weir check" also finds mistakes
that a schema cannot.

Editors with the YAML language server read this first line of a rules file:

  # yaml-language-server: $schema=weir.schema.json`,
		Example: `  weir schema > weir.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
