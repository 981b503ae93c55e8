package cli

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/testing/pages"
)

// theirs are the variables that envoyproxy/ratelimit reads, as src/settings/settings.go
// of its commit f2fb157 names them, and one that Envoy Gateway sets besides.
const theirs = `BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_CLIENT_TLS_CERT
CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE
DEBUG_HOST DEBUG_PORT DISABLE_STATS EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG GRPC_CLIENT_TLS_CACERT
GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE GRPC_PORT GRPC_SERVER_TLS_CA_CERT GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY
GRPC_SERVER_USE_TLS GRPC_UDS HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED HOST LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER
LIMIT_RESPONSE_HEADERS_ENABLED LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV
MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY
MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG NEAR_LIMIT_RATIO PORT PROMETHEUS_ADDR PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH
PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS QUOTA_MODE REDIS_AUTH REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_HEALTH_CHECK_ACTIVE_CONNECTION
REDIS_PERSECOND REDIS_PERSECOND_AUTH REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_PIPELINE_LIMIT
REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_SENTINEL_AUTH
REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT
REDIS_PIPELINE_WINDOW REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH REDIS_SOCKET_TYPE REDIS_STARTUP_INITIAL_INTERVAL
REDIS_STARTUP_MAX_ELAPSED_TIME REDIS_STARTUP_MAX_INTERVAL REDIS_TIMEOUT REDIS_TLS REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE REDIS_URL RESPONSE_DYNAMIC_METADATA RUNTIME_APPDIRECTORY
RUNTIME_IGNOREDOTFILES RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE TRACING_SERVICE_INSTANCE_ID
TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS USE_STATSD
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR
XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES`

// aliasNames are the variables that the table has.
func aliasNames() []string {
	var names []string
	for _, f := range envoyproxy {
		names = append(names, strings.Fields(f.names)...)
	}
	slices.Sort(names)
	return names
}

func TestEveryVariableIsKnown(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(strings.Fields(theirs), aliasNames()); diff != "" {
		t.Error(diff)
	}
	flags := newServe().Flags()
	for _, f := range envoyproxy {
		if f.fate == sets == (f.flags == "") && f.fate != stops || f.fate != sets && f.why == "" {
			t.Errorf("%s: %s %q without a reason or with flags that nothing sets", f.names, f.fate, f.flags)
		}
		for _, name := range strings.Fields(f.flags) {
			if flags.Lookup(name) == nil {
				t.Errorf("%s: there is no --%s", f.names, name)
			}
		}
	}
}

// TestVariablesTable demands that the docs say what the table does.
func TestVariablesTable(t *testing.T) {
	t.Parallel()
	want := "| variable | here |\n|---|---|\n"
	for _, f := range envoyproxy {
		want += "| `" + strings.ReplaceAll(f.names, " ", "`, `") + "` | " + f.told() + " |\n"
	}
	pages.Section(t, "docs/migrating-envoyproxy.md", "variables", want)
}

// told is what the docs say of a family.
func (f *family) told() string {
	var b strings.Builder
	switch flag, _, _ := strings.Cut(f.flags, " "); f.fate {
	case sets:
		b.WriteString("`--" + flag + "`")
		if f.with != "" {
			b.WriteString(", where `" + f.with + "` is true")
		}
	default:
		b.WriteString(string(f.fate))
		if len(f.harmless) > 0 {
			b.WriteString(", unless `" + f.harmless[0] + "`")
		}
	}
	if f.why != "" {
		b.WriteString(": " + f.why)
	}
	return b.String()
}

// borrow applies variables to flags that were given as arguments.
func borrow(t *testing.T, variables map[string]string, args ...string) (*pflag.FlagSet, *borrowed, error) {
	t.Helper()
	flags := newServe().Flags()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	b, err := applyEnvoyproxy(flags, func(name string) string { return variables[name] })
	return flags, b, err
}

func TestVariablesSetFlags(t *testing.T) {
	t.Parallel()
	type values = map[string]string
	for name, test := range map[string]struct {
		variables values
		args      []string
		want      values
	}{
		"nothing": {nil, nil, values{"http": "127.0.0.1:8080", "grpc": "127.0.0.1:8081", "config": "", "config-files": "yaml", "store": "memory"}},
		"a usual environment": {
			values{"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "REDIS_URL": "redis:6379", "REDIS_SOCKET_TYPE": "tcp", "USE_STATSD": "false", "LOG_LEVEL": "WARNING"},
			nil,
			values{
				"config": "/data/ratelimit/config", "config-files": "hidden", "config-merge": "false", "store": "redis://redis:6379",
				"http": "0.0.0.0:8080", "grpc": "0.0.0.0:8081", "log-level": "warn",
			},
		},
		"the folder's parts": {
			values{"RUNTIME_ROOT": "/data/", "RUNTIME_SUBDIRECTORY": "/a/", "RUNTIME_APPDIRECTORY": "b", "RUNTIME_IGNOREDOTFILES": "true", "MERGE_DOMAIN_CONFIG": "true"},
			nil,
			values{"config": "/data/a/b", "config-files": "all", "config-merge": "true"},
		},
		"the folder's default root": {values{"RUNTIME_SUBDIRECTORY": "a"}, nil, values{"config": "/srv/runtime_data/current/a/config", "http": "127.0.0.1:8080"}},
		"a folder of one's own": {
			values{"RUNTIME_ROOT": "/data", "CONFIG_TYPE": "GRPC_XDS_SOTW"},
			[]string{"--config", "rules.yaml"},
			values{"config": "rules.yaml", "config-files": "yaml", "http": "0.0.0.0:8080"},
		},
		"Envoy Gateway": {
			values{
				"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true", "RUNTIME_WATCH_ROOT": "false",
				"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001", "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit",
				"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "c", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "k",
				"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "ca", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": ":19001",
			},
			nil,
			values{
				"config": "", "config-files": "yaml", "http": "0.0.0.0:8080", "grpc": "0.0.0.0:8081", "rules-xds": "envoy-gateway:18001", "rules-xds-node": "envoy-ratelimit",
				"rules-xds-tls": "true", "rules-xds-tls-cert": "c", "rules-xds-tls-key": "k", "rules-xds-tls-ca": "ca", "rules-xds-optional": "true",
				"rules-xds-backoff": "1s", "envoyproxy-metrics": "true", "metrics": ":19001", "metrics-path": "/metrics",
			},
		},
		"a management server": {
			values{
				"CONFIG_TYPE": "grpc_xds_sotw", "CONFIG_GRPC_XDS_NODE_METADATA": "a=b,c:d,e=f", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "k:v,l:w",
				"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "3s", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "10s", "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "30s",
				"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "c", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true",
				"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "1000", "PROMETHEUS_ADDR": ":1",
			},
			nil,
			values{
				"rules-xds": "localhost:18000", "rules-xds-metadata": "[a=b,e=f]", "rules-xds-header": "[k:v,l:w]", "rules-xds-backoff": "3s", "rules-xds-backoff-max": "30s",
				"rules-xds-tls-cert": "", "rules-xds-optional": "false", "rules-xds-max-bytes": "1000", "http": "0.0.0.0:8080", "metrics": "off",
			},
		},
		"the management server's variables with files": {values{"CONFIG_GRPC_XDS_NODE_ID": "n", "CONFIG_GRPC_XDS_SERVER_URL": "h:1"}, nil, values{"rules-xds": "", "rules-xds-node": "default"}},
		"addresses": {
			values{"HOST": "::1", "PORT": "1", "GRPC_HOST": "10.0.0.1"},
			nil,
			values{"http": "[::1]:1", "grpc": "10.0.0.1:8081"},
		},
		"a port alone opens nothing to others": {values{"PORT": "1"}, nil, values{"http": "127.0.0.1:1", "grpc": "127.0.0.1:8081"}},
		"flags go first": {
			values{"REDIS_URL": "/s", "PORT": "1", "BACKEND_TYPE": "memcache", "REDIS_TYPE": "cluster"},
			[]string{"--http", "127.0.0.1:0", "--store", "memory"},
			values{"http": "127.0.0.1:0", "grpc": "127.0.0.1:8081", "store": "memory"},
		},
		"a Redis alone opens nothing to others": {values{"REDIS_URL": "h:1"}, nil, values{"http": "127.0.0.1:8080", "grpc": "127.0.0.1:8081", "store": "redis://h:1"}},
		"a host is where it says":               {values{"REDIS_URL": "h:1", "HOST": "10.0.0.1"}, nil, values{"http": "10.0.0.1:8080", "grpc": "127.0.0.1:8081"}},
		"a socket":                              {values{"GRPC_UDS": "/run/rls", "REDIS_URL": "/run/redis"}, nil, values{"grpc": "unix:/run/rls", "store": "unix:///run/redis"}},
		"a password":                            {values{"REDIS_URL": "h:1", "REDIS_AUTH": "p@ss/w"}, nil, values{"store": "redis://:p%40ss%2Fw@h:1"}},
		"a user":                                {values{"REDIS_URL": "h:1", "REDIS_AUTH": "u:p:q"}, nil, values{"store": "redis://u:p%3Aq@h:1"}},
		"a URL":                                 {values{"REDIS_URL": "redis://u:p@h:1/2", "REDIS_TLS": "true"}, nil, values{"store": "rediss://u:p@h:1/2"}},
		"a cluster":                             {values{"REDIS_URL": "h:1,h:2", "REDIS_TYPE": "CLUSTER", "REDIS_AUTH": "p@ss"}, nil, values{"store": "redis+cluster://:p%40ss@h:1,h:2"}},
		"sentinels": {
			values{"REDIS_URL": "m,h:1,h:2", "REDIS_TYPE": "sentinel", "REDIS_AUTH": "u:p", "REDIS_SENTINEL_AUTH": "q", "REDIS_TLS": "true"},
			nil,
			values{"store": "rediss+sentinel://u:p@m@h:1,h:2?sentinel_password=q&sentinel_username="},
		},
		"the Redis' pool": {values{"REDIS_URL": "h:1", "REDIS_POOL_SIZE": "5", "REDIS_TIMEOUT": "2s"}, nil, values{"store": "redis://h:1?dial_timeout=2s&pool_size=5", "store-timeout": "2s"}},
		"the Redis' timeout and a flag": {
			values{"REDIS_URL": "h:1", "REDIS_TIMEOUT": "2s"}, []string{"--store-timeout", "1s"}, values{"store": "redis://h:1?dial_timeout=2s", "store-timeout": "1s"},
		},
		"a timeout without Redis": {values{"REDIS_TIMEOUT": "2s"}, nil, values{"store": "memory", "store-timeout": "250ms"}},
		"Redis by TLS": {
			values{"REDIS_URL": "h:1", "REDIS_TLS": "1", "REDIS_TLS_CACERT": "ca", "REDIS_TLS_CLIENT_CERT": "c", "REDIS_TLS_CLIENT_KEY": "k", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "true"},
			nil,
			values{"store": "rediss://h:1", "store-tls-ca": "ca", "store-tls-cert": "c", "store-tls-key": "k", "store-tls-any-host": "true"},
		},
		"Redis without TLS": {values{"REDIS_URL": "h:1", "REDIS_TLS_CACERT": "ca"}, nil, values{"store": "redis://h:1", "store-tls-ca": ""}},
		"one Redis":         {values{"REDIS_URL": "h:1", "REDIS_PERSECOND": "true", "REDIS_PERSECOND_URL": "h:1", "CACHE_KEY_PREFIX": "p_"}, nil, values{"store": "redis://h:1", "store-prefix": "p_"}},
		"TLS": {
			values{"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k", "GRPC_CLIENT_TLS_CACERT": "ca", "GRPC_CLIENT_TLS_SAN": "envoy"},
			nil,
			values{"grpc-tls-cert": "c", "grpc-tls-key": "k", "grpc-tls-client-ca": "ca", "grpc-tls-client-san": "envoy", "http-tls-cert": ""},
		},
		"no TLS": {values{"GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k"}, nil, values{"grpc-tls-cert": "", "grpc-tls-key": ""}},
		"modes": {
			values{"SHADOW_MODE": "true", "QUOTA_MODE": "1", "RESPONSE_DYNAMIC_METADATA": "T", "GRPC_MAX_CONNECTION_AGE": "1m", "GRPC_MAX_CONNECTION_AGE_GRACE": "2m", "LOG_FORMAT": "json"},
			nil,
			values{"rls-shadow": "true", "rls-quota": "true", "rls-metadata": "true", "grpc-connection-age": "1m0s", "grpc-connection-grace": "2m0s", "log-format": "json", "rls-headers": ""},
		},
		"headers":    {values{"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_RESET_HEADER": "X-Reset"}, nil, values{"rls-headers": "RateLimit-Limit,RateLimit-Remaining,X-Reset"}},
		"no headers": {values{"LIMIT_RESET_HEADER": "X-Reset"}, nil, values{"rls-headers": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags, _, err := borrow(t, test.variables, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			got := values{}
			for flag := range test.want {
				got[flag] = flags.Lookup(flag).Value.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVariablesStop names each variable that cannot be followed, and never what
// is secret.
func TestVariablesStop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variables map[string]string
		want      string
	}{
		{map[string]string{"CONFIG_TYPE": "ETCD"}, `CONFIG_TYPE is "ETCD": want FILE or GRPC_XDS_SOTW`},
		{map[string]string{"CONFIG_TYPE": "GRPC_XDS_SOTW", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "soon"}, `XDS_CLIENT_BACKOFF_INITIAL_INTERVAL is "soon"`},
		{map[string]string{"BACKEND_TYPE": "memcache"}, "BACKEND_TYPE is set"},
		{map[string]string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"}, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is set"},
		{map[string]string{"REDIS_URL": "h:1", "REDIS_PERSECOND": "true", "REDIS_PERSECOND_URL": "h:2"}, "REDIS_PERSECOND is set"},
		{map[string]string{"REDIS_URL": "h:1,h:2", "REDIS_TYPE": "ring"}, `REDIS_TYPE is "ring": want single, cluster or sentinel`},
		{map[string]string{"REDIS_URL": "m", "REDIS_TYPE": "sentinel"}, "REDIS_URL is without sentinels"},
		{map[string]string{"REDIS_URL": "/s", "REDIS_TYPE": "cluster"}, `REDIS_TYPE is "cluster": want single, for REDIS_URL is a socket`},
		{map[string]string{"REDIS_URL": "h:1", "REDIS_SOCKET_TYPE": "udp"}, `REDIS_SOCKET_TYPE is "udp"`},
		{map[string]string{"REDIS_URL": "redis://u:hunter2%@h"}, "REDIS_URL is not a URL"},
		{map[string]string{"REDIS_URL": "/s", "REDIS_TLS": "true"}, "REDIS_TLS is true"},
		{map[string]string{"GRPC_SERVER_USE_TLS": "true"}, "GRPC_SERVER_TLS_CERT is missing"},
		{map[string]string{"SHADOW_MODE": "si"}, `invalid value "si" in SHADOW_MODE`},
		{map[string]string{"GRPC_MAX_CONNECTION_AGE": "soon"}, `invalid value "soon" in GRPC_MAX_CONNECTION_AGE`},
		{map[string]string{"RUNTIME_ROOT": "/data", "RUNTIME_IGNOREDOTFILES": "si"}, `RUNTIME_IGNOREDOTFILES is "si"`},
		{map[string]string{"LOG_LEVEL": "loud"}, `LOG_LEVEL is "loud"`},
	} {
		_, _, err := borrow(t, test.variables)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: got %v, want %q", test.variables, err, test.want)
		}
	}
}

// TestVariablesWarn: what changes nothing is told by name, once; defaults that
// were written down are not.
func TestVariablesWarn(t *testing.T) {
	t.Parallel()
	variables := map[string]string{
		"USE_STATSD": "false", "RUNTIME_WATCH_ROOT": "false", "TRACING_SERVICE_NAME": "x", "CONFIG_TYPE": "FILE",
		"DEBUG_HOST": "::", "LOCAL_CACHE_SIZE_IN_BYTES": "1000", "MEMCACHE_TLS": "true", "BACKEND_TYPE": "redis", "REDIS_PERSECOND": "false",
	}
	_, b, err := borrow(t, variables)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range b.ignored {
		got = append(got, b.names[f]...)
	}
	if diff := cmp.Diff([]string{"DEBUG_HOST", "LOCAL_CACHE_SIZE_IN_BYTES", "MEMCACHE_TLS"}, got); diff != "" {
		t.Error(diff)
	}
	if len(b.behind) > 0 {
		t.Errorf("flags were set: %v", slices.Collect(maps.Keys(b.behind)))
	}
}

// TestTell: the log names variables and never says what is in them.
func TestTell(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variables map[string]string
		args      []string
		want      []string
	}{
		{nil, nil, nil},
		{map[string]string{"RUNTIME_ROOT": "/hunter2"}, nil, []string{
			`level=INFO msg="variables of envoyproxy/ratelimit are followed" variables=[RUNTIME_ROOT]`,
			`level=WARN msg="REDIS_URL is not set: limits are kept in memory, by each process for itself"`,
		}},
		{map[string]string{"RUNTIME_ROOT": "/hunter2"}, []string{"--store", "memory", "--http", "x", "--grpc", "x"}, []string{
			`level=INFO msg="variables of envoyproxy/ratelimit are followed" variables=[RUNTIME_ROOT]`,
		}},
		{map[string]string{"REDIS_URL": "h:1", "REDIS_AUTH": "hunter2", "STATSD_HOST": "hunter2", "EXTRA_TAGS": "hunter2"}, nil, []string{
			`level=INFO msg="variables of envoyproxy/ratelimit are followed" variables="[REDIS_AUTH REDIS_URL]"`,
			`level=WARN msg="variables of envoyproxy/ratelimit are not followed" variables="[STATSD_HOST EXTRA_TAGS]" why="there is no statsd"`,
		}},
	} {
		_, b, err := borrow(t, test.variables, test.args...)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		b.log(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		var got []string
		for line := range strings.Lines(log.String()) {
			got = append(got, strings.TrimSpace(line))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Error(diff)
		}
	}
}
