//go:build unix

package testserver

import "testing"

// A Program is a server that speaks Redis's protocol, by its name on PATH. Tests that
// start one are skipped where it is not installed, see [Require].
type Program string

// The programs that stores are tested on.
const (
	RedisServer  Program = "redis-server"
	ValkeyServer Program = "valkey-server"
)

// Programs are all of them.
var Programs = []Program{RedisServer, ValkeyServer}

// Redis is [StartRedis] with the program.
func (p Program) Redis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return startRedis(t, spec{program: p}, args...)
}

// Cluster is [StartCluster] with the program.
func (p Program) Cluster(t testing.TB, masters int, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, size{masters, 0}, spec{program: p}, args)
}

// Sentinel is [StartSentinel] with the program, for the sentinels too.
func (p Program) Sentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	return startSentinel(t, replicas, spec{program: p}, args)
}
