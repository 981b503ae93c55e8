package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/lab/accesslog"
	"github.com/weirlimit/weir/server/internal/lab/replay"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/rules"
)

// replayFlags are the flags of weir replay.
type replayFlags struct {
	rules       string
	descriptors []string
	input       string
	timeField   string
	reorder     time.Duration
	suggest     string
	top         int
	memory      int64
	output      reportFlags
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay LOG…",
		Short: "Show which requests of an access log rules would have refused",
		Long: `Replay reads access logs, plain or compressed by gzip, "-" for stdin, and decides
each request by a rules file, at the time in the log. It prints which rules apply, which
clients would have been refused, how often and when, and how close to the limits the
others came. With --suggest it finds the lowest limit that refuses at most a given
share of the requests.

Several logs are merged by time. Memory is bounded, however long they are. Lines that
cannot be read are counted, and the first of them are shown.

Formats: combined (nginx and Apache; also the common format), json (one object a line),
envoy (its default format). Fields have nginx's names:
$remote_addr, $remote_user, $request_method, $request_uri, $request_path (without the
query), $status, $http_user_agent, $http_referer, $http_x_forwarded_for, $http_host.
Fields of JSON also have their own names, with dots into nested objects.

Exit codes: 0 the log was replayed, 1 more than one line in four could not be read, or more
than one in a hundred came too late, 2 the command could not start, or could not read the log
to its end.`,
		Example: `  weir replay access.log --config rules.yaml --descriptor 'shop user=$remote_addr'

  # two logs, two descriptors for each request, and limits that would refuse one request in a thousand
  weir replay a.log.gz b.log.gz --config /etc/weir --suggest 0.1% --svg replay.svg \
    --descriptor 'shop user=$remote_addr' --descriptor 'shop path=$request_path'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("replay needs an access log, or - for stdin; see 'weir replay --help'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error { return f.run(cmd, paths) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rules, "config", "", "rules file, or a folder of them")
	flags.StringArrayVar(&f.descriptors, "descriptor", nil, "descriptor of each request: "+mappingForm+"; may be repeated")
	flags.StringVar(&f.input, "input", accesslog.Auto.String(), "format of the log: "+accesslog.FormatNames())
	flags.StringVar(&f.timeField, "time-field", "", "field of JSON with the time (default: a usual name, such as time or timestamp)")
	flags.DurationVar(&f.reorder, "reorder", accesslog.DefaultReorder, "sort lines that are at most this late")
	flags.StringVar(&f.suggest, "suggest", "", "find the lowest limit that refuses at most this share of the requests, such as 0.1%, and show the limits around it")
	flags.IntVar(&f.top, "top", replay.DefaultTop, "number of keys to list for each limit")
	flags.Int64Var(&f.memory, "memory", replay.DefaultBytes, "bytes for the keys; --suggest uses up to twice as much more")
	f.output.define(flags)
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command, paths []string) error {
	share, err := f.check()
	if err != nil {
		return err
	}
	format, err := accesslog.ParseFormat(f.input)
	if err != nil {
		return err
	}
	q, err := f.questioner()
	if err != nil {
		return err
	}
	log, err := accesslog.Open(paths, cmd.InOrStdin(), accesslog.Options{Format: format, TimeField: f.timeField, Reorder: f.reorder})
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, stop := interruptible(cmd)
	defer stop()
	r := replay.New(replay.Options{Limits: q.limits, Ask: q.ask, Suggest: share, Top: f.top, MaxBytes: f.memory})
	if err := through(ctx, log, r, q, newProgress(cmd.ErrOrStderr())); err != nil {
		return err
	}
	result := r.Result(log.Stats())
	if result.Totals.Requests == 0 {
		return nothingRead(result)
	}
	wrong := q.unmatched(result)
	if wrong == nil {
		wrong = cmp.Or(tooLate(result), tooBroken(result))
	}
	if wrong == nil {
		return f.output.write(cmd.OutOrStdout(), result.Page(), result)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "warning:", wrong)
	if err := f.output.write(cmd.OutOrStdout(), result.Page(), result); err != nil {
		return err
	}
	return &problemsFound{wrong}
}

// The parts of the lines that may be late, or that may be broken, before the result means nothing.
const (
	mostLate   = 0.01
	mostBroken = 0.25
)

// tooLate returns an error if the log's order makes the result meaningless.
func tooLate(r *replay.Result) error {
	if float64(r.Log.Late) <= mostLate*float64(r.Totals.Requests) {
		return nil
	}
	return fmt.Errorf("%s of %s lines came too late to be sorted: the result is wrong; give rotated logs as files of their own, or a longer --reorder",
		report.Percent(r.Log.Late, r.Totals.Requests), report.Count(r.Totals.Requests))
}

// tooBroken returns an error if so much of the log was left out that the result is wrong.
func tooBroken(r *replay.Result) error {
	broken := r.Log.Broken + r.Totals.Invalid
	if float64(broken) <= mostBroken*float64(r.Log.Lines) {
		return nil
	}
	return fmt.Errorf("%s of %s lines could not be read: the result is that of the others", report.Percent(broken, r.Log.Lines), report.Count(r.Log.Lines))
}

func (f *replayFlags) check() (share float64, err error) {
	switch {
	case f.rules == "":
		return 0, errors.New("replay needs --config; see 'weir replay --help'")
	case f.top < 1 || f.top > 1000:
		return 0, fmt.Errorf("top is %d: want 1 … 1000", f.top)
	case f.reorder < 0 || f.reorder > time.Hour:
		return 0, fmt.Errorf("reorder is %v: want 0s … 1h", f.reorder)
	case f.memory < 1<<20:
		return 0, fmt.Errorf("memory is %d: want at least 1048576 bytes", f.memory)
	}
	if err := f.output.check(); err != nil {
		return 0, err
	}
	return parseFraction(f.suggest)
}

// parseFraction reads a part of a whole such as 0.1%; -1 for an empty one. A number without
// a percent sign can be read in two ways, so it is an error.
func parseFraction(text string) (float64, error) {
	if text == "" {
		return -1, nil
	}
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	number = strings.TrimSpace(number)
	share, err := strconv.ParseFloat(number, 64)
	if err == nil && !percent && share > 0 && share <= 1 {
		return 0, fmt.Errorf("suggest is %q: want %s%% or %s%%", text, number, strconv.FormatFloat(share*100, 'g', 6, 64))
	}
	share /= 100
	if err != nil || math.IsNaN(share) || share < 0 || share > 1 {
		return 0, fmt.Errorf("suggest is %q: want a share such as 0.1%%, from 0%% to 100%%", text)
	}
	return share, nil
}

func (f *replayFlags) questioner() (*questioner, error) {
	set, err := rules.Load(f.rules)
	if err != nil {
		return nil, err
	}
	if len(f.descriptors) == 0 {
		return nil, fmt.Errorf("replay needs --descriptor: want %s; the rules' domains are %s", mappingForm, strings.Join(set.Domains(), ", "))
	}
	return newQuestioner(set, f.descriptors)
}

// through replays the whole log. A descriptor that names an unknown field ends it: at
// the first record if that tells, otherwise at the end.
func through(ctx context.Context, log *accesslog.Log, r *replay.Replay, q *questioner, line *progress) error {
	defer line.end()
	begun := time.Now()
	for n := 0; ; n++ {
		record, err := log.Next()
		if errors.Is(err, io.EOF) {
			names, _ := log.Fields()
			return q.checkFields(names)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			if names, fixed := log.Fields(); fixed {
				if err := q.checkFields(names); err != nil {
					return err
				}
			}
		}
		r.Add(record)
		if n%4096 != 0 {
			continue
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
		line.show(func() string {
			read, size := log.Progress()
			return replayProgress(log.Stats(), read, size, time.Since(begun))
		})
	}
}

// replayProgress says how many lines were read, and what part of the files and how much
// time is left, if their size is known.
func replayProgress(s accesslog.Stats, read, size int64, elapsed time.Duration) string {
	text := fmt.Sprintf("%d lines, %d MB", s.Lines, s.Bytes/1e6)
	if size <= 0 || read <= 0 {
		return text
	}
	done := min(1, float64(read)/float64(size))
	left := time.Duration(float64(elapsed) * (1 - done) / done)
	return fmt.Sprintf("%s, %.0f%%, %v left", text, 100*done, left.Round(time.Second))
}

// nothingRead says why there is nothing to tell.
func nothingRead(result *replay.Result) error {
	if result.Log.Lines == 0 {
		return &problemsFound{errors.New("the log has no lines")}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "none of %s could be read", report.Counted(int(result.Log.Lines), "line"))
	for _, s := range result.Log.Samples {
		fmt.Fprintf(&b, "\n  %s:%d: %s: %s", s.File, s.Line, s.Why, s.Text)
	}
	return &problemsFound{errors.New(b.String())}
}
