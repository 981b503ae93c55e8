package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/loadtest"
	"github.com/weirlimit/weir/server/internal/report"
)

// benchRLSFlags are the flags of weir bench rls.
type benchRLSFlags struct {
	load loadtest.RLSLoad
	json bool
	idle int
	aim  benchAim
}

func newBenchRLS() *cobra.Command {
	var f benchRLSFlags
	cmd := &cobra.Command{
		Use:   "rls",
		Short: "Load Envoy's rate limit service as fast as it answers",
		Long: `Bench rls keeps --callers calls of Envoy's rate limit service in flight on a few
connections: each answer is followed by the next call. It sends the headers that Envoy
sends, and reads and writes HTTP/2 frames itself, so that it takes a fraction of the
server's CPU time. A latency counts from when a call is written until its status is
read; --callers 1 measures one call at a time.

The value of --entry is drawn uniformly from --keys values; --keys 1 is a hot key. Each
connection starts with one call that is not counted; if it fails, bench stops. If a server
shuts down, bench sends the calls that it has not begun to the next server.

With --idle, bench sends no calls: it holds that many idle connections for --duration
and reports the memory that each takes in the process named by --pid.

Exit codes: 0 all calls were answered, 1 calls failed or bench was interrupted, 2 bench
could not start or could not connect again.`,
		Example: `  weir bench rls --target grpc://127.0.0.1:8081 --pid "$(pidof weir)"
  weir bench rls --target grpc://127.0.0.1:8081 --callers 1 --connections 1
  weir bench rls --target grpcs://weir.example:8081 --ca ca.pem --keys 1 --json
  weir bench rls --target grpc://127.0.0.1:8081 --idle 10000 --pid "$(pidof weir)"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.aim.target, "target", "grpc://127.0.0.1:8081", "server to load: grpc://HOST:PORT or grpcs://HOST:PORT")
	flags.DurationVar(&f.load.Duration, "duration", 10*time.Second, "time during which calls are sent")
	flags.IntVar(&f.load.Callers, "callers", 256, "number of calls in flight")
	flags.IntVar(&f.load.Connections, "connections", 2, "number of connections, at most as many as callers")
	flags.IntVar(&f.load.Keys, "keys", 100_000, "number of keys")
	flags.DurationVar(&f.load.Timeout, "timeout", time.Second, "timeout of each call, sent as grpc-timeout")
	flags.BoolVar(&f.load.Traceparent, "traceparent", true, "send a new trace context, not sampled, with each call")
	flags.IntVar(&f.idle, "idle", 0, "hold this many idle connections instead, and report the server's memory")
	f.aim.defineServer(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON")
	mustComplete(cmd.RegisterFlagCompletionFunc("target", completeWords("grpc://", "grpcs://")))
	return cmd
}

func (f *benchRLSFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	var err error
	f.load.Address, f.load.Domain, f.load.Entry = f.aim.address(), f.aim.domain, f.aim.entry
	if f.load.Token, f.load.TLS, err = f.aim.secrets(); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	if f.idle > 0 {
		return f.runIdle(ctx, cmd)
	}
	line := newProgress(cmd.ErrOrStderr())
	f.load.Progress = func(r loadtest.Report) { line.show(func() string { return benchProgress(&r) }) }
	// The first calls, which open the connections, are part of the CPU time.
	target := benchTarget{targetCPU: f.aim.serverCPU()}
	before := target.cpu(ctx)
	got, err := f.load.Run(ctx)
	line.end()
	if err != nil {
		return fmt.Errorf("%s: %w", f.aim.name(), err)
	}
	r := f.aim.report(f.load.Duration, f.load.Callers, f.load.Keys)
	r.Connections, r.Reconnects = f.load.Connections, got.Reconnects
	r.fill(&got.Report, target.cpu(context.WithoutCancel(ctx)).since(before))
	if err := f.print(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	return benchVerdict(ctx, got.Failure)
}

// print writes a report, as JSON or as text.
func (f *benchRLSFlags) print(w io.Writer, r *benchReport) error {
	if f.json {
		return marshal(w, r)
	}
	fmt.Fprintf(w, "target    %s\n", f.aim.described())
	fmt.Fprintf(w, "asked     for %v by %s on %s, %s\n", f.load.Duration, report.Counted(f.load.Callers, "caller"),
		report.Counted(f.load.Connections, "connection"), report.Counted(f.load.Keys, "key"))
	r.print(w, &f.aim)
	if r.Reconnects > 0 {
		fmt.Fprintf(w, "          connected again %s\n", report.Counted(r.Reconnects, "time"))
	}
	return nil
}

// runIdle holds idle connections.
func (f *benchRLSFlags) runIdle(ctx context.Context, cmd *cobra.Command) error {
	before, err := loadtest.MemoryOf(f.aim.pid)
	if err != nil {
		return err
	}
	closeAll, err := loadtest.DialIdle(ctx, f.load.Address, f.load.TLS, f.idle)
	if err != nil {
		return fmt.Errorf("%s: %w", f.aim.name(), err)
	}
	defer closeAll()
	select {
	case <-ctx.Done():
	case <-time.After(f.load.Duration):
	}
	after, err := loadtest.MemoryOf(f.aim.pid)
	if err != nil {
		return err
	}
	each := (after - before) / int64(f.idle)
	if f.json {
		return marshal(cmd.OutOrStdout(), map[string]any{"target": f.aim.name(), "idle": f.idle, "rss_bytes": after, "rss_bytes_per_connection": each})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "target    %s\nidle      %s for %v\nmemory    %.1f MiB resident in the server, %.1f KiB a connection\n",
		f.aim.name(), report.Counted(f.idle, "connection"), f.load.Duration, float64(after)/(1<<20), float64(each)/(1<<10))
	return benchVerdict(ctx, nil)
}

// check validates the flags before anything is sent.
func (f *benchRLSFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if err := f.aim.check(given); err != nil {
		return err
	}
	if !f.aim.isRLS() {
		return &weir.InvalidError{Field: "target", Value: strconv.Quote(f.aim.name()), Want: "grpc://HOST:PORT or grpcs://HOST:PORT"}
	}
	if err := checkBenchKeys(f.load.Keys); err != nil {
		return err
	}
	if !given("connections") {
		f.load.Connections = max(1, min(f.load.Connections, f.load.Callers))
	}
	if f.idle < 0 || f.idle > loadtest.MaxConnections {
		return &weir.InvalidError{Field: "idle", Value: strconv.Itoa(f.idle), Want: fmt.Sprintf("0 … %d", loadtest.MaxConnections)}
	}
	if f.idle > 0 && f.aim.pid == 0 {
		return &weir.InvalidError{Field: "idle", Value: strconv.Itoa(f.idle), Want: "--pid beside it, for the memory of the server"}
	}
	return f.load.Validate()
}
