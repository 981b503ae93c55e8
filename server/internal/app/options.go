package app

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/store"
)

// Defaults that other packages name.
const (
	DefaultHTTP         = "127.0.0.1:8080"
	DefaultGRPC         = "127.0.0.1:8081"
	DefaultAdmin        = "127.0.0.1:6070"
	DefaultStoreTimeout = remote.DefaultPatience
	DefaultStoreSilence = calls.DefaultSilence
	DefaultMetricsPath  = "/metrics"
	// Off is the address of a listener that does not exist.
	Off = "off"
)

// Options are the settings of a server. The zero value serves the demonstration rules
// from memory, over HTTP and gRPC at the default addresses. [Options.Settings] describes
// each field that a flag sets: its default, which the zero value stands for, and the
// values that it can have.
type Options struct {
	// Rules files.
	Config      string
	ConfigFiles config.Files
	ConfigMerge bool
	MaxKeys     int
	Unmatched   string
	XDS         XDSOptions

	// The store.
	Store           string
	StorePrefix     string
	StoreSecretFile string
	StorePasswords  store.Passwords
	StoreTLS        store.TLS
	// DenyCacheEntries is the number of refusals to remember; negative for none.
	DenyCacheEntries int
	Fallback         FallbackOptions

	// Listeners.
	HTTP                string
	HTTPTLS             TLS
	HTTPTokenFile       string
	HTTPMaxConnections  int
	PlainHTTP           string // "off" leaves all requests to net/http
	GRPC                string
	GRPCTLS             TLS
	GRPCTokenFile       string
	GRPCConnectionAge   time.Duration
	GRPCConnectionGrace time.Duration
	RESP                string
	RESPTLS             TLS
	RESPPasswordFile    string
	RESPMaxConnections  int
	Metrics             MetricsOptions
	Admin               AdminOptions // the zero value has no admin listener
	Limits              Limits
	Callers             string
	InsecureToken       bool
	Hosts               []string

	// Models makes the server a proxy for language models.
	Models ModelOptions

	// Answers.
	ClientIP     clientip.Strategy
	ClientIPBits int
	Headers      ratelimitheader.Style
	RLS          rls.Mode
	RLSCompare   string // empty: answer with Weir's own decisions
	RLQS         bool   // serve Envoy's rate limit quota service, too
	RLQSBuckets  int
	Oversized    string
	Timeout      time.Duration

	// DrainDelay is how long Stop goes on accepting connections after /readyz has begun
	// to refuse. Zero, which is not the flag's default, closes connections at once: calls
	// sent on them at that moment are lost.
	DrainDelay   time.Duration
	DrainTimeout time.Duration

	Telemetry TelemetryOptions

	// Serving, if not nil, is called once by Start when calls are accepted.
	Serving func([]Addr)
	// Reloaded, if not nil, is called after each reading of the rules files that
	// [App.Reload] asked for, with the error that keeps them from being in force.
	Reloaded func(error)
	// Logger receives the server's log lines. Nil: none.
	Logger *slog.Logger

	// wrapStore, if not nil, wraps the store; for tests.
	wrapStore func(weir.Taker) weir.Taker
}

// MetricsOptions are the settings of a listener for the metrics alone.
type MetricsOptions struct {
	Address string // empty: Off
	Path    string
}

// AdminOptions are the settings of the admin listener.
type AdminOptions struct {
	Address   string // empty: Off
	TokenFile string
	TLS       TLS
}

// FallbackOptions are the settings for outages of a store in Redis.
type FallbackOptions struct {
	StoreTimeout   time.Duration
	StoreSilence   time.Duration
	OnStoreFailure string
	Instances      int
}

// Limits bound the memory that clients can make the server use before it has read a
// request.
type Limits struct {
	rules.Bounds
	RequestMemory       int // in MiB
	GRPCMaxConnections  int
	GRPCMaxStreams      int
	GRPCMaxHeaderBytes  int
	GRPCMaxMessageBytes int
	GRPCMaxWatches      int
	GRPCIdleTimeout     time.Duration
	AdminMaxConnections int
}

// TelemetryOptions are the settings of logs, metrics and traces.
type TelemetryOptions struct {
	EnvoyproxyMetrics bool
	NearLimitRatio    float64
	LogRefusals       bool
	// Tracing makes spans of calls; its caller stops it. Nil: none.
	Tracing *Tracing
}

// An Addr is an address in use.
type Addr struct {
	Protocol string // "http", "grpc", "resp", "models", "mock", "metrics" or "admin"
	Address  string // host:port, with the real port, or unix:/path
}

// String returns the address as it is printed: "http 127.0.0.1:8080".
func (a Addr) String() string { return a.Protocol + " " + a.Address }

// complete gives every field that is zero its default and returns the first mistake.
func (o *Options) complete() error {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Reloaded == nil {
		o.Reloaded = func(error) {}
	}
	settings := o.Settings()
	if o.Models.on() {
		o.completeModels()
		settings = append(settings, o.modelSettings()...)
	}
	for _, s := range settings {
		if err := s.complete(); err != nil {
			return err
		}
	}
	if o.DrainDelay >= o.DrainTimeout {
		return &weir.InvalidError{Field: "drain delay", Value: o.DrainDelay.String(), Want: "less than the drain timeout of " + o.DrainTimeout.String()}
	}
	for _, a := range o.accesses() {
		if err := a.check(o.InsecureToken); err != nil {
			return err
		}
	}
	if err := o.checkModels(); err != nil {
		return err
	}
	var err error
	if o.ClientIP, err = o.ClientIP.WithIPv6Bits(o.ClientIPBits); err != nil {
		return err
	}
	return nil
}

// StoreSettings returns the settings of [Options.StoreOptions], for a command that only opens
// the store.
func (o *Options) StoreSettings() []Setting {
	return slices.DeleteFunc(o.Settings(), func(s Setting) bool { return s.Group != "Store" || s.Flag == "deny-cache-entries" })
}

// StoreOptions are the options of the store.
func (o *Options) StoreOptions() store.Options {
	return store.Options{
		URL: o.Store, Prefix: o.StorePrefix, SecretFile: o.StoreSecretFile,
		Passwords: o.StorePasswords, TLS: o.StoreTLS, Logger: o.Logger,
	}
}
