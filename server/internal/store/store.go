// Package store opens the store that a URL names: memory, or Redis as one server, a
// cluster or behind sentinels.
package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/server/internal/settingfile"
)

// Settings of connections to Redis unless the URL has others. A reply is awaited for
// much longer than a caller waits, because a late one is settled.
const (
	replyTimeout    = 10 * time.Second
	socketTimeout   = 500 * time.Millisecond
	connectionsACPU = 16
	// redirectPause is the first wait of a command whose hash slot moved twice.
	redirectPause = time.Millisecond
)

// Options say how to open a store. The zero value is a store in memory.
type Options struct {
	// URL is memory, redis://…, rediss://…, unix://…, redis+cluster://… or
	// redis+sentinel://…. Empty: memory.
	URL string
	// Prefix begins every key in Redis; no braces. Empty: "weir:".
	Prefix string
	// SecretFile holds, on its only line, the secret that all instances share. It
	// makes hash slots unpredictable. Empty: anybody can compute them.
	SecretFile string
	// Passwords are files with the passwords that the URL lacks.
	Passwords Passwords
	// TLS are the files for a store that is reached by TLS.
	TLS TLS
	// Logger receives the store's own log lines. Nil: none.
	Logger *slog.Logger
}

// Passwords say where passwords come from that the URL lacks. At most one of File, Command
// and IAM is set. Connections are replaced when their password changes.
type Passwords struct {
	// File has the password on its only line.
	File string
	// Command is a program with its arguments, separated by spaces, that prints the
	// password on its only line.
	Command string
	// IAM names a cache of AWS whose passwords are signed by the credentials of the
	// environment: see [ParseIAM].
	IAM string
	// SentinelFile holds the sentinels' password; it is read once.
	SentinelFile string
}

// A Store is a Taker with what a process needs besides decisions. Its methods are safe
// for concurrent use.
type Store struct {
	weir.Taker
	// Client is the connection to Redis; nil for a store in memory.
	Client redis.UniversalClient

	url      string
	topology *topology // nil for a store in memory
	// credential is the password that changes; nil: none.
	credential *credential
	closers    []func() error
}

// Open opens the store that the options name. It connects to nothing. The error is a
// [*weir.InvalidError] or about a file, and never repeats the URL, which may hold a
// password.
func Open(o Options) (*Store, error) {
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, &weir.InvalidError{Field: "store prefix", Value: strconv.Quote(o.Prefix), Want: "no braces"}
	}
	secret, err := settingfile.Line("store secret file", o.SecretFile)
	if err != nil {
		return nil, err
	}
	s := &Store{url: cmp.Or(o.URL, "memory")}
	scheme, _, _ := strings.Cut(s.url, ":")
	switch scheme {
	case "memory":
		err = s.openMemory(&o)
	case "redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel":
		err = s.openRedis(&o, secret)
	default:
		want := "memory, redis://…, rediss://…, unix://…, redis+cluster://… or redis+sentinel://…"
		if _, port, found := strings.Cut(s.url, ":"); found && !strings.Contains(port, "//") {
			want = "redis://HOST:PORT/0 for a host and a port; others are " + want
		}
		err = invalidURL("of an unknown scheme", want)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func invalidURL(value, want string) error {
	return &weir.InvalidError{Field: "store", Value: value, Want: want}
}

func (s *Store) openMemory(o *Options) error {
	if s.url != "memory" && s.url != "memory://" {
		return invalidURL("memory with more behind it", "memory alone")
	}
	if o.Passwords != (Passwords{}) {
		return invalidURL("memory", "redis://…, for there are passwords for it")
	}
	s.Taker = memengine.New(memengine.Options{Logger: o.Logger})
	return o.TLS.apply(nil)
}

func (s *Store) openRedis(o *Options, secret string) error {
	to, err := parseTarget(s.url)
	if err != nil {
		return err
	}
	tune(to.Options)
	if err := errors.Join(o.TLS.apply(to.TLSConfig), o.Passwords.applySentinel(to)); err != nil {
		return err
	}
	if s.credential, err = o.Passwords.credential(to, o.Logger); err != nil {
		return err
	}
	if s.credential != nil {
		to.CredentialsProviderContext = s.credential.forConnection
		to.Dialer = s.credential.dial(redis.NewDialer(to.Options))
		s.closers = append(s.closers, s.credential.close)
	}
	options := redisengine.Options{Prefix: o.Prefix, Secret: secret, Logger: o.Logger}
	s.Client = to.client()
	s.closers = append(s.closers, s.Client.Close)
	if s.credential != nil {
		hookEachServer(s.Client, s.credential)
	}
	if s.Taker, err = redisengine.New(s.Client, options); err != nil {
		return err
	}
	s.topology = newTopology(to, s.Client)
	s.closers = append(s.closers, s.topology.close)
	return nil
}

// hookEachServer sees a cluster's servers one by one, because commands reach them without
// the client of the whole.
func hookEachServer(client redis.UniversalClient, hook redis.Hook) {
	if cluster, is := client.(*redis.ClusterClient); is {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		return
	}
	client.AddHook(hook)
}

// Ping reports whether the store answers, with the option that keeps it from
// answering where that can be told.
func (s *Store) Ping(ctx context.Context) error {
	if s.Client == nil {
		return nil
	}
	return s.Blame(s.Client.Ping(ctx).Err())
}

// Check returns what is wrong with the settings of the servers.
func (s *Store) Check(ctx context.Context) ([]redisengine.Finding, error) {
	if store, ok := s.Taker.(*redisengine.Store); ok {
		return store.Check(ctx)
	}
	return nil, nil
}

// Nodes returns the servers of the store, as they were at most two seconds ago; none
// for a store in memory.
func (s *Store) Nodes(ctx context.Context) []Node {
	if s.topology == nil {
		return nil
	}
	return s.topology.nodes(ctx)
}

// Close closes the connections.
func (s *Store) Close() error {
	var err error
	for _, closeOne := range s.closers {
		err = errors.Join(err, closeOne())
	}
	return err
}

// tune makes a client's options fit for decisions. Timeouts and the size of the pool
// are the URL's to choose.
func tune(o *redis.Options) {
	// A charge that is sent again may be made twice.
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout = cmp.Or(o.DialTimeout, socketTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, replyTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, socketTimeout)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, socketTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, connectionsACPU*runtime.GOMAXPROCS(0))
	o.MaxActiveConns = cmp.Or(o.MaxActiveConns, o.PoolSize)
	// Old servers and some proxies do not know the commands behind these.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// credential returns the password that changes; nil if there is none.
func (p *Passwords) credential(t *target, logger *slog.Logger) (*credential, error) {
	sources := 0
	for _, source := range []string{p.File, p.Command, p.IAM} {
		if source != "" {
			sources++
		}
	}
	switch {
	case sources == 0:
		return nil, nil
	case sources > 1:
		return nil, &weir.InvalidError{Field: "store password", Value: "from several sources", Want: "one of store password file, store password command and store iam"}
	case t.Password != "":
		return nil, invalidURL("with a password", "none, for it comes from elsewhere")
	case p.Command != "":
		return fromCommand(t, p.Command, logger)
	case p.IAM != "":
		return fromIAM(t, p.IAM, logger)
	}
	if _, err := settingfile.Line("store password file", p.File); err != nil {
		return nil, err
	}
	return fromFile(t, p.File, logger), nil
}

// applySentinel puts the sentinels' password into a target.
func (p *Passwords) applySentinel(t *target) error {
	if p.SentinelFile == "" {
		return nil
	}
	if t.kind != "sentinel" || t.sentinelPassword != "" {
		return invalidURL("without sentinels, or with their password", "redis+sentinel://… without sentinel_password, for there is a store sentinel password file")
	}
	var err error
	t.sentinelPassword, err = settingfile.Line("store sentinel password file", p.SentinelFile)
	return err
}
