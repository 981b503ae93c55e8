package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/server/internal/dashboard"
)

// What the server asks of connections to Redis unless the URL says otherwise. Replies
// are waited for much longer than callers wait: a late one is settled.
const (
	dialTimeout     = 100 * time.Millisecond
	replyTimeout    = 10 * time.Second
	socketTimeout   = 500 * time.Millisecond
	connectionsACPU = 16
	// redirectPause is how long a command first waits that followed a slot which
	// moved, and moved again.
	redirectPause = time.Millisecond
)

// A store is a Taker with what a process needs besides decisions.
type store struct {
	weir.Taker
	// client is the connection to Redis; nil for other stores.
	client redis.UniversalClient
	// ping reports whether the store answers.
	ping func(context.Context) error
	// check finds what is not as it should be about the servers; nil where there
	// are none.
	check func(context.Context) ([]redisstore.Finding, error)
	// nodes are the servers; nil where there are none.
	nodes *nodes
	// secret is that of all instances; empty if there is none.
	secret string
	// close gives the connections back.
	close func() error
}

// storeOptions are what a store in Redis needs besides its URL.
type storeOptions struct {
	redisstore.Options
	tls       StoreTLS
	passwords StorePasswords
}

// openStore opens the store that the options name.
func (o *Options) openStore() (*store, error) {
	secret, err := readLine("store secret file", o.StoreSecretFile)
	if err != nil {
		return nil, err
	}
	s, err := openStore(o.Store, storeOptions{redisstore.Options{Prefix: o.StorePrefix, Secret: secret, Logger: o.Logger}, o.StoreTLS, o.StorePasswords})
	if err != nil {
		return nil, err
	}
	s.secret = secret
	return s, nil
}

// openStore returns the store that a URL names. It connects to nothing. Its
// errors never repeat the URL, which may hold a password.
func openStore(raw string, o storeOptions) (*store, error) {
	scheme, _, _ := strings.Cut(raw, ":")
	switch scheme {
	case "memory":
		if raw != "memory" && raw != "memory://" {
			return nil, storeError("memory with more behind it", "memory alone")
		}
		if o.passwords != (StorePasswords{}) {
			return nil, storeError("memory", "redis://…, for there are files with passwords")
		}
		return memoryStore(o.Logger), o.tls.apply(nil)
	case "redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel":
		return redisStore(raw, o)
	}
	return nil, storeError("of no known kind", "memory, redis://…, rediss://…, unix://…, redis+cluster://… or redis+sentinel://…")
}

func storeError(value, want string) error {
	return &weir.InvalidError{Field: "store", Value: value, Want: want}
}

func memoryStore(logger *slog.Logger) *store {
	return &store{
		Taker: memstore.New(memstore.Options{Logger: logger}),
		ping:  func(context.Context) error { return nil },
		close: func() error { return nil },
	}
}

func redisStore(raw string, o storeOptions) (*store, error) {
	to, err := parseTarget(raw)
	if err != nil {
		return nil, err
	}
	tune(to.Options)
	if err := errors.Join(o.tls.apply(to.TLSConfig), o.passwords.apply(to)); err != nil {
		return nil, err
	}
	if to.kind != "cluster" && to.kind != "sentinel" {
		o.Keeper = redisstore.NewKeeper()
		to.Dialer = o.Keeper.Dial(redis.NewDialer(to.Options))
	}
	client := to.client()
	taker, err := redisstore.New(client, o.Options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s := &store{
		Taker:  taker,
		client: client,
		ping:   func(ctx context.Context) error { return client.Ping(ctx).Err() },
		check:  taker.Check,
		close:  client.Close,
	}
	s.watch(to)
	return s, nil
}

// watch settles who is asked about the servers.
func (s *store) watch(to *target) {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		s.nodes = &nodes{ask: func(ctx context.Context) []dashboard.Node { return clusterNodes(ctx, client, to.addrs) }}
	case *redis.Client:
		if to.kind != "sentinel" {
			s.nodes = &nodes{ask: func(ctx context.Context) []dashboard.Node { return aloneNodes(ctx, client) }}
			return
		}
		watching, closed := newSentinels(to), s.close
		s.nodes = &nodes{ask: watching.nodes}
		s.close = func() error { return errors.Join(closed(), watching.close()) }
	}
}

// misread says why a URL was not understood. What [url.Parse] says may quote a
// part of the password, so that is left out.
func misread(err error) string {
	if parse := new(url.Error); errors.As(err, &parse) {
		return "not a URL"
	}
	return strings.TrimPrefix(err.Error(), "redis: ")
}

// tune makes a client's options fit for decisions; timeouts and the pool's size
// are the URL's to choose.
func tune(o *redis.Options) {
	// A charge that is sent again may be made twice.
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, replyTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, socketTimeout)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, socketTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, connectionsACPU*runtime.GOMAXPROCS(0))
	o.MaxActiveConns = cmp.Or(o.MaxActiveConns, o.PoolSize)
	// Commands that old servers and proxies in between do not know.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// describe says which store a URL names, without its passwords, for logs.
func describe(raw string) string {
	scheme, _, _ := strings.Cut(raw, ":")
	if strings.Contains(scheme, "+") {
		if to, err := parseTarget(raw); err == nil {
			return scheme + "://" + strings.TrimPrefix(to.master+"@", "@") + strings.Join(to.addrs, ",")
		}
		return scheme
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Host+u.Path == "" {
		return scheme
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// OpenStore opens the store that the options name, by its URL, prefix, secret and
// TLS alone, for a program that asks it by itself. It connects to nothing. The
// client is the caller's to close; nil where the store is none in Redis. The error
// is a [*weir.InvalidError], and never repeats the URL.
func OpenStore(o Options) (weir.Taker, redis.UniversalClient, error) {
	s, err := o.openStore()
	if err != nil {
		return nil, nil, err
	}
	return s.Taker, s.client, nil
}
