//go:build unix

package testserver

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPrograms starts another program than redis-server, in every topology.
func TestPrograms(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), string(ValkeyServer))
	if err := os.Symlink(Require(t, string(RedisServer)), path); err != nil {
		t.Fatal(err)
	}
	program := Spec{Program: Program(path)}
	cluster, sentinel := program.Cluster(t, 1), program.Sentinel(t, 1)
	servers := append([]*Redis{program.Redis(t), sentinel.Master}, cluster.Masters...)
	for _, r := range append(append(servers, sentinel.Replicas...), sentinel.Sentinels...) {
		if r.cmd.Path != path || !r.answers() {
			t.Errorf("%s runs %s", r.Addr(), r.cmd.Path)
		}
	}
	if got := ask(t, "weir-absent-server"); got[:6] != "skip: " {
		t.Errorf("one that is not installed: %s", got)
	}
}
