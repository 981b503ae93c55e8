package app

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rlqs"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// A Setting is one field of [Options] with all that belongs to it. The environment
// variable is named after the flag.
type Setting struct {
	// Group is the heading of the setting in help texts.
	Group string
	// Flag is the flag's name without dashes.
	Flag string
	// Field points at the field, or is a [Value].
	Field any
	// Default is the value of the field if the flag is not given; nil for a Value.
	Default any
	// Help describes the setting in the imperative.
	Help string
	// Words are the values that shells propose.
	Words []string
	// Secret reports whether the setting names a file with a secret.
	Secret bool

	complete func() error // gives a zero field its default, and checks the field
}

// refuse is a word of settings that choose an answer.
const refuse = "refuse"

// A Value is a field that is written as text.
type Value interface {
	Set(text string) error
	String() string
	Type() string
}

// minMemory is the least memory for requests, in MiB.
const minMemory = 4

// Settings returns the settings, bound to the fields of o, in the order of help texts.
// To add a setting, add a field to [Options] and a line here.
func (o *Options) Settings() []Setting {
	const (
		// gRPC's own headers fit, and a connection's window has room for several messages.
		minHeaderBytes, maxGRPCHeaderBytes = 1 << 10, 1 << 20
		minMessageBytes, maxMessageBytes   = 1 << 10, 512 << 10
		maxInstance                        = 1_000_000
	)
	l := &o.Limits
	return slices.Concat(
		group("Rules",
			setting("config", &o.Config, "",
				"Read the rules from this file or folder (default: demonstration rules)."),
			parsed("config-files", "string", &o.ConfigFiles, config.FilesYAML.String(), config.ParseFiles,
				"Read these files of a folder: yaml; all; or hidden, which adds files that begin with a dot."),
			toggle("config-merge", &o.ConfigMerge, false,
				"Let several files define the same domain."),
			setting("max-keys", &o.MaxKeys, 0,
				"Track this many keys of a limit whose rule has no max_keys; further keys share one\n"+
					"budget (default: any number).",
				within(0, keylimit.MaxKeys, fmt.Sprintf("1 … %d; 0 for any number", keylimit.MaxKeys))),
			setting("unmatched", &o.Unmatched, "allow",
				"Answer requests that no rule applies to: allow or refuse. They are counted, logged and\n"+
					"marked with the header Weir-Unmatched.",
				oneOf("allow", refuse)).words("allow", refuse),
			setting("max-descriptors", &l.Descriptors, rules.MaxDescriptors,
				"Refuse requests with more descriptors.",
				within(1, rules.MaxDescriptors, fmt.Sprintf("1 … %d", rules.MaxDescriptors))),
		),
		group("Rules over xDS", o.XDS.settings()),
		group("Listeners",
			setting("http", &o.HTTP, DefaultHTTP,
				"Listen for HTTP at this address; port 0 picks a free one.",
				address("host:port, such as "+DefaultHTTP)),
			setting("grpc", &o.GRPC, DefaultGRPC,
				"Listen for Envoy's rate limit service at host:port or unix:/path; off for no listener.",
				or(Off, orSocket(address("host:port, such as "+DefaultGRPC+", unix:/path, or off")))),
			settingUnset("admin", &o.Admin.Address, DefaultAdmin, Off,
				"Listen for administrators at this address, or off. An address that other machines reach\n"+
					"needs a token or client certificates.",
				or(Off, address("host:port, such as "+DefaultAdmin+", or off")), o.closed("admin")),
			setting("resp", &o.RESP, Off,
				"Listen for Redis clients (WEIR.TAKE, CL.THROTTLE) at host:port or unix:/path; off for no listener. An\n"+
					"address that other machines reach needs a password or client certificates.",
				or(Off, orSocket(address("off, host:port, such as 127.0.0.1:6380, or unix:/path"))), o.closed("resp")),
			setting("timeout", &o.Timeout, httpapi.DefaultTimeout,
				"Answer each call within this time, decided or not.",
				notNegative, below(writeTimeout, "which bounds the whole call")),
			settingUnset("drain-delay", &o.DrainDelay, time.Second, 0,
				"Keep accepting connections for this long after /readyz refuses; clients then have as\n"+
					"long again, at most 1s, to leave.",
				notNegative),
			setting("drain-timeout", &o.DrainTimeout, 15*time.Second,
				"Stop within this time, the drain delay included.", notNegative),
			setting("plain-http", &o.PlainHTTP, "on",
				"Read the usual requests without net/http where there is no TLS: on, or off for none.", oneOf("on", Off)),
			setting("http-max-connections", &o.HTTPMaxConnections, 4096,
				"Keep at most this many HTTP connections open.", positive),
			setting("grpc-max-connections", &l.GRPCMaxConnections, 2048,
				"Keep at most this many gRPC connections open.", positive),
			setting("admin-max-connections", &l.AdminMaxConnections, 256,
				"Keep at most this many connections of administrators open.", positive),
			setting("resp-max-connections", &o.RESPMaxConnections, resp.DefaultMaxConnections,
				"Keep at most this many Redis clients connected.", positive),
			setting("grpc-max-streams", &l.GRPCMaxStreams, 1000,
				"Accept at most this many calls at once on one gRPC connection.", positive),
			setting("grpc-max-header-bytes", &l.GRPCMaxHeaderBytes, 16<<10,
				"Refuse gRPC calls with a larger header list, which counts 32 bytes more for each field.",
				atLeast(minHeaderBytes, strconv.Itoa(minHeaderBytes)), atMost(maxGRPCHeaderBytes)),
			setting("grpc-max-message-bytes", &l.GRPCMaxMessageBytes, rls.MaxRequestBytes,
				"Refuse gRPC calls with a larger message.",
				atLeast(minMessageBytes, strconv.Itoa(minMessageBytes)), atMost(maxMessageBytes)),
			setting("grpc-max-watches", &l.GRPCMaxWatches, 256,
				"Keep at most this many gRPC streams of quotas, health checks and reflection open, of all\n"+
					"connections.", positive),
			setting("grpc-idle-timeout", &l.GRPCIdleTimeout, 5*time.Minute,
				"Close a gRPC connection after this time without a call.", notNegative),
			setting("grpc-connection-age", &o.GRPCConnectionAge, 24*time.Hour,
				"Ask clients to open another gRPC connection after this time, so that calls spread over\n"+
					"new instances.", notNegative),
			setting("grpc-connection-grace", &o.GRPCConnectionGrace, time.Hour,
				"Let calls of an aged gRPC connection go on for this long.", notNegative),
			setting("request-memory", &l.RequestMemory, 32,
				"Hold at most this many MiB of requests that are being received and decoded, of all\n"+
					"connections.",
				positive, atLeast(minMemory, strconv.Itoa(minMemory)+" MiB")),
		),
		group("Answers",
			parsed("client-ip", "string", &o.ClientIP, "remote_addr", parseClientIP,
				"Read a client's address from "+strings.ReplaceAll(clientIPSpellings(), ", ", ",\n")+"."),
			parsed("client-ip-v6-prefix", "int", &o.ClientIPBits, "64", ipv6Bits,
				"Count IPv6 addresses that share this many leading bits as one client, 48 … 128."),
			parsed("headers", "string", &o.Headers, ratelimitheader.Draft11.String(), ratelimitheader.ParseStyle,
				"Describe the limits in headers of this style: "+ratelimitheader.StyleNames()+".").
				words(strings.Split(ratelimitheader.StyleNames(), ", ")...),
			setting("oversized", &o.Oversized, refuse,
				"Answer requests that are too large to be read: refuse, as if they were over a limit,\n"+
					"or error. A client that can make a request so large would otherwise have no limit\n"+
					"where errors let requests pass.",
				oneOf(refuse, "error")).words(refuse, "error"),
		),
		group("Envoy's rate limit services",
			toggle("rls-shadow", &o.RLS.Shadow, false,
				"Let every request pass; the statuses stay as they are."),
			toggle("rls-quota", &o.RLS.Quota, false,
				"Treat every rule as one with quota_mode."),
			toggle("rls-metadata", &o.RLS.Metadata, false,
				"Answer with dynamic metadata."),
			parsed("rls-headers", "string", &o.RLS.Headers, "", rlsHeaders,
				"Answer with response headers: on, or three names: limit,remaining,reset."),
			setting("rls-compare", &o.RLSCompare, "",
				"Answer with what the envoyproxy/ratelimit at this host:port answers; decide too, and log\n"+
					"where the decisions differ.",
				or("", address("host:port of another rate limit service"))),
			toggle("rlqs", &o.RLQS, false,
				"Serve Envoy's rate limit quota service, too, for rules with quota: true."),
			setting("rlqs-buckets", &o.RLQSBuckets, rlqs.DefaultBuckets,
				"Serve at most this many buckets of an Envoy by the quota service; it is told to abandon\n"+
					"further ones.",
				within(1, maxInstance, fmt.Sprintf("1 … %d; 0 for the default", maxInstance))),
		),
		group("Store",
			setting("store", &o.Store, "memory",
				"Keep the limits here: memory, redis://…, rediss://…, unix://…,\n"+
					"redis+cluster://host,host… or redis+sentinel://master@host,host….").
				words("memory", "redis://", "rediss://", "unix:///"),
			setting("store-prefix", &o.StorePrefix, "",
				"Begin every key in Redis with this prefix (default \"weir:\")."),
			parsed("deny-cache-entries", "int", &o.DenyCacheEntries, strconv.Itoa(denycache.DefaultEntries), denyCacheEntries,
				"Remember this many refusals of a store in Redis, and do not ask it again before they\n"+
					"end; 0 for none."),
			secretFile("store-password-file", &o.StorePasswords.File,
				"Read the store's password from this file, for a URL without one. It is read again every\n"+
					"5s; a new password takes effect once the store accepts it."),
			setting("store-password-command", &o.StorePasswords.Command, "",
				"Run this command to print the store's password, for a URL without one. It runs again\n"+
					"every minute; a new password takes effect once the store accepts it. Separate arguments\n"+
					"by spaces."),
			setting("store-iam", &o.StorePasswords.IAM, "",
				"Sign in to an AWS cache with IAM: elasticache:NAME, elasticache-serverless:NAME or\n"+
					"memorydb:NAME. The credentials come from the environment."),
			secretFile("store-sentinel-password-file", &o.StorePasswords.SentinelFile,
				"Read the password of the sentinels from this file, once, at the start."),
			secretFile("store-secret-file", &o.StoreSecretFile,
				"Read from this file the secret that all instances share. It makes hash slots\n"+
					"unpredictable."),
			setting("store-tls-ca", &o.StoreTLS.CA, "",
				"Trust the certificate authorities in this file, too, for rediss://…."),
			setting("store-tls-cert", &o.StoreTLS.Cert, "",
				"Present the client certificate in this file to the store."),
			secretFile("store-tls-key", &o.StoreTLS.Key,
				"Read the key of that certificate from this file."),
			toggle("store-tls-any-host", &o.StoreTLS.AnyHost, false,
				"Accept a valid certificate for any host name."),
		),
		group("Store outages",
			parsed("store-timeout", "duration", &o.Fallback.StoreTimeout, DefaultStoreTimeout.String(), positiveDuration,
				"Let a call wait for Redis this long unless it has a deadline of its own, as Envoy's do.", notNegative),
			parsed("store-silence", "duration", &o.Fallback.StoreSilence, DefaultStoreSilence.String(), positiveDuration,
				"Probe a Redis that sends no reply for this long. If the probe fails, too, on_store_failure\n"+
					"answers its calls. One whose last replies were slow may be silent for three times as\n"+
					"long as they took, and at most for five times this duration.", notNegative),
			setting("on-store-failure", &o.Fallback.OnStoreFailure, config.FailError.String(),
				"While Redis is unreachable, answer rules without algorithm with "+config.StoreFailureNames()+".",
				func(word string) string {
					if _, err := config.ParseStoreFailure(word); err != nil {
						return "one of " + config.StoreFailureNames()
					}
					return ""
				}).words(strings.Split(config.StoreFailureNames(), ", ")...),
			setting("instances", &o.Fallback.Instances, 0,
				"Assume this number of instances while Redis is unreachable (default: they count\nthemselves).",
				within(0, maxInstance, fmt.Sprintf("1 … %d; 0 to count them", maxInstance))),
		),
		group("Security",
			secretFile("http-token-file", &o.HTTPTokenFile,
				"Require HTTP callers to send one of the tokens in this file, one a line; health checks\nneed none."),
			secretFile("grpc-token-file", &o.GRPCTokenFile,
				"Require callers of Envoy's rate limit service to send one of the tokens in this file."),
			secretFile("admin-token-file", &o.Admin.TokenFile,
				"Require administrators to send one of the tokens in this file."),
			secretFile("resp-password-file", &o.RESPPasswordFile,
				"Require Redis clients to send one of the passwords in this file, one a line."),
			setting("callers", &o.Callers, "",
				"Read the callers from this YAML file: the digest of their token or the name of their\n"+
					"certificate, and what each may do in which domains."),
			toggle("insecure-token", &o.InsecureToken, false,
				"Accept tokens and passwords without TLS from other machines, where a mesh or a tunnel\nencrypts them."),
			list("allow-host", &o.Hosts, "Accept these host names, besides localhost, at listeners on loopback addresses."),
			tlsSettings("http", &o.HTTPTLS), tlsSettings("grpc", &o.GRPCTLS),
			tlsSettings("admin", &o.Admin.TLS), tlsSettings("resp", &o.RESPTLS),
		),
		group("Telemetry",
			setting("metrics", &o.Metrics.Address, Off,
				"Serve the metrics, and nothing else, at this address, too; off for no such listener.",
				or(Off, address("host:port, such as 127.0.0.1:9090, or off"))),
			setting("metrics-path", &o.Metrics.Path, DefaultMetricsPath,
				"Serve them at this path of that listener.",
				func(path string) string {
					if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " {}") {
						return "a path such as " + DefaultMetricsPath
					}
					return ""
				}),
			toggle("envoyproxy-metrics", &o.Telemetry.EnvoyproxyMetrics, false,
				"Add the metrics of envoyproxy/ratelimit to /metrics."),
			setting("near-limit-ratio", &o.Telemetry.NearLimitRatio, traffic.DefaultNearLimitRatio,
				"Count a grant as near the limit if more than this share of the limit is then used."),
			toggle("log-refusals", &o.Telemetry.LogRefusals, true,
				"Log refusals with a hash of the key, at most one per limit in its period."),
		),
	)
}

// several are settings, or one.
type several []Setting

// group returns the settings of a group.
func group(name string, lines ...several) []Setting {
	all := slices.Concat(lines...)
	for i := range all {
		all[i].Group = name
	}
	return all
}

func tlsSettings(listener string, t *TLS) several {
	prefix := listener + "-tls-"
	return slices.Concat(
		setting(prefix+"cert", &t.Cert, "",
			"Serve "+listener+" over TLS only, with the certificate in this file. A new file is used from the\n"+
				"next connection on."),
		secretFile(prefix+"key", &t.Key, "Read the key of that certificate from this file."),
		setting(prefix+"client-ca", &t.ClientCA, "",
			"Require client certificates that an authority in this file has signed."),
		setting(prefix+"client-san", &t.ClientSAN, "", "Require client certificates for this DNS name."),
	)
}

// setting binds a flag to a field. The zero value of the field stands for the default.
// Each check returns the expected value if the value is wrong.
func setting[T any](flag string, field *T, standard T, help string, checks ...func(T) string) several {
	return settingUnset(flag, field, standard, standard, help, checks...)
}

// settingUnset is setting with another default for programs that embed the server.
func settingUnset[T any](flag string, field *T, standard, unset T, help string, checks ...func(T) string) several {
	return several{{Flag: flag, Field: field, Default: standard, Help: help, complete: func() error {
		if reflect.ValueOf(*field).IsZero() {
			*field = unset
		}
		return check(flag, *field, checks...)
	}}}
}

// list binds a flag to a field of several values.
func list(flag string, field *[]string, help string) several {
	return several{{Flag: flag, Field: field, Help: help, complete: func() error { return nil }}}
}

// secretFile binds a flag to the name of a file with a secret.
func secretFile(flag string, field *string, help string) several {
	s := setting(flag, field, "", help)
	s[0].Secret = true
	return s
}

// toggle binds a flag to a field that is true or false; false stands for itself.
func toggle(flag string, field *bool, standard bool, help string) several {
	return settingUnset(flag, field, standard, false, help)
}

// parsed binds a flag to a field that a function reads from text. Its zero value
// stands for the default, if there is one.
func parsed[T any](flag, kind string, field *T, standard string, parse func(string) (T, error), help string, checks ...func(T) string) several {
	v := &value[T]{field: field, flag: flag, kind: kind, text: standard, parse: parse}
	return several{{Flag: flag, Field: v, Help: help, complete: func() error {
		if standard != "" && reflect.ValueOf(field).Elem().IsZero() {
			return v.Set(standard)
		}
		return check(flag, *field, checks...)
	}}}
}

// value is the Value of a setting.
type value[T any] struct {
	field            *T
	flag, kind, text string
	parse            func(string) (T, error)
}

// FieldOf returns the Field that an error about the value of a flag has: the flag's words.
func FieldOf(flag string) string { return strings.ReplaceAll(flag, "-", " ") }

// Set parses text into the field. An error that does not name the flag gets its name.
func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if invalid := new(weir.InvalidError); errors.As(err, &invalid) && invalid.Field != FieldOf(v.flag) {
		return &weir.InvalidError{Field: v.flag + ", " + invalid.Path(), Value: invalid.Value, Want: invalid.Want, Default: invalid.Default}
	}
	if err == nil {
		*v.field, v.text = parsed, text
	}
	return err
}

// String returns the text that the field was parsed from.
func (v *value[T]) String() string { return v.text }

// Type names the kind of value in help texts.
func (v *value[T]) Type() string { return v.kind }

// words sets the values that shells propose.
func (s several) words(words ...string) several {
	s[0].Words = words
	return s
}

// check returns the first objection to a value as an error.
func check[T any](flag string, v T, checks ...func(T) string) error {
	for _, objection := range checks {
		if want := objection(v); want != "" {
			text := fmt.Sprint(v)
			if s, ok := any(v).(string); ok {
				text = strconv.Quote(s)
			}
			return &weir.InvalidError{Field: FieldOf(flag), Value: text, Want: want}
		}
	}
	return nil
}

func within(least, most int, want string) func(int) string {
	return func(n int) string { return unless(n >= least && n <= most, want) }
}

func atLeast(least int, want string) func(int) string {
	return func(n int) string { return unless(n >= least, "at least "+want) }
}

func atMost(most int) func(int) string {
	return func(n int) string { return unless(n <= most, "at most "+strconv.Itoa(most)) }
}

func positive(n int) string { return unless(n > 0, "at least 1; 0 for the default") }

func notNegative(d time.Duration) string { return unless(d >= 0, "no negative duration") }

func below(most time.Duration, why string) func(time.Duration) string {
	return func(d time.Duration) string { return unless(d < most, "less than "+most.String()+", "+why) }
}

func oneOf(words ...string) func(string) string {
	return func(word string) string { return unless(slices.Contains(words, word), strings.Join(words, " or ")) }
}

func unless(good bool, want string) string {
	if good {
		return ""
	}
	return want
}

// address wants host:port.
func address(want string) func(string) string {
	return func(text string) string {
		_, port, err := net.SplitHostPort(text)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		return unless(err == nil, want)
	}
}

// or allows a word beside what next wants.
func or(word string, next func(string) string) func(string) string {
	return func(text string) string {
		if text == word {
			return ""
		}
		return next(text)
	}
}

func orSocket(next func(string) string) func(string) string {
	return func(text string) string {
		if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
			return ""
		}
		return next(text)
	}
}

// closed wants a listener that other machines reach to ask its callers for something.
func (o *Options) closed(listener string) func(string) string {
	return func(string) string {
		a := o.accessOf(listener)
		return unless(!a.exposed() || !a.open(),
			"a loopback address, or a "+strings.TrimPrefix(a.setting, listener+" ")+" or client certificates: others can reach this one")
	}
}

func ipv6Bits(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil {
		_, err = clientip.Strategy{}.WithIPv6Bits(n)
	}
	return n, err
}

// denyCacheEntries reads a number of entries, of which none is -1.
func denyCacheEntries(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0:
		return 0, &weir.InvalidError{Field: "deny cache entries", Value: text, Want: "0 or more"}
	case n == 0:
		return -1, nil
	}
	return n, nil
}

func positiveDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("want a duration above 0, such as 250ms")
	}
	return d, err
}

func rlsHeaders(text string) (*rls.HeaderNames, error) {
	names := strings.Split(text, ",")
	switch {
	case text == "":
		return nil, nil
	case text == "on":
		return &rls.DefaultHeaders, nil
	case len(names) != 3 || slices.Contains(names, ""):
		return nil, &weir.InvalidError{Field: "rls headers", Value: text, Want: "on, or three names: limit,remaining,reset"}
	}
	return &rls.HeaderNames{Limit: names[0], Remaining: names[1], Reset: names[2]}, nil
}
