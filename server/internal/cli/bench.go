package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/openloop"
)

// The most that can be asked for: what lies beyond measures the machine.
const (
	mostBenchRate    = 1_000_000
	mostBenchCallers = 10_000
	mostBenchKeys    = 1_000_000_000
)

// benchFlags are the flags of weir bench.
type benchFlags struct {
	load openloop.Load
	keys int
	json bool
	aim  benchAim
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a store or a server, and tell latencies and what a decision costs",
		Long: `Bench asks a store or a server for decisions at a steady rate, whether or not it
answers in time. A latency counts from the instant at which a request was due, so
that a target that stalls cannot hide how long its callers waited; how late this
machine wakes up is part of it.

  --target memory             the store in memory, in this process
  --target redis://HOST:PORT  a store in Redis, without a server before it; keys
                              begin with weir-bench: and end by themselves
  --target http://HOST:PORT   the HTTP listener of a server, GET /v1/auth
  --target grpc://HOST:PORT   Envoy's rate limit service
  --target https://HOST:PORT, grpcs://HOST:PORT
                              the same over TLS, see --ca, --cert and --key

Stores are asked under --limit, servers under their own rules, as --domain and
--entry with one of --keys values, drawn uniformly. A first request is not counted:
where it fails the bench does not begin.

Exit codes: 0 all was answered, 1 it was interrupted or requests failed, 2 it could
not begin.`,
		Example: `  weir bench --rate 50000 --duration 5s
  weir bench --target redis://127.0.0.1:6379 --rate 5000 --keys 100000
  weir bench --target grpc://127.0.0.1:8081 --pid "$(pidof weir)"
  weir bench --target https://weir.example:8443 --ca ca.pem --token-file token --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.aim.target, "target", "memory", "what to load: "+benchTargets)
	flags.Float64Var(&f.load.Rate, "rate", 1000, "requests due a second")
	flags.DurationVar(&f.load.Duration, "duration", 10*time.Second, "how long requests come")
	flags.IntVar(&f.load.Callers, "callers", 256, "how many requests are under way at most; others wait, which counts")
	flags.IntVar(&f.keys, "keys", 10_000, "how many keys there are")
	flags.StringVar(&f.aim.limit, "limit", "1000/s", "of a store: the limit of each key")
	flags.StringVar(&f.aim.domain, "domain", "demo", "of a server: the domain of the requests")
	flags.StringVar(&f.aim.entry, "entry", "user", "of a server: the key of the entry whose values are the keys")
	defineInsecureToken(flags, &f.aim.clear)
	flags.StringVar(&f.aim.tokenFile, "token-file", "", "of a server: file with the token that it asks for")
	flags.StringVar(&f.aim.tls.ca, "ca", "", "of a server over TLS: who signs its certificate, PEM (default: the system's)")
	flags.StringVar(&f.aim.tls.cert, "cert", "", "of a server over TLS: certificate to show, PEM")
	flags.StringVar(&f.aim.tls.key, "key", "", "of a server over TLS: the key to the certificate, PEM")
	flags.IntVar(&f.aim.pid, "pid", 0, "of a server on this machine: its process, to tell what a decision costs there")
	flags.BoolVar(&f.json, "json", false, "print the figures as JSON")
	mustComplete(cmd.RegisterFlagCompletionFunc("target", completeWords("memory", "redis://", "http://", "https://", "grpc://", "grpcs://")))
	return cmd
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	target, err := f.aim.open(f.load.Callers)
	if err != nil {
		return err
	}
	defer target.Close()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := target.allow(ctx, keyOf(0)); err != nil {
		return fmt.Errorf("%s answers no request: %w", f.aim.name(), err)
	}
	line := newProgress(cmd.ErrOrStderr())
	f.load.Progress = func(r openloop.Report) { line.show(func() string { return answered(&r) }) }
	var failure atomic.Pointer[error]
	f.load.Ask = func(_ context.Context, _ int) openloop.Outcome {
		// What was sent is waited for, also when the bench is interrupted.
		granted, err := target.allow(context.WithoutCancel(ctx), keyOf(rand.IntN(f.keys)))
		switch {
		case err != nil:
			failure.CompareAndSwap(nil, &err)
			return openloop.Failed
		case granted:
			return openloop.Granted
		}
		return openloop.Refused
	}
	before := target.spent(ctx)
	report, err := f.load.Run(ctx)
	line.end()
	if err != nil {
		return err
	}
	if err := f.print(cmd.OutOrStdout(), &report, target.spent(context.WithoutCancel(ctx)).since(before)); err != nil {
		return err
	}
	return f.verdict(ctx, failure.Load())
}

// verdict says what was wrong with a bench that was made.
func (f *benchFlags) verdict(ctx context.Context, failure *error) error {
	switch {
	case failure != nil:
		return &problemsFound{fmt.Errorf("requests failed; the first: %w", *failure)}
	case ctx.Err() != nil:
		return &problemsFound{errors.New("interrupted; the figures are of what was asked until then")}
	}
	return nil
}

// check refuses what cannot be measured, before anything is asked.
func (f *benchFlags) check(cmd *cobra.Command) error {
	switch {
	case !(f.load.Rate > 0) || f.load.Rate > mostBenchRate:
		return &weir.InvalidError{Field: "rate", Value: strconv.FormatFloat(f.load.Rate, 'g', -1, 64), Want: fmt.Sprintf("more than 0 and at most %d a second", mostBenchRate)}
	case f.load.Duration <= 0 || f.load.Duration > 24*time.Hour:
		return &weir.InvalidError{Field: "duration", Value: f.load.Duration.String(), Want: "more than 0 and at most 24h"}
	case f.load.Callers < 1 || f.load.Callers > mostBenchCallers:
		return &weir.InvalidError{Field: "callers", Value: strconv.Itoa(f.load.Callers), Want: fmt.Sprintf("1 … %d", mostBenchCallers)}
	case f.keys < 1 || f.keys > mostBenchKeys:
		return &weir.InvalidError{Field: "keys", Value: strconv.Itoa(f.keys), Want: fmt.Sprintf("1 … %d", mostBenchKeys)}
	}
	return f.aim.check(cmd.Flags().Changed)
}

// keyOf is the n-th key.
func keyOf(n int) string { return "k" + strconv.Itoa(n) }
