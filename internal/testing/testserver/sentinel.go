//go:build unix

package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// SentinelMaster is the sentinels' name for their master.
const SentinelMaster = "main"

// sentinels is how many sentinels watch a master; two of them have to agree.
const sentinels = 3

// A Sentinel is a master with replicas and with sentinels that replace it if it fails. All
// belong to one test and end with it.
type Sentinel struct {
	Master    *Redis
	Replicas  []*Redis
	Sentinels []*Redis
}

// StartSentinel starts a master with replicas and three sentinels, and returns once these
// know one another. The test is skipped if redis-server is not installed, and under
// -short. Args are for the master and the replicas.
func StartSentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	return Spec{}.Sentinel(t, replicas, args...)
}

// Sentinel is [StartSentinel] with the settings, for the sentinels too.
func (s Spec) Sentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	if testing.Short() {
		t.Skip("sentinels take seconds to agree")
	}
	watched := &Sentinel{Master: s.Redis(t, args...)}
	host, port := "127.0.0.1", strconv.Itoa(watched.Master.own())
	for range replicas {
		watched.Replicas = append(watched.Replicas, s.Redis(t, append([]string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"}, args...)...))
	}
	for range sentinels {
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor %s %s %s %d\nsentinel down-after-milliseconds %s 1000\nsentinel failover-timeout %s 5000\n",
			SentinelMaster, host, port, sentinels/2+1, SentinelMaster, SentinelMaster)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		watched.Sentinels = append(watched.Sentinels, Spec{Program: s.Program, TLS: s.TLS, config: config}.Redis(t, "--sentinel"))
	}
	for _, r := range watched.Replicas {
		r.until("follows its master", func() bool { return strings.Contains(r.must("INFO", "replication"), "master_link_status:up") })
	}
	known := fmt.Sprintf("status=ok,address=%s:%s,slaves=%d,sentinels=%d", host, port, replicas, sentinels)
	for _, r := range watched.Sentinels {
		r.until("knows "+known, func() bool { return strings.Contains(r.must("INFO", "sentinel"), known) })
	}
	return watched
}

// Addrs returns the sentinels' addresses, as host:port.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, r := range s.Sentinels {
		addrs = append(addrs, r.ownAddr())
	}
	return addrs
}

// URL returns redis+sentinel://master@host:port,host:port, by which clients find the
// master.
func (s *Sentinel) URL() string {
	return s.Master.scheme() + "+sentinel://" + SentinelMaster + "@" + strings.Join(s.Addrs(), ",")
}
