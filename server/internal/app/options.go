// Package app is the process around the parts: it loads the rules, opens the
// store, listens, and stops in order. It knows nothing of flags and signals, so
// that a program can embed it and a test can run several.
package app

import (
	"cmp"
	"crypto/sha256"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// What the fields of [Options] are if they are zero.
const (
	DefaultHTTP                = "127.0.0.1:8080"
	DefaultGRPC                = "127.0.0.1:8081"
	DefaultStore               = "memory"
	DefaultDrainTimeout        = 15 * time.Second
	DefaultGRPCConnectionAge   = 24 * time.Hour
	DefaultGRPCConnectionGrace = time.Hour
)

// Options are what [New] needs. The zero value is valid: the demonstration rules
// on a store in memory.
type Options struct {
	// Config is a rules file or a folder of them. Empty: the demonstration
	// rules.
	Config string
	// ConfigFiles says which files of a folder are read. Zero: *.yaml and
	// *.yml.
	ConfigFiles config.Files
	// ConfigMerge lets several files name one domain.
	ConfigMerge bool
	// Store is the URL of the store: memory, redis://…, rediss://…, unix://…,
	// redis+cluster://… or redis+sentinel://…. Empty: [DefaultStore].
	Store string
	// StorePasswords has files with the passwords that the URL lacks.
	StorePasswords StorePasswords
	// StorePrefix begins every key in Redis; no braces. Empty: "weir:".
	StorePrefix string
	// StoreSecretFile holds, on its only line, what makes the slots of keys in
	// Redis unpredictable to those who choose the keys, and proves that messages come
	// from another instance; the same for all instances. Empty: anybody can compute the
	// slots, and everybody who may publish is believed.
	StoreSecretFile string
	// StoreTLS has the files for a store that is reached by TLS.
	StoreTLS StoreTLS
	// DenyCacheEntries is how many refusals of a store in Redis are remembered, so
	// that the store is not asked again before they end. Zero:
	// [denycache.DefaultEntries].
	DenyCacheEntries int
	// MaxKeys is how many keys of each limit of the rules an instance keeps apart,
	// where the rule does not say it. Zero: any number.
	MaxKeys int
	// NoDenyCache asks the store each time.
	NoDenyCache bool
	// Fallback says what is answered while the store reaches no decision.
	Fallback FallbackOptions
	// HTTP is the address to listen at, host:port; port 0 picks a free one.
	// Empty: [DefaultHTTP].
	HTTP string
	// HTTPTLS makes HTTP HTTPS.
	HTTPTLS TLS
	// GRPC is where Envoy's rate limit service listens: host:port, unix:/path
	// or off. Empty: [DefaultGRPC].
	GRPC string
	// GRPCTransport says what speaks gRPC: [TransportGRPCGo] or [TransportFrames].
	// Empty: [TransportGRPCGo].
	GRPCTransport string
	// GRPCTLS is for the gRPC listener.
	GRPCTLS TLS
	// GRPCConnectionAge is how long a gRPC connection lives before its client
	// is asked to open another, so that calls spread over new instances. Zero:
	// [DefaultGRPCConnectionAge].
	GRPCConnectionAge time.Duration
	// GRPCConnectionGrace is how long calls of an aged connection may go on.
	// Zero: [DefaultGRPCConnectionGrace].
	GRPCConnectionGrace time.Duration
	// RLS is how Envoy's rate limit service answers.
	RLS rls.Mode
	// RESP is the address at which Redis clients are served, host:port, or
	// [RESPOff]; one that others can reach needs a password or client certificates. Empty: [RESPOff].
	RESP string
	// RESPTLS is for the listener of Redis clients.
	RESPTLS TLS
	// RESPPasswordFile holds, one a line, what Redis clients have to say
	// first. Empty: nothing.
	RESPPasswordFile string
	// RESPMaxConnections is how many Redis clients can be connected. Zero:
	// [resp.DefaultMaxConnections].
	RESPMaxConnections int
	// HTTPMaxConnections is how many HTTP connections can be open. Zero:
	// [DefaultHTTPMaxConnections].
	HTTPMaxConnections int
	// Limits bound what clients can make the server keep.
	Limits Limits
	// HTTPTokenFile holds what HTTP callers have to know, a token on each line;
	// it is read again when it changes. Health checks need none. Empty: nobody
	// is asked.
	HTTPTokenFile string
	// GRPCTokenFile is HTTPTokenFile for calls of Envoy's rate limit service.
	GRPCTokenFile string
	// Callers is a YAML file of callers that may do some things in some domains, at every
	// listener; it is read again when it changes. Those of the files of tokens and
	// passwords may do everything. Empty: there is none.
	Callers string
	// InsecureToken admits tokens and passwords over connections without TLS from other
	// machines: for a mesh or a tunnel that encrypts them. False: such a listener does
	// not start.
	InsecureToken bool
	// ClientIP finds the address of who sent a call, for from=KEY=client_ip.
	// Zero: [clientip.RemoteAddr].
	ClientIP clientip.Strategy
	// Hosts are names, besides localhost and loopback addresses, by which clients
	// may call listeners on loopback addresses. A request that names another host
	// is refused: it may come from a web page whose name resolves to this machine.
	// HTTP clients may also use any name without a dot.
	Hosts []string
	// Admin is about the listener for administrators. Zero: there is none.
	Admin AdminOptions
	// Telemetry is what the server tells about itself. The zero value is a good
	// one.
	Telemetry TelemetryOptions
	// Headers is how limits are told in headers. Zero: draft-11.
	Headers ratelimitheader.Style
	// Timeout is how long a call may wait for its decision, below 5 s. Zero:
	// [httpapi.DefaultTimeout].
	Timeout time.Duration
	// DrainDelay is how long Stop goes on accepting connections after /readyz has
	// begun to refuse, for balancers that notice late. Then HTTP clients have as
	// long again, at most 1 s, to use open connections once more: the answer
	// closes them. Zero: connections are closed at once, and calls that are
	// sent on them at that moment are lost.
	DrainDelay time.Duration
	// DrainTimeout bounds Stop as [App.Run] calls it, the delay included. Zero:
	// [DefaultDrainTimeout].
	DrainTimeout time.Duration
	// Serving, if not nil, is called once by Start when calls are accepted.
	Serving func([]Addr)
	// Reloaded, if not nil, is called after each look at the rules files that
	// [App.Reload] asked for, with what keeps their rules from being in force or
	// nil. Looks asked for in quick succession may be one.
	Reloaded func(error)
	// Logger is told what the process does. Nil: nothing is logged.
	Logger *slog.Logger

	// wrapStore, if not nil, is for tests: it puts something around the store.
	wrapStore func(weir.Taker) weir.Taker
}

// An Addr is an address in use.
type Addr struct {
	Protocol string // "http", "grpc", "resp" or "admin"
	Address  string // host:port, with the real port, or unix:/path
}

// String returns the address as it is printed: "http 127.0.0.1:8080".
func (a Addr) String() string { return a.Protocol + " " + a.Address }

// withDefaults returns the options with what was left out.
func (o Options) withDefaults() Options {
	o.Store = cmp.Or(o.Store, DefaultStore)
	o.HTTP = cmp.Or(o.HTTP, DefaultHTTP)
	o.GRPC = cmp.Or(o.GRPC, DefaultGRPC)
	o.GRPCConnectionAge = cmp.Or(o.GRPCConnectionAge, DefaultGRPCConnectionAge)
	o.GRPCConnectionGrace = cmp.Or(o.GRPCConnectionGrace, DefaultGRPCConnectionGrace)
	o.DenyCacheEntries = cmp.Or(o.DenyCacheEntries, denycache.DefaultEntries)
	o.RESP = cmp.Or(o.RESP, RESPOff)
	o.RESPMaxConnections = cmp.Or(o.RESPMaxConnections, resp.DefaultMaxConnections)
	o.HTTPMaxConnections = cmp.Or(o.HTTPMaxConnections, DefaultHTTPMaxConnections)
	o.Limits = o.Limits.withDefaults()
	o.Admin.Address = cmp.Or(o.Admin.Address, AdminOff)
	o.Timeout = cmp.Or(o.Timeout, httpapi.DefaultTimeout)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, DefaultDrainTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Reloaded == nil {
		o.Reloaded = func(error) {}
	}
	return o
}

// validate names the first option that cannot be.
func (o *Options) validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"timeout", o.Timeout},
		{"drain delay", o.DrainDelay},
		{"drain timeout", o.DrainTimeout},
		{"grpc connection age", o.GRPCConnectionAge},
		{"grpc connection grace", o.GRPCConnectionGrace},
	} {
		if d.value < 0 {
			return &weir.InvalidError{Field: d.field, Value: d.value.String(), Want: "no negative duration"}
		}
	}
	if o.Timeout >= writeTimeout {
		return &weir.InvalidError{Field: "timeout", Value: o.Timeout.String(), Want: "less than " + writeTimeout.String() + ", which bounds the whole call"}
	}
	if o.DrainDelay >= o.DrainTimeout {
		return &weir.InvalidError{Field: "drain delay", Value: o.DrainDelay.String(), Want: "less than the drain timeout of " + o.DrainTimeout.String()}
	}
	for field, n := range map[string]int{"resp max connections": o.RESPMaxConnections, "http max connections": o.HTTPMaxConnections} {
		if n < 0 {
			return &weir.InvalidError{Field: field, Value: strconv.Itoa(n), Want: "at least 1; 0 for the default"}
		}
	}
	if err := o.Limits.validate(); err != nil {
		return err
	}
	if err := checkAddress("http", o.HTTP, DefaultHTTP); err != nil {
		return err
	}
	if err := checkGRPC(o.GRPC); err != nil {
		return err
	}
	if err := checkTransport(o.GRPCTransport); err != nil {
		return err
	}
	if o.DenyCacheEntries < 0 {
		return &weir.InvalidError{Field: "deny cache entries", Value: strconv.Itoa(o.DenyCacheEntries), Want: "0 or more"}
	}
	if strings.ContainsAny(o.StorePrefix, "{}") {
		return &weir.InvalidError{Field: "store prefix", Value: strconv.Quote(o.StorePrefix), Want: "no braces"}
	}
	if err := o.validateKeys(); err != nil {
		return err
	}
	if err := o.validateRESP(); err != nil {
		return err
	}
	if err := o.Fallback.validate(); err != nil {
		return err
	}
	if err := o.Admin.validate(o.Callers != ""); err != nil {
		return err
	}
	return o.checkClearText()
}

// loadRules reads the rules that the options name, and tells them apart from
// others. The error lists every mistake in them.
func (o *Options) loadRules() (set *rules.Set, seen [sha256.Size]byte, err error) {
	if o.Config == "" {
		return rules.Demo(), seen, nil
	}
	reading := o.source().Read()
	set, err = rules.LoadFrom(reading)
	return set, reading.Fingerprint(), err
}

// source is where the rules are.
func (o *Options) source() config.Source {
	return config.Source{Paths: []string{o.Config}, Files: o.ConfigFiles, Merge: o.ConfigMerge}
}
