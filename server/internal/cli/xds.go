package cli

import (
	"cmp"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Arguments returns the arguments of the command from those of the process. Under the
// name of envoyproxy/ratelimit's program the command is serve, and stray arguments mean
// nothing, as they do there.
func Arguments(process []string) []string {
	if len(process) == 0 {
		return nil
	}
	if filepath.Base(process[0]) == "ratelimit" {
		return []string{"serve"}
	}
	return process[1:]
}

// fromXDS reports whether the environment takes the rules from a management server.
func (e *environment) fromXDS() bool { return strings.EqualFold(e.get("CONFIG_TYPE"), "GRPC_XDS_SOTW") }

func filesOnly(e *environment) bool { return !e.fromXDS() }

// managementServer is the address of the management server.
func (e *environment) managementServer() string {
	switch kind := e.get("CONFIG_TYPE"); {
	case e.fromXDS():
		return cmp.Or(e.get("CONFIG_GRPC_XDS_SERVER_URL"), "localhost:18000")
	case kind != "" && !strings.EqualFold(kind, "FILE"):
		e.fail("CONFIG_TYPE", strconv.Quote(kind), "FILE or GRPC_XDS_SOTW")
	}
	return ""
}

// nodeMetadata is the metadata of the node. Pairs without "=" mean nothing to
// envoyproxy/ratelimit either.
func (e *environment) nodeMetadata() string {
	if !e.fromXDS() {
		return ""
	}
	var pairs []string
	for pair := range strings.SplitSeq(e.get("CONFIG_GRPC_XDS_NODE_METADATA"), ",") {
		if strings.Contains(pair, "=") {
			pairs = append(pairs, pair)
		}
	}
	return strings.Join(pairs, ",")
}

// xdsBackoff is the shorter of the two waits that envoyproxy/ratelimit has before it
// connects again.
func (e *environment) xdsBackoff() string {
	if !e.fromXDS() {
		return ""
	}
	shortest := ""
	for _, name := range []string{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"} {
		text := e.get(name)
		if text == "" {
			continue
		}
		wait, err := time.ParseDuration(text)
		if err != nil {
			e.fail(name, strconv.Quote(text), "a duration such as 3s")
			return ""
		}
		if before, err := time.ParseDuration(shortest); err != nil || wait < before {
			shortest = text
		}
	}
	return shortest
}

// startWithoutRules reports whether health checks pass before there are rules.
func (e *environment) startWithoutRules() string {
	if e.fromXDS() && e.truth("FORCE_START_WITHOUT_INITIAL_CONFIG") && !e.truth("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED") {
		return "true"
	}
	return ""
}

// metricsAddress is where the metrics are served besides. envoyproxy/ratelimit listens
// on all interfaces where the variable names none.
func (e *environment) metricsAddress() string {
	if !e.truth("USE_PROMETHEUS") {
		return ""
	}
	return e.get("PROMETHEUS_ADDR")
}
