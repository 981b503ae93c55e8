package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/models/report"
	"github.com/weirlimit/weir/server/internal/store"
)

// monthFlags are the flags of weir report.
type monthFlags struct {
	month, format string
	by, journals  []string
	store         app.Options
}

func newReport() *cobra.Command {
	var f monthFlags
	cmd := &cobra.Command{
		Use:   "report DOMAIN",
		Short: "Sum up what requests to language models used in a month",
		Long: `Report prints what the requests of a month have used at "weir models", by team, user and
model: how many there were, how many more a limit refused, their tokens and their dollars. It
reads the ledger of the instances, which keeps a month for 100 days after its end, from
their store. The flags of the store are those of "weir models". With --from-journal it reads
the journals of all instances instead, for a check or for months that are long over.

Dollars are exact. A request counts in the month in which it began. unsettled_usd are dollars
that limits count and nobody knows to be used: holds of requests that were never settled.
input_tokens are without those that the provider read from its cache: cached_tokens. The last
line has the totals. stderr says what the numbers lack.

Exit codes: 0 done, 1 the ledger has nothing of that month, 2 the command failed.`,
		Example: `  weir report llm --month 2026-11 --store redis://redis.internal:6379/0
  weir report llm --month 2026-11 --by team --format json
  weir report llm --month 2026-11 --by user,model > november.csv`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("report needs the domain of the rules, such as llm; see 'weir report --help'")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.month, "month", "", "the month, such as 2026-11")
	flags.StringSliceVar(&f.by, "by", []string{report.ByTeam, report.ByUser, report.ByModel}, "add up what has the same names of these, in this order")
	flags.StringVar(&f.format, "format", "csv", "what to print: csv (for spreadsheets) or json")
	mustComplete(cmd.RegisterFlagCompletionFunc("format", completeWords("csv", "json")))
	flags.StringSliceVar(&f.journals, "from-journal", nil, "read the `folders` that the instances have as --journal, or copies, in place of the store")
	mustComplete(cmd.MarkFlagDirname("from-journal"))
	for _, s := range f.store.StoreSettings() {
		bind(cmd, &s)
	}
	return cmd
}

func (f *monthFlags) run(cmd *cobra.Command, domain string) error {
	if f.format != "csv" && f.format != "json" {
		return fmt.Errorf("format is %q: want csv or json", f.format)
	}
	if err := report.CheckMonth(f.month); err != nil {
		return err
	}
	r, err := report.New(domain, f.month, f.by)
	if err != nil {
		return err
	}
	if len(f.journals) > 0 {
		err = f.readJournals(domain, r)
	} else {
		err = f.readLedger(cmd, domain, r)
	}
	if err != nil {
		return err
	}
	if f.format == "json" {
		err = marshal(cmd.OutOrStdout(), r.JSON())
	} else {
		err = r.WriteCSV(cmd.OutOrStdout())
	}
	if err != nil {
		return err
	}
	for _, lack := range r.Lacks() {
		fmt.Fprintln(cmd.ErrOrStderr(), printed(lack))
	}
	if r.Empty() {
		return &problemsFound{fmt.Errorf("there is nothing of %s", r)}
	}
	return nil
}

// readLedger adds the rows of the ledger.
func (f *monthFlags) readLedger(cmd *cobra.Command, domain string, r *report.Report) error {
	redis.SetLogger(redisLog{slog.New(slog.DiscardHandler)}) // the error says it
	opened, err := store.Open(f.store.StoreOptions())
	if err != nil {
		return err
	}
	defer opened.Close()
	if opened.Client == nil {
		return errors.New("store is memory: want that of the instances, such as redis://HOST:6379/0; a ledger in memory ends with its process")
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	l, err := ledger.New(ledger.Options{Client: opened.Client, Prefix: f.store.StorePrefix, Domain: domain})
	if err != nil {
		return err
	}
	rows, err := l.Month(ctx, f.month)
	if err != nil {
		return fmt.Errorf("the ledger cannot be read: %w", opened.Blame(err))
	}
	for i := range rows {
		r.Add(&rows[i])
	}
	return nil
}

// readJournals adds what the journals have.
func (f *monthFlags) readJournals(domain string, r *report.Report) error {
	found, err := ledger.ReadJournals(f.journals, domain, f.month, r.Add)
	if err != nil {
		return err
	}
	if found.Open > 0 {
		r.Lack(fmt.Sprintf("requests that were not settled when the journals end: %d, which hold %s", found.Open, config.AmountText(config.MeterUSD, found.OpenUSD)))
	}
	if found.Missing > 0 {
		r.Lack(fmt.Sprintf("lines that the journals lack: %d", found.Missing))
	}
	if found.Unreadable > 0 {
		r.Lack(fmt.Sprintf("lines that cannot be read: %d", found.Unreadable))
	}
	return nil
}
