package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rls"
)

// borrowed has the effects of the variables of envoyproxy/ratelimit.
type borrowed struct {
	behind  map[string][]string // the variables that set a flag
	ignored []*family
	names   map[*family][]string // those of a family that are set
	idle    []string             // set flags elsewhere, and nothing in this environment
	alone   bool                 // nothing names a store that other processes share
}

// applyEnvoyproxy sets flags that were not given from the variables of
// envoyproxy/ratelimit. An empty variable counts as unset. The error names one
// that cannot be followed.
func applyEnvoyproxy(flags *pflag.FlagSet, get func(string) string) (*borrowed, error) {
	e := &environment{get: get}
	b := &borrowed{behind: map[string][]string{}, names: map[*family][]string{}}
	for i := range envoyproxy {
		f := &envoyproxy[i]
		if slices.ContainsFunc(strings.Fields(f.flags), flags.Changed) {
			continue
		}
		b.names[f] = f.asking(e)
		switch {
		case f.fate == sets:
			if err := b.set(flags, f, e); err != nil {
				return nil, err
			}
		case len(b.names[f]) == 0 || f.fate == same:
		case f.fate == stops:
			return nil, fmt.Errorf("%s is set as for envoyproxy/ratelimit and cannot be followed: %s", strings.Join(b.names[f], ", "), f.why)
		default:
			b.ignored = append(b.ignored, f)
		}
	}
	b.alone = (get(dropIn) != "" || e.fromXDS()) && get("REDIS_URL") == "" && !flags.Changed("store")
	return b, nil
}

// asking returns the variables of the family that ask for something.
func (f *family) asking(e *environment) []string {
	if f.with != "" && !e.truth(f.with) || f.unless != nil && f.unless(e) {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(f.names), func(name string) bool {
		value := e.get(name)
		return value == "" || slices.Contains(f.harmless, strings.ToLower(value))
	})
}

// set sets the family's flag.
func (b *borrowed) set(flags *pflag.FlagSet, f *family, e *environment) error {
	name, _, _ := strings.Cut(f.flags, " ")
	value := ""
	if compose := composed[name]; compose != nil {
		value = compose(e)
	} else if len(b.names[f]) > 0 {
		value = e.get(b.names[f][0])
	}
	if e.err != nil || value == "" {
		b.idle = append(b.idle, b.names[f]...)
		return e.err
	}
	b.behind[name] = b.names[f]
	if len(b.names[f]) == 0 {
		b.behind[name] = []string{dropIn}
	}
	if err := flags.Lookup(name).Value.Set(value); err != nil {
		return fmt.Errorf("invalid value %q in %s: %w", value, strings.Join(b.behind[name], ", "), err)
	}
	return nil
}

// blame adds to an error about an option which variables it comes from.
func (b *borrowed) blame(err error) error {
	invalid := new(weir.InvalidError)
	if !errors.As(err, &invalid) {
		return err
	}
	for flag, names := range b.behind {
		if app.FieldOf(flag) == invalid.Field {
			return fmt.Errorf("%w; it comes from %s", err, strings.Join(names, ", "))
		}
	}
	return err
}

// log logs which variables were followed and which were not, without their values,
// because some are secrets.
func (b *borrowed) log(logger *slog.Logger) {
	var followed []string
	for _, names := range b.behind {
		followed = append(followed, names...)
	}
	slices.Sort(followed)
	if followed = slices.Compact(followed); len(followed) > 0 {
		logger.Info("variables of envoyproxy/ratelimit are followed", "variables", followed)
	}
	if len(b.idle) > 0 {
		logger.Info("variables of envoyproxy/ratelimit have no effect because another variable overrides them", "variables", b.idle)
	}
	if b.alone {
		logger.Warn("REDIS_URL is not set: limits are kept in memory, by each process for itself")
	}
	for _, f := range b.ignored {
		logger.Warn("variables of envoyproxy/ratelimit are not followed", "variables", b.names[f], "why", f.why)
	}
}

// environment reads variables and remembers the first mistake in them.
type environment struct {
	get func(string) string
	err error
}

func (e *environment) fail(name, value, want string) {
	if e.err == nil {
		e.err = &weir.InvalidError{Field: name, Value: value, Want: want}
	}
}

// truth reports whether a variable is true.
func (e *environment) truth(name string) bool {
	value := e.get(name)
	if value == "" {
		return false
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		e.fail(name, strconv.Quote(value), "true or false")
	}
	return on
}

// composed are the flags that it takes more than a value to set; empty leaves
// them as they are.
var composed = map[string]func(*environment) string{
	"config":  (*environment).folder,
	"metrics": (*environment).metricsAddress,

	"rules-xds":          (*environment).managementServer,
	"rules-xds-metadata": (*environment).nodeMetadata,
	"rules-xds-backoff":  (*environment).xdsBackoff,
	"rules-xds-optional": (*environment).startWithoutRules,

	"config-files":  (*environment).files,
	"store":         (*environment).store,
	"http":          func(e *environment) string { return e.address("HOST", "PORT", "8080") },
	"grpc":          (*environment).grpc,
	"admin":         (*environment).admin,
	"grpc-tls-cert": (*environment).certificate,
	"log-level":     (*environment).logLevel,
	"log-format":    (*environment).logFormat,
	"rls-headers":   (*environment).headers,
}

// admin listens on this host only, even if DEBUG_HOST is set.
func (e *environment) admin() string {
	port := e.get("DEBUG_PORT")
	if port == "" {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// dropIn is the variable that marks an environment as one of envoyproxy/ratelimit, as
// CONFIG_TYPE does for rules from a management server.
// Others, such as REDIS_URL, are common, and open no listener to other machines.
const dropIn = "RUNTIME_ROOT"

func (e *environment) folder() string {
	root, sub, app := e.get("RUNTIME_ROOT"), e.get("RUNTIME_SUBDIRECTORY"), e.get("RUNTIME_APPDIRECTORY")
	if root+sub+app == "" || e.fromXDS() {
		return ""
	}
	// Do not clean the path: after a symbolic link, ".." is the parent of its target.
	path := strings.TrimRight(cmp.Or(root, "/srv/runtime_data/current"), "/")
	for _, part := range []string{sub, cmp.Or(app, "config")} {
		if part = strings.Trim(part, "/"); part != "" {
			path += "/" + part
		}
	}
	return path
}

func (e *environment) files() string {
	switch {
	case e.folder() == "":
		return ""
	case e.truth("RUNTIME_IGNOREDOTFILES"):
		return config.FilesAll.String()
	}
	return config.FilesHidden.String()
}

// address returns where to listen: on all interfaces in place of
// envoyproxy/ratelimit, on the loopback interface in any other environment, unless
// hostName says otherwise.
func (e *environment) address(hostName, portName, standard string) string {
	host, port := e.get(hostName), e.get(portName)
	replaces := e.get(dropIn) != "" || e.fromXDS()
	if host+port == "" && !replaces {
		return ""
	}
	if host == "" && replaces {
		host = "0.0.0.0"
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), cmp.Or(port, standard))
}

func (e *environment) grpc() string {
	if path := e.get("GRPC_UDS"); path != "" {
		return "unix:" + path
	}
	return e.address("GRPC_HOST", "GRPC_PORT", "8081")
}

func (e *environment) certificate() string {
	if !e.truth("GRPC_SERVER_USE_TLS") {
		return ""
	}
	file := e.get("GRPC_SERVER_TLS_CERT")
	if file == "" {
		e.fail("GRPC_SERVER_TLS_CERT", "missing", "a file with a certificate, for GRPC_SERVER_USE_TLS is true")
	}
	return file
}

func (e *environment) logLevel() string {
	level := strings.ToLower(e.get("LOG_LEVEL"))
	switch level {
	case "trace":
		return "debug"
	case "warning":
		return "warn"
	case "fatal", "panic":
		return "error"
	case "", "debug", "info", "warn", "error":
		return level
	}
	e.fail("LOG_LEVEL", strconv.Quote(level), "trace, debug, info, warn, error, fatal or panic")
	return ""
}

func (e *environment) logFormat() string {
	switch e.get("LOG_FORMAT") {
	case "":
		return ""
	case "json":
		return "json"
	}
	return "text"
}

func (e *environment) headers() string {
	if !e.truth("LIMIT_RESPONSE_HEADERS_ENABLED") {
		return ""
	}
	return strings.Join([]string{
		cmp.Or(e.get("LIMIT_LIMIT_HEADER"), rls.DefaultHeaders.Limit),
		cmp.Or(e.get("LIMIT_REMAINING_HEADER"), rls.DefaultHeaders.Remaining),
		cmp.Or(e.get("LIMIT_RESET_HEADER"), rls.DefaultHeaders.Reset),
	}, ",")
}

// oneRedis reports whether the Redis for limits a second is the one for all.
func (e *environment) oneRedis() bool {
	return e.get("REDIS_PERSECOND_URL") != "" && e.get("REDIS_PERSECOND_URL") == e.get("REDIS_URL")
}

// store is the URL that the variables of a Redis make.
func (e *environment) store() string {
	if e.get("REDIS_URL") == "" {
		return ""
	}
	u := e.redis()
	if auth := e.get("REDIS_AUTH"); auth != "" {
		u.User = url.UserPassword(userOf(auth))
	}
	if e.truth("REDIS_TLS") && u.Scheme != "rediss" {
		if u.Scheme != "redis" {
			e.fail("REDIS_TLS", "true", "false for a socket of this host")
		}
		u.Scheme = "rediss"
	}
	options := u.Query()
	if size := e.get("REDIS_POOL_SIZE"); size != "" {
		options.Set("pool_size", size)
	}
	if timeout := e.get("REDIS_TIMEOUT"); timeout != "" {
		// Not read_timeout: replies are waited for after their callers have left.
		options.Set("dial_timeout", timeout)
	}
	kind := strings.ToLower(e.get("REDIS_TYPE"))
	if auth := e.get("REDIS_SENTINEL_AUTH"); auth != "" && kind == "sentinel" {
		user, password := userOf(auth)
		options.Set("sentinel_username", user)
		options.Set("sentinel_password", password)
	}
	u.RawQuery = options.Encode()
	switch kind {
	case "", "single":
		return u.String()
	case "cluster", "sentinel":
		return e.several(u, kind)
	}
	e.fail("REDIS_TYPE", strconv.Quote(e.get("REDIS_TYPE")), "single, cluster or sentinel")
	return ""
}

// several is the URL of a cluster, whose nodes are the host, or of a master that
// sentinels know, whose name comes before them.
func (e *environment) several(u *url.URL, kind string) string {
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		e.fail("REDIS_TYPE", strconv.Quote(kind), "single, for REDIS_URL is a socket of this host")
	}
	text, hosts := u.Scheme+"+"+kind+"://", u.Host
	if u.User != nil {
		text += u.User.String() + "@"
	}
	if kind == "sentinel" {
		master, sentinels, found := strings.Cut(hosts, ",")
		if !found {
			e.fail("REDIS_URL", "without sentinels", "master,host:port,host:port…, for REDIS_TYPE is sentinel")
		}
		text, hosts = text+url.PathEscape(master)+"@", sentinels
	}
	text += hosts + u.Path
	if u.RawQuery != "" {
		text += "?" + u.RawQuery
	}
	return text
}

// userOf is the user and the password of a password that may come with a user.
func userOf(auth string) (user, password string) {
	user, password, found := strings.Cut(auth, ":")
	if !found {
		return "", auth
	}
	return user, password
}

// redis is where the Redis is, as REDIS_URL and REDIS_SOCKET_TYPE say it.
func (e *environment) redis() *url.URL {
	address, network := e.get("REDIS_URL"), e.get("REDIS_SOCKET_TYPE")
	switch {
	case strings.Contains(address, "://"):
		u, err := url.Parse(address)
		if err != nil {
			// The error may quote a part of the password.
			e.fail("REDIS_URL", "not a URL", "host:port, a path, or redis://[user:password@]host:port")
			return new(url.URL)
		}
		return u
	case network == "unix", network == "" && strings.HasPrefix(address, "/"):
		return &url.URL{Scheme: "unix", Path: address}
	case network != "" && network != "tcp":
		e.fail("REDIS_SOCKET_TYPE", strconv.Quote(network), "tcp or unix")
	}
	return &url.URL{Scheme: "redis", Host: address}
}
