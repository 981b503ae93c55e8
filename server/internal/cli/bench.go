package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

const maxBenchKeys = 1_000_000_000

// benchFlags are the flags of weir bench.
type benchFlags struct {
	load loadtest.Load
	keys int
	json bool
	aim  benchAim
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a store or a server, and measure latency and CPU time per decision",
		Long: `Bench asks a store or a server for decisions at a steady rate, whether or not it
answers in time. A latency counts from the instant at which a request was due, so
that a target that stalls cannot hide how long its callers waited. It includes the
delay with which this machine wakes up.

  --target memory             the store in memory, in this process
  --target redis://HOST:PORT  a store in Redis, without a server in front of it;
                              keys start with weir-bench: and expire
  --target http://HOST:PORT   the HTTP listener of a server, GET /v1/auth
  --target grpc://HOST:PORT   Envoy's rate limit service
  --target https://HOST:PORT, grpcs://HOST:PORT
                              the same over TLS, see --ca, --cert and --key

A store applies --limit to each key. A server applies its own rules to --domain and
--entry, with one of --keys values drawn uniformly. Bench starts with one request
that is not counted; if it fails, bench stops.

Exit codes: 0 all requests were answered, 1 requests failed or bench was interrupted,
2 bench could not start.`,
		Example: `  weir bench --rate 50000 --duration 5s
  weir bench --target redis://127.0.0.1:6379 --rate 5000 --keys 100000
  weir bench --target grpc://127.0.0.1:8081 --pid "$(pidof weir)"
  weir bench --target https://weir.example:8443 --ca ca.pem --token-file token --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.aim.target, "target", "memory", "target to load: "+benchTargets)
	flags.Float64Var(&f.load.Rate, "rate", 1000, "requests due per second")
	flags.DurationVar(&f.load.Duration, "duration", 10*time.Second, "time during which requests are sent")
	flags.IntVar(&f.load.Callers, "callers", 256, "maximum number of requests in flight; others wait, and their latency includes the wait")
	flags.IntVar(&f.keys, "keys", 10_000, "number of keys")
	flags.StringVar(&f.aim.limit, "limit", "1000/s", "for a store: limit of each key")
	f.aim.defineServer(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON")
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
	ctx, stop := interruptible(cmd)
	defer stop()
	if _, err := target.Allow(ctx, keyOf(0)); err != nil {
		return fmt.Errorf("%s answers no request: %w", f.aim.name(), err)
	}
	line := newProgress(cmd.ErrOrStderr())
	f.load.Progress = func(r loadtest.Report) { line.show(func() string { return benchProgress(&r) }) }
	var failure atomic.Pointer[error]
	f.load.Ask = func(_ context.Context, _ int) loadtest.Outcome {
		// An interrupt does not cancel requests in flight.
		granted, err := target.Allow(context.WithoutCancel(ctx), keyOf(rand.IntN(f.keys)))
		switch {
		case err != nil:
			failure.CompareAndSwap(nil, &err)
			return loadtest.Failed
		case granted:
			return loadtest.Granted
		}
		return loadtest.Refused
	}
	before := target.cpu(ctx)
	report, err := f.load.Run(ctx)
	line.end()
	if err != nil {
		return err
	}
	r := f.aim.report(f.load.Duration, f.load.Callers, f.keys)
	r.Rate = f.load.Rate
	r.fill(&report, target.cpu(context.WithoutCancel(ctx)).since(before))
	if err := f.print(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	if failed := failure.Load(); failed != nil {
		return benchVerdict(ctx, *failed)
	}
	return benchVerdict(ctx, nil)
}

// benchVerdict returns an error for a bench with failed requests, or an interrupted one.
func benchVerdict(ctx context.Context, failure error) error {
	switch {
	case failure != nil:
		return &problemsFound{fmt.Errorf("requests failed; the first: %w", failure)}
	case ctx.Err() != nil:
		return &problemsFound{errors.New("interrupted; the figures cover the requests until then")}
	}
	return nil
}

// check validates the flags before any request is sent.
func (f *benchFlags) check(cmd *cobra.Command) error {
	if err := f.load.Validate(); err != nil {
		return err
	}
	if err := checkBenchKeys(f.keys); err != nil {
		return err
	}
	return f.aim.check(cmd.Flags().Changed)
}

func checkBenchKeys(n int) error {
	if n < 1 || n > maxBenchKeys {
		return &weir.InvalidError{Field: "keys", Value: strconv.Itoa(n), Want: fmt.Sprintf("1 … %d", maxBenchKeys)}
	}
	return nil
}

func keyOf(n int) string { return "k" + strconv.Itoa(n) }
