package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server/internal/app"
)

// serveFlags are the flags of weir serve.
type serveFlags struct {
	app.Options
	logFormat, logLevel string
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer over HTTP and gRPC whether requests fit their limits",
		Long: `Answer GET /v1/auth (for proxies), POST /v1/take (for programs) and Envoy's rate
limit service over gRPC. Report health at /healthz and /readyz.

Once it serves, it prints the addresses in use, one a line: "http 127.0.0.1:8080",
"grpc 127.0.0.1:8081", "admin 127.0.0.1:6070". Logs go to stderr.

Rules files are read again when they change, and at SIGHUP. While they are wrong,
the last good rules stay in force.

On SIGTERM or SIGINT the server becomes not ready, answers the calls in flight and
exits with 0. A second signal ends it at once. If NOTIFY_SOCKET is set, it notifies
systemd when it is ready, reloads and stops.

The server uses up to 90 % of its cgroup's memory unless GOMEMLIMIT is set; up to
64 MiB of it wait for the garbage collector unless GOGC is set.

A flag overrides its variable, and the variable overrides the default. Variables of
envoyproxy/ratelimit, such as RUNTIME_ROOT and REDIS_URL, override defaults only.`,
		Example: `  # demonstration rules, in memory; prints calls to try
  weir serve

  # your rules, shared by all instances through Redis
  weir serve --config rules.yaml --store redis://redis.internal:6379/0

  # on a free port, configured by the environment
  WEIR_CONFIG=/etc/weir WEIR_HTTP=127.0.0.1:0 weir serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().SortFlags = false
	settings := append(f.Settings(),
		app.Setting{
			Group: "Telemetry", Flag: "log-format", Field: &f.logFormat, Default: "auto",
			Help: "Write logs as auto (text on a terminal, else json), text or json.", Words: []string{"auto", "text", "json"},
		},
		app.Setting{
			Group: "Telemetry", Flag: "log-level", Field: &f.logLevel, Default: "info",
			Help: "Log from this level on: debug, info, warn or error.", Words: []string{"debug", "info", "warn", "error"},
		})
	for i := range settings {
		bind(cmd, &settings[i])
	}
	for _, flag := range []string{"config", "rules-overlay"} {
		mustComplete(cmd.RegisterFlagCompletionFunc(flag, completeFiles("yaml", "yml")))
	}
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	found, err := applyEnvoyproxy(cmd.Flags(), os.Getenv)
	if err != nil {
		return err
	}
	log := newQueue(cmd.ErrOrStderr())
	defer log.close()
	options, err := f.options(cmd, log)
	if err != nil {
		return found.blame(err)
	}
	stopTracing, err := f.trace(cmd.Context(), &options)
	if err != nil {
		return err
	}
	defer stopTracing()
	found.log(options.Logger)
	warnOfPassword(cmd.Flags(), options.Logger)
	redis.SetLogger(redisLog{options.Logger})
	notify := newNotifier(options.Logger)
	notify.attach(&options)
	defer runtime.KeepAlive(settleMemory(os.Getenv, os.DirFS("/")))
	app, err := app.New(options)
	if err != nil {
		return found.blame(err)
	}
	signalled, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	// After the first signal the next one has its usual effect: it kills. That holds
	// before anybody can see that the first one came.
	defer context.AfterFunc(signalled, func() {
		stop()
		notify.send(notifyStopping)
		cancel()
	})()
	defer onHangup(func() {
		notify.send(notifyReloading)
		app.Reload()
	})()
	err = app.Run(ctx)
	if len(app.Addrs()) > 0 && err != nil {
		return &problemsFound{err}
	}
	return err
}

// onHangup calls f at each SIGHUP until the function that it returns is called.
func onHangup(f func()) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hangups {
			f()
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
	}
}

// options returns the options of the server.
func (f *serveFlags) options(cmd *cobra.Command, log *queue) (app.Options, error) {
	o := f.Options
	var err error
	if o.Logger, err = newLogger(log, f.logFormat, f.logLevel); err != nil {
		return o, err
	}
	if !cmd.Flags().Changed("drain-delay") {
		o.DrainDelay = min(o.DrainDelay, o.DrainTimeout/3)
	}
	o.Serving = func(addrs []app.Addr) { f.print(cmd.OutOrStdout(), addrs) }
	return o, nil
}

// print prints the addresses in use, and with the demonstration rules calls to try.
func (f *serveFlags) print(w io.Writer, addrs []app.Addr) {
	for _, addr := range addrs {
		fmt.Fprintln(w, addr)
	}
	if f.Config == "" && f.XDS.Server == "" && f.HTTPTLS == (app.TLS{}) {
		printDemo(w, addrs)
		printDashboard(w, addrs, f.Admin.TLS != (app.TLS{}))
	}
}
