package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/httpapi"
)

// defaultDrainDelay is long enough for clients that keep connections busy, and short
// beside the 10 s that Docker, the 30 s that Kubernetes and the 90 s that systemd give
// a process to stop.
const defaultDrainDelay = time.Second

// serveFlags are the flags of weir serve.
type serveFlags struct {
	config, configFiles  string
	configMerge          bool
	store, storePrefix   string
	storeSecret          string
	storeTLS             app.StoreTLS
	denyCache            int
	maxKeys              int
	storePasswords       app.StorePasswords
	http, grpc           string
	httpTLS, grpcTLS     app.TLS
	respTLS              app.TLS
	resp, respPassword   string
	headers              string
	logFormat, logLevel  string
	timeout              time.Duration
	drainDelay, drainMax time.Duration
	rls                  rlsFlags
	doors                doorFlags
	admin                app.AdminOptions
	telemetry            app.TelemetryOptions
	fallback             app.FallbackOptions
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer over HTTP and gRPC whether requests fit their limits",
		Long: `Serve answers GET /v1/auth (for proxies), POST /v1/take (for programs) and Envoy's
rate limit service over gRPC, and reports on itself at /healthz and /readyz.

Once it serves, it prints the addresses in use, one a line: "http 127.0.0.1:8080",
"grpc 127.0.0.1:8081", "admin 127.0.0.1:6070".
Rules files are read again when they change, and at SIGHUP; while they are wrong
the last good rules stay in force. Logs go to stderr. On SIGTERM or SIGINT it stops being ready, answers what is in
flight and ends with 0; a second signal ends it at once. Where NOTIFY_SOCKET is set
it tells systemd when it is ready, reloads and stops.

Nine tenths of its cgroup's memory are its own, or what GOMEMLIMIT says; up to 64 MiB
of it are for what the garbage collector has yet to free, unless GOGC says how often
it runs.

A flag beats its variable, the variable beats the default. Between the two stand
the variables of envoyproxy/ratelimit, such as RUNTIME_ROOT and REDIS_URL.`,
		Example: `  # demonstration rules, in memory; prints calls to try
  weir serve

  # your rules, shared by all instances through Redis
  weir serve --config rules.yaml --store redis://redis.internal:6379/0

  # on a free port, configured by the environment
  WEIR_CONFIG=/etc/weir WEIR_HTTP=127.0.0.1:0 weir serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	f.define(flags)
	flags.StringVar(&f.http, "http", app.DefaultHTTP, "address to listen at; port 0 picks a free one")
	flags.StringVar(&f.grpc, "grpc", app.DefaultGRPC, "where Envoy's rate limit service listens: host:port, unix:/path or off")
	f.rls.define(flags)
	defineTLS(flags, "http", &f.httpTLS)
	defineTLS(flags, "grpc", &f.grpcTLS)
	f.doors.define(flags)
	flags.StringVar(&f.resp, "resp", app.RESPOff, "address at which Redis clients find CL.THROTTLE, or off")
	defineTLS(flags, "resp", &f.respTLS)
	flags.StringVar(&f.respPassword, "resp-password-file", "", "file of passwords, one on each line; Redis clients have to give one of them")
	defineAdmin(flags, &f.admin)
	flags.StringVar(&f.headers, "headers", ratelimitheader.Draft11.String(), "headers that tell the limits: "+ratelimitheader.StyleNames())
	flags.DurationVar(&f.timeout, "timeout", httpapi.DefaultTimeout, "how long a call may wait for its decision")
	flags.DurationVar(&f.drainDelay, "drain-delay", defaultDrainDelay, "how long to accept connections after /readyz says no; then clients have as long again, at most 1s, to leave")
	flags.DurationVar(&f.drainMax, "drain-timeout", app.DefaultDrainTimeout, "how long stopping may take in all")
	defineTelemetry(flags, &f.telemetry)
	flags.StringVar(&f.logFormat, "log-format", "auto", "auto (text on a terminal, else json), text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	completeServe(cmd)
	return cmd
}

// define defines the flags of what is kept where.
func (f *serveFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "rules file, or a folder of them (default: demonstration rules)")
	flags.StringVar(&f.configFiles, "config-files", config.FilesYAML.String(), "which files of a folder: yaml, all, or hidden for those with a dot before them too")
	flags.BoolVar(&f.configMerge, "config-merge", false, "let several files name one domain")
	flags.StringVar(&f.store, "store", app.DefaultStore, "where the limits are kept: memory, redis://…, rediss://…, unix://…, redis+cluster://host,host… or redis+sentinel://master@host,host…")
	flags.StringVar(&f.storePrefix, "store-prefix", "", "what keys in Redis begin with (default \"weir:\")")
	flags.StringVar(&f.storeSecret, "store-secret-file", "", "file with a secret that makes the slots of keys unpredictable and proves messages between instances; the same for all of them")
	defineStoreTLS(flags, &f.storeTLS)
	defineStorePasswords(flags, &f.storePasswords)
	flags.IntVar(&f.denyCache, "deny-cache-entries", denycache.DefaultEntries, "how many refusals of a store in Redis to remember, so that it is not asked again before they end; 0 for none")
	flags.IntVar(&f.maxKeys, "max-keys", 0, "how many keys of a limit to keep apart where its rule has no max_keys; further ones share one budget (default: any number)")
	defineFallback(flags, &f.fallback)
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
	found.tell(options.Logger)
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
	// From the first signal on the next one has its usual effect: it kills. So
	// it is before anybody can see that the first one came.
	defer context.AfterFunc(signalled, func() {
		stop()
		notify.tell(notifyStopping)
		cancel()
	})()
	defer onHangup(func() {
		notify.tell(notifyReloading)
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

func (f *serveFlags) options(cmd *cobra.Command, log *queue) (app.Options, error) {
	logger, err := newLogger(log, f.logFormat, f.logLevel)
	if err != nil {
		return app.Options{}, err
	}
	headers, err := ratelimitheader.ParseStyle(f.headers)
	if err != nil {
		return app.Options{}, err
	}
	mode, err := f.rls.mode()
	if err != nil {
		return app.Options{}, err
	}
	files, err := config.ParseFiles(f.configFiles)
	if err != nil {
		return app.Options{}, err
	}
	if !cmd.Flags().Changed("drain-delay") {
		f.drainDelay = min(f.drainDelay, f.drainMax/3)
	}
	options := app.Options{
		Config:       f.config,
		ConfigFiles:  files,
		ConfigMerge:  f.configMerge,
		Store:        f.store,
		StorePrefix:  f.storePrefix,
		StoreTLS:     f.storeTLS,
		Fallback:     f.fallback,
		HTTP:         f.http,
		HTTPTLS:      f.httpTLS,
		GRPC:         f.grpc,
		GRPCTLS:      f.grpcTLS,
		RLS:          mode,
		RESP:         f.resp,
		Admin:        f.admin,
		Telemetry:    f.telemetry,
		Headers:      headers,
		Timeout:      f.timeout,
		DrainDelay:   f.drainDelay,
		DrainTimeout: f.drainMax,

		GRPCTransport:       f.rls.transport,
		GRPCConnectionAge:   f.rls.age,
		GRPCConnectionGrace: f.rls.grace,

		StorePasswords:   f.storePasswords,
		StoreSecretFile:  f.storeSecret,
		RESPPasswordFile: f.respPassword,
		RESPTLS:          f.respTLS,
		Logger:           logger,

		DenyCacheEntries: f.denyCache,
		NoDenyCache:      f.denyCache == 0,
		MaxKeys:          f.maxKeys,

		Serving: func(addrs []app.Addr) { f.print(cmd.OutOrStdout(), addrs) },
	}
	return options, f.doors.apply(&options)
}

// print says where the server is found, and what to try there if it has no rules of
// anybody's.
func (f *serveFlags) print(w io.Writer, addrs []app.Addr) {
	for _, addr := range addrs {
		fmt.Fprintln(w, addr)
	}
	if f.config == "" && f.httpTLS == (app.TLS{}) {
		printDemo(w, addrs)
		printDashboard(w, addrs, f.admin.TLS != (app.TLS{}))
	}
}
