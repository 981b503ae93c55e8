package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		Short: "Serve decisions over HTTP and gRPC",
		Long: `Answer GET /v1/auth (for proxies), POST /v1/take (for programs) and Envoy's rate
limit service over gRPC. Report health at /healthz and /readyz.

Once the server is up, it prints the addresses in use, one a line: "http 127.0.0.1:8080",
"grpc 127.0.0.1:8081", "admin 127.0.0.1:6070". Logs go to stderr.

Rules files are read again when they change, and at SIGHUP. While they are wrong,
the last good rules stay in force.

On SIGTERM or SIGINT the server becomes not ready, answers the calls in flight and
exits with 0. A second signal ends it at once. If NOTIFY_SOCKET is set, it notifies
systemd when it is ready, reloads and stops.

The server uses up to 90 % of its cgroup's memory unless GOMEMLIMIT is set. Up to
64 MiB of that can be garbage that is not yet collected, unless GOGC is set.

A flag overrides its variable, and the variable overrides the default. Variables of
envoyproxy/ratelimit, such as RUNTIME_ROOT and REDIS_URL, override defaults only.`,
		Example: `  # demonstration rules, in memory; prints calls to try
  weir serve

  # your rules, shared by all instances through Redis
  weir serve --config rules.yaml --store redis://redis.internal:6379/0

  # on a free port, configured by the environment
  WEIR_CONFIG=/etc/weir WEIR_HTTP=127.0.0.1:0 weir serve`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.bind(cmd, f.Settings())
	return cmd
}

// noFiles refuses arguments, and names the flag that rules files are given with.
func noFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no argument; did you mean --config %s?", cmd.CommandPath(), args[0])
}

// bind defines the flags of settings, and those of logs.
func (f *serveFlags) bind(cmd *cobra.Command, settings []app.Setting) {
	cmd.Flags().SortFlags = false
	settings = append(settings,
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
	bindRemoved(cmd, "grpc-transport", "there is one gRPC server, which was called frames: remove the setting")
	for _, flag := range []string{"config", "rules-overlay"} {
		if cmd.Flags().Lookup(flag) != nil {
			mustComplete(cmd.RegisterFlagCompletionFunc(flag, completeFiles("yaml", "yml")))
		}
	}
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	getenv := os.Getenv
	if cmd.Name() != "serve" {
		getenv = func(string) string { return "" } // those variables configure another server
	}
	found, err := applyEnvoyproxy(cmd.Flags(), getenv)
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
	defer returnMemory(os.Getenv)()
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
	if f.Config == "" && (f.Models.Mock || f.Models.Upstream != "") {
		printCalls(w, addrs, "models", modelsText)
		return
	}
	if f.Config == "" && f.XDS.Server == "" && f.HTTPTLS == (app.TLS{}) {
		printCalls(w, addrs, "http", demoText)
		scheme := "http"
		if f.Admin.TLS != (app.TLS{}) {
			scheme = "https"
		}
		printCalls(w, addrs, "admin", "\n# Watch it in a browser: the dashboard.\n# "+scheme+"://%s/\n")
	}
}

// The calls behave as the comments say; a test runs them.
const demoText = `
# These are demonstration rules: in the domain demo each user may make 5 calls at
# once and 10 a minute, the path /login allows 3 calls in 10 s. Use your own
# with --config.

# Six calls of one user: 204 five times, then 429.
for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' 'http://%[1]s/v1/auth?domain=demo&user=alice'; done

# What the refusal says: headers, and a problem document.
curl -i 'http://%[1]s/v1/auth?domain=demo&user=alice'

# The same from a program, for 3 units at once: 200, 2 remain.
curl -s -H 'Content-Type: application/json' -d '{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"bob"}]}],"cost":3}' http://%[1]s/v1/take
`

// printCalls prints calls to try of the listener of a protocol, if there is one.
func printCalls(w io.Writer, addrs []app.Addr, protocol, text string) {
	for _, addr := range addrs {
		if addr.Protocol == protocol {
			fmt.Fprintf(w, text, reachable(addr.Address))
		}
	}
}

// reachable is an address that this host's clients can call: one that listens
// everywhere listens here too.
func reachable(address string) string {
	listening, err := netip.ParseAddrPort(address)
	if err != nil || !listening.Addr().IsUnspecified() {
		return address
	}
	return net.JoinHostPort("localhost", fmt.Sprint(listening.Port()))
}

// warnOfPassword logs a password in an argument, which other users of the host can read.
func warnOfPassword(flags *pflag.FlagSet, logger *slog.Logger) {
	flags.Visit(func(f *pflag.Flag) {
		// Visit leaves out flags that variables have set.
		if f.Name == "store" && hasPassword(f.Value.String()) {
			logger.Warn("a password is on the command line, which every user of this host can read", "flag", "--store",
				"want", "the URL in $"+variableOf(f.Name)+", or the password in a file that --store-password-file names")
		}
	})
}

// hasPassword reports whether the URL of a store has a password.
func hasPassword(store string) bool {
	_, rest, _ := strings.Cut(store, "://")
	user, _, found := strings.Cut(rest, "@")
	return found && strings.Contains(user, ":") || strings.Contains(rest, "sentinel_password=")
}
