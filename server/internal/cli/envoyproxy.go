package cli

// fate describes the handling of variables of envoyproxy/ratelimit.
type fate string

const (
	// sets stands for flags.
	sets fate = "sets"
	// stops would change decisions or rules and cannot be followed: no start.
	stops fate = "stops the start"
	// warns changes neither and is not followed: the log says so.
	warns fate = "a warning"
	// same is the value that always applies here.
	same fate = "nothing to set"
)

// A family is variables of envoyproxy/ratelimit that share a fate.
type family struct {
	names string // with spaces between them
	fate  fate
	// flags are the one that they set, and others; where one is given, the
	// variables are not looked at.
	flags string
	// harmless are values, in lower case, that ask for nothing special.
	harmless []string
	// unless, if not nil, says that the others make the value harmless.
	unless func(*environment) bool
	// with, if not empty, is the variable that has to be true for them to be
	// read at all.
	with string
	why  string
}

var falsehood = []string{"false", "0", "f"}

// envoyproxy is every variable of envoyproxy/ratelimit, as of its commit f2fb157
// of July 2026. docs/migrating-envoyproxy.md shows it.
var envoyproxy = []family{
	{names: "RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY", fate: sets, flags: "config", why: "the folder ROOT/SUBDIRECTORY/APPDIRECTORY, with /srv/runtime_data/current and config for what is unset"},
	{names: "RUNTIME_IGNOREDOTFILES", fate: sets, flags: "config-files config", why: "`all` if true, else `hidden`, for a folder that `RUNTIME_…` names"},
	{names: "MERGE_DOMAIN_CONFIG", fate: sets, flags: "config-merge"},
	{names: "RUNTIME_WATCH_ROOT", fate: same, why: "links on the way to the folder, the folder and all below it are watched"},
	{names: "CONFIG_TYPE CONFIG_GRPC_XDS_SERVER_URL", fate: sets, flags: "rules-xds config", why: "for the type `GRPC_XDS_SOTW`, which loads no files from `RUNTIME_ROOT`"},
	{names: "CONFIG_GRPC_XDS_NODE_ID", fate: sets, flags: "rules-xds-node config", unless: filesOnly},
	{names: "CONFIG_GRPC_XDS_NODE_METADATA", fate: sets, flags: "rules-xds-metadata config", unless: filesOnly, why: "pairs of key=value"},
	{names: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", fate: sets, flags: "rules-xds-header config", unless: filesOnly},
	{names: "CONFIG_GRPC_XDS_SERVER_USE_TLS", fate: sets, flags: "rules-xds-tls config", unless: filesOnly},
	{names: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", fate: sets, flags: "rules-xds-tls-cert config", unless: filesOnly, with: "CONFIG_GRPC_XDS_SERVER_USE_TLS"},
	{names: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", fate: sets, flags: "rules-xds-tls-key config", unless: filesOnly, with: "CONFIG_GRPC_XDS_SERVER_USE_TLS"},
	{names: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", fate: sets, flags: "rules-xds-tls-ca config", unless: filesOnly, with: "CONFIG_GRPC_XDS_SERVER_USE_TLS"},
	{names: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", fate: sets, flags: "rules-xds-tls-server-name config", unless: filesOnly, with: "CONFIG_GRPC_XDS_SERVER_USE_TLS"},
	{
		names: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", fate: sets, flags: "rules-xds-backoff config",
		unless: filesOnly, why: "the shorter of the two",
	},
	{names: "XDS_CLIENT_BACKOFF_MAX_INTERVAL", fate: sets, flags: "rules-xds-backoff-max config", unless: filesOnly},
	{names: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", fate: warns, unless: filesOnly, harmless: []string{"0.5"}, why: "waits double and vary by half of themselves; envoyproxy/ratelimit takes the factor for the growth and waits about as long each time"},
	{names: "XDS_CLIENT_BACKOFF_JITTER", fate: warns, unless: filesOnly, harmless: []string{"true"}, why: "waits always vary"},
	{names: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", fate: sets, flags: "rules-xds-max-bytes config", unless: filesOnly},
	{
		names: "FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", fate: sets, flags: "rules-xds-optional config",
		unless: filesOnly, why: "if the first is true and the second is not; rules files are loaded before anything is answered",
	},

	{names: "HOST PORT", fate: sets, flags: "http"},
	{names: "GRPC_HOST GRPC_PORT GRPC_UDS", fate: sets, flags: "grpc"},
	{names: "DEBUG_PORT", fate: sets, flags: "admin"},
	{names: "DEBUG_HOST", fate: warns, why: "administrators are served at 127.0.0.1; `--admin` says otherwise, with a token"},
	{names: "GRPC_MAX_CONNECTION_AGE", fate: sets, flags: "grpc-connection-age"},
	{names: "GRPC_MAX_CONNECTION_AGE_GRACE", fate: sets, flags: "grpc-connection-grace"},
	{names: "GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT", fate: sets, flags: "grpc-tls-cert", why: "where USE_TLS is true"},
	{names: "GRPC_SERVER_TLS_KEY", fate: sets, flags: "grpc-tls-key grpc-tls-cert", with: "GRPC_SERVER_USE_TLS"},
	{names: "GRPC_CLIENT_TLS_CACERT", fate: sets, flags: "grpc-tls-client-ca grpc-tls-cert", with: "GRPC_SERVER_USE_TLS"},
	{names: "GRPC_CLIENT_TLS_SAN", fate: sets, flags: "grpc-tls-client-san grpc-tls-cert", with: "GRPC_SERVER_USE_TLS"},

	{names: "GRPC_SERVER_TLS_CA_CERT", fate: warns, with: "GRPC_SERVER_USE_TLS", why: "Envoy Gateway sets it and envoyproxy/ratelimit does not read it; `GRPC_CLIENT_TLS_CACERT` asks clients for certificates"},

	{names: "LOG_LEVEL", fate: sets, flags: "log-level", why: "the nearest of debug, info, warn and error"},
	{names: "LOG_FORMAT", fate: sets, flags: "log-format", why: "json, or else text; the keys are Weir's"},

	{names: "SHADOW_MODE", fate: sets, flags: "rls-shadow"},
	{names: "QUOTA_MODE", fate: sets, flags: "rls-quota"},
	{names: "RESPONSE_DYNAMIC_METADATA", fate: sets, flags: "rls-metadata"},
	{names: "LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER", fate: sets, flags: "rls-headers"},
	{
		names: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", fate: stops, harmless: falsehood,
		why: "rules without `algorithm` charge each descriptor by itself; with `algorithm` a refused request charges nothing",
	},
	{names: "NEAR_LIMIT_RATIO", fate: sets, flags: "near-limit-ratio"},
	{names: "LOCAL_CACHE_SIZE_IN_BYTES", fate: warns, harmless: []string{"0"}, why: "`--deny-cache-entries` says how many refusals are remembered"},
	{names: "EXPIRATION_JITTER_MAX_SECONDS", fate: warns, harmless: []string{"300"}, why: "the limit says how long a key lives"},

	{names: "BACKEND_TYPE", fate: stops, flags: "store", harmless: []string{"redis"}, why: "limits are kept in Redis or in memory"},
	{
		names: "MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_MAX_IDLE_CONNS MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT " +
			"MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
		fate: warns, why: "there is no memcached",
	},
	{
		names: "REDIS_URL REDIS_SOCKET_TYPE REDIS_TYPE REDIS_AUTH REDIS_SENTINEL_AUTH REDIS_TLS REDIS_POOL_SIZE", fate: sets, flags: "store",
		why: "the type `cluster` is redis+cluster://…, and `sentinel` redis+sentinel://…, where REDIS_URL begins with the master's name",
	},
	{
		names: "REDIS_TIMEOUT", fate: sets, flags: "store-timeout store", unless: func(e *environment) bool { return e.get("REDIS_URL") == "" },
		why: "also how long a connection may take, `dial_timeout` in the URL; Envoy's own timeout goes first",
	},
	{names: "REDIS_TLS_CACERT", fate: sets, flags: "store-tls-ca store", with: "REDIS_TLS"},
	{names: "REDIS_TLS_CLIENT_CERT", fate: sets, flags: "store-tls-cert store", with: "REDIS_TLS"},
	{names: "REDIS_TLS_CLIENT_KEY", fate: sets, flags: "store-tls-key store", with: "REDIS_TLS"},
	{names: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", fate: sets, flags: "store-tls-any-host store", with: "REDIS_TLS"},
	{names: "CACHE_KEY_PREFIX", fate: sets, flags: "store-prefix"},
	{names: "REDIS_PERSECOND", fate: stops, flags: "store", harmless: falsehood, unless: (*environment).oneRedis, why: "all limits are kept in one Redis, so REDIS_PERSECOND_URL has to be REDIS_URL"},
	{
		names: "REDIS_PERSECOND_URL REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TYPE REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_AUTH REDIS_PERSECOND_TLS " +
			"REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM " +
			"REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
		fate: same, why: "all limits are kept in one Redis",
	},
	{names: "REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT", fate: warns, harmless: []string{"0", "0s"}, why: "a request is one script call"},
	{names: "REDIS_CLUSTER_PIPELINE_PARALLELISM", fate: warns, harmless: []string{"1"}, why: "a request is one script call"},
	{names: "REDIS_POOL_ON_EMPTY_BEHAVIOR", fate: warns, harmless: []string{"wait"}, why: "calls wait for a connection as long as they may wait for a decision"},
	{names: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", fate: warns, harmless: falsehood, why: "once Redis has answered, calls and `/readyz` say themselves that it is unreachable"},
	{
		names: "REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME", fate: warns,
		why: "the start does not wait for Redis; health checks do",
	},

	{names: "USE_STATSD", fate: warns, harmless: falsehood, why: "there is no statsd"},
	{names: "USE_DOG_STATSD", fate: warns, harmless: falsehood, why: "there is no statsd"},
	{names: "STATSD_HOST STATSD_PORT USE_DOG_STATSD_MOGRIFIERS EXTRA_TAGS STATS_FLUSH_INTERVAL", fate: warns, why: "there is no statsd"},
	{names: "USE_PROMETHEUS", fate: sets, flags: "envoyproxy-metrics", why: "at `/metrics`, beside Weir's own"},
	{names: "PROMETHEUS_ADDR", fate: sets, flags: "metrics", with: "USE_PROMETHEUS", why: "one more listener; without it, at `/metrics` of `--http` and `--admin` alone"},
	{names: "PROMETHEUS_PATH", fate: sets, flags: "metrics-path", with: "USE_PROMETHEUS", why: "of that listener"},
	{names: "PROMETHEUS_MAPPER_YAML PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", fate: warns, harmless: falsehood, why: "times are in seconds, under the names of the default mapping"},
	{names: "DISABLE_STATS", fate: same, why: "there is no statsd"},
	{names: "TRACING_ENABLED", fate: warns, harmless: falsehood, why: "the variables of OpenTelemetry, `OTEL_…`, ask for traces"},
	{
		names: "TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE",
		fate:  warns, with: "TRACING_ENABLED", why: "the variables of OpenTelemetry say it: `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`",
	},
}
