package app

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
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
	// What sentinels want to hear.
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
	// What has these is no scheme, and may be a user and a password.
	begun = begun && !strings.ContainsAny(scheme, ":/?#@")
	scheme, kind, _ := strings.Cut(scheme, "+")
	t := &target{kind: kind}
	refuse := func(value string) (*target, error) { return nil, storeError(value, wanted[kind]) }
	// Below this some of the URL is told, which must not be half a password.
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
		// An option that there is not may be the rest of the password.
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

// cutShort reports whether a user's part may go on behind what looks like the end of
// the hosts, as with a password that has a slash.
func cutShort(rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@")
}

// readHosts takes several hosts, and a master's name, out of what comes after the
// scheme, and leaves one host. Without them it says what is wrong.
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

// readSentinel takes what sentinels want to hear out of the options in a URL.
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
		return "", "without sentinels, and with what they want to hear"
	}
	t.sentinelUser, t.sentinelPassword = values.Get("sentinel_username"), values.Get("sentinel_password")
	values.Del("sentinel_username")
	values.Del("sentinel_password")
	return before + "?" + values.Encode(), ""
}

// client returns a client for the target. It connects to nothing.
func (t *target) client() redis.UniversalClient {
	switch t.kind {
	case "cluster":
		return redis.NewClusterClient(t.cluster())
	case "sentinel":
		return redis.NewFailoverClient(t.failover())
	}
	return redis.NewClient(t.Options)
}

// cluster is the options for each node of a cluster. The client follows a slot that
// moves as often as it does by itself; a charge is not repeated by that, because a
// server that does not have the slot has not run anything.
func (t *target) cluster() *redis.ClusterOptions {
	o := t.Options
	return &redis.ClusterOptions{
		Addrs: t.addrs, Protocol: o.Protocol, ClientName: o.ClientName,
		Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext,
		MinRetryBackoff: redirectPause, MaxRetryBackoff: 8 * redirectPause,
		ContextTimeoutEnabled: true, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns,
		MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		TLSConfig: o.TLSConfig, DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}

// failover is the options for the master that sentinels name, and for them.
func (t *target) failover() *redis.FailoverOptions {
	o := t.Options
	return &redis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		DB: o.DB, Protocol: o.Protocol, ClientName: o.ClientName,
		Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext,
		MaxRetries: o.MaxRetries, ContextTimeoutEnabled: true, DialerRetries: o.DialerRetries,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns,
		MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		TLSConfig: o.TLSConfig, DisableIdentity: true,
	}
}

// StorePasswords are files with passwords, each on its file's only line, for URLs that
// have none. The zero value has none.
type StorePasswords struct {
	// File is read with each connection, so that a new password needs no restart.
	File string
	// SentinelFile is for the sentinels; it is read once.
	SentinelFile string
}

// apply puts the passwords into a target.
func (p *StorePasswords) apply(t *target) error {
	if p.File != "" {
		if t.Password != "" {
			return storeError("with a password", "none, for there is a store password file")
		}
		if _, err := readLine("store password file", p.File); err != nil {
			return err
		}
		user := t.Username
		t.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := readLine("store password file", p.File)
			return user, password, err
		}
	}
	if p.SentinelFile == "" {
		return nil
	}
	if t.kind != "sentinel" || t.sentinelPassword != "" {
		return storeError("without sentinels, or with their password", "redis+sentinel://… without sentinel_password, for there is a store sentinel password file")
	}
	var err error
	t.sentinelPassword, err = readLine("store sentinel password file", p.SentinelFile)
	return err
}

// readLine returns the only line of a file with something secret; nothing if
// there is no file.
func readLine(field, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("server: %s: %w", field, err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", &weir.InvalidError{Field: field, Value: strconv.Quote(file), Want: "a file with one line, the secret"}
	}
	return line, nil
}
