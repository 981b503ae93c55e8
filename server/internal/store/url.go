package store

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// A target is what the URL of a store in Redis says.
type target struct {
	*redis.Options
	kind   string   // "", "cluster" or "sentinel"
	addrs  []string // of a cluster's nodes, or of sentinels
	master string   // as sentinels know it
	// The user and password of the sentinels.
	sentinelUser, sentinelPassword string
}

// wanted is what a URL of each kind looks like.
var wanted = map[string]string{
	"":         "redis://[user[:password]@]host[:port][/db], rediss://… or unix:///path[?db=n]; percent-encode a password",
	"cluster":  "redis+cluster://[user[:password]@]host[:port],host[:port]…, or rediss+cluster://… by TLS; percent-encode a password",
	"sentinel": "redis+sentinel://[user[:password]@]master@host[:port],host[:port]…[/db], or rediss+sentinel://… by TLS; percent-encode a password",
}

// parseTarget reads the URL of a store in Redis.
func parseTarget(raw string) (*target, error) {
	scheme, rest, begun := strings.Cut(raw, "://")
	// A prefix with one of these is no scheme, and may be a user and a password.
	begun = begun && !strings.ContainsAny(scheme, ":/?#@")
	scheme, kind, _ := strings.Cut(scheme, "+")
	t := &target{kind: kind}
	refuse := func(value string) (*target, error) { return nil, invalidURL(value, wanted[kind]) }
	// The errors below quote parts of the URL, which must not be half a password.
	if !begun {
		return refuse("without :// behind its first word")
	}
	if cutShort(rest) && (scheme != "unix" || rest[0] != '/') {
		return refuse("with an @ behind its hosts")
	}
	if kind != "" {
		why := ""
		if rest, why = t.readHosts(rest); why != "" {
			return refuse(why)
		}
		raw = scheme + "://" + rest
	}
	secretive := strings.Contains(raw, "sentinel_password=")
	raw, why := t.readSentinel(raw)
	if why != "" {
		return refuse(why)
	}
	options, err := redis.ParseURL(raw)
	if err != nil && secretive {
		// An unknown option may be the rest of the password.
		return refuse("with options that it does not have")
	}
	if err != nil {
		return refuse(misread(err))
	}
	if kind == "cluster" && options.DB != 0 {
		return refuse("a cluster with a database number, of which it has only 0")
	}
	if kind != "" && options.TLSConfig != nil {
		// Each server has a name of its own.
		options.TLSConfig.ServerName = ""
	}
	t.Options = options
	return t, nil
}

// cutShort reports whether the user and password may go on behind the apparent end of
// the hosts, as with a password that has a slash.
func cutShort(rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@")
}

// readHosts takes the hosts, and the master's name, out of the text after the scheme
// and leaves one host there. If they cannot be read, it says what is wrong.
func (t *target) readHosts(rest string) (left, wrong string) {
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	port := redisPort
	if t.kind == "sentinel" {
		port = sentinelPort
		name := strings.TrimSuffix(user, "@")
		i := strings.LastIndexByte(name, '@')
		user, name = name[:i+1], name[i+1:]
		master, err := url.PathUnescape(name)
		if err != nil || master == "" || strings.Contains(name, ":") {
			return "", "without a master's name before its hosts"
		}
		t.master = master
	}
	for host := range strings.SplitSeq(hosts, ",") {
		address, ok := withPort(host, port)
		if !ok {
			return "", "with a host that is none: " + strconv.Quote(host)
		}
		t.addrs = append(t.addrs, address)
	}
	return user + t.addrs[0] + tail, ""
}

// withPort completes an address.
func withPort(host, port string) (string, bool) {
	name, given, err := net.SplitHostPort(host)
	if err != nil {
		name, given = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), port
	}
	n, err := strconv.ParseUint(given, 10, 16)
	if err != nil || n == 0 || name == "" || strings.ContainsAny(name, "[]/@ ") || strings.Contains(name, ":") && net.ParseIP(name) == nil {
		return "", false
	}
	return net.JoinHostPort(name, given), true
}

// readSentinel takes the user and password of the sentinels out of the URL's options.
func (t *target) readSentinel(raw string) (left, wrong string) {
	before, query, _ := strings.Cut(raw, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", "with options that cannot be read"
	}
	if !values.Has("sentinel_username") && !values.Has("sentinel_password") {
		return raw, ""
	}
	if t.kind != "sentinel" {
		return "", "without sentinels, and with a user or password for them"
	}
	t.sentinelUser, t.sentinelPassword = values.Get("sentinel_username"), values.Get("sentinel_password")
	values.Del("sentinel_username")
	values.Del("sentinel_password")
	return before + "?" + values.Encode(), ""
}

// client returns a client for the target. It connects to nothing.
func (t *target) client() redis.UniversalClient {
	if t.kind == "" {
		return redis.NewClient(t.Options)
	}
	o := redis.UniversalOptions{
		Addrs: t.addrs, MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		DB: t.DB, Protocol: t.Protocol, ClientName: t.ClientName,
		Username: t.Username, Password: t.Password, CredentialsProviderContext: t.CredentialsProviderContext, Dialer: t.Dialer,
		MaxRetries: t.MaxRetries, DialerRetries: t.DialerRetries, ContextTimeoutEnabled: true,
		DialTimeout: t.DialTimeout, ReadTimeout: t.ReadTimeout, WriteTimeout: t.WriteTimeout,
		PoolFIFO: t.PoolFIFO, PoolSize: t.PoolSize, PoolTimeout: t.PoolTimeout, MinIdleConns: t.MinIdleConns,
		MaxIdleConns: t.MaxIdleConns, MaxActiveConns: t.MaxActiveConns,
		ConnMaxIdleTime: t.ConnMaxIdleTime, ConnMaxLifetime: t.ConnMaxLifetime, ConnMaxLifetimeJitter: t.ConnMaxLifetimeJitter,
		TLSConfig: t.TLSConfig, DisableIdentity: true, MaintNotificationsConfig: t.MaintNotificationsConfig,
	}
	if t.kind == "sentinel" {
		return redis.NewFailoverClient(o.Failover())
	}
	// The client follows hash slots that move. That repeats no charge, because a node
	// without the slot runs nothing.
	o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = 0, redirectPause, 8*redirectPause
	return redis.NewClusterClient(o.Cluster())
}

// misread returns why a URL was not understood. [url.Parse] may quote a part of the
// password, so its text is left out.
func misread(err error) string {
	if parse := new(url.Error); errors.As(err, &parse) {
		return "not a URL"
	}
	return strings.TrimPrefix(err.Error(), "redis: ")
}

// Describe returns the URL without its passwords, for logs.
func (s *Store) Describe() string { return describe(s.url) }

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
