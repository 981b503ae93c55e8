// Package testserver starts servers for tests: Redis and Valkey, alone, in a cluster
// or with sentinels, and a proxy that injects faults into their connections. Every
// server listens on a free port and ends with its test.
package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// RequireVariable is the environment variable that lists packages which must be installed,
// separated by commas: WEIR_REQUIRE=redis,nginx,chromium. A test that misses one of them
// fails instead of being skipped.
const RequireVariable = "WEIR_REQUIRE"

// Require returns the path of a program, such as "redis-server". If it is not installed,
// the test is skipped, or fails if [RequireVariable] names it.
func Require(t testing.TB, program string) string {
	t.Helper()
	path, err := lookPath(program)
	if err != nil {
		Missing(t, program, program)
	}
	return path
}

// Missing ends a test that needs what scripts/setup.sh installs for a program: the test is skipped,
// or fails if [RequireVariable] names the program.
func Missing(t testing.TB, program, what string) {
	t.Helper()
	if required(program, os.Getenv(RequireVariable)) {
		t.Fatalf("%s is not installed, and %s names %s: run scripts/setup.sh", what, RequireVariable, program)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %s is not installed: run scripts/setup.sh", what)
}

// lookPath also finds daemons that a distribution keeps out of a user's PATH, and programs that
// scripts/setup.sh has installed for the tests alone.
func lookPath(program string) (string, error) {
	if cache, err := os.UserCacheDir(); err == nil {
		if path, err := exec.LookPath(filepath.Join(cache, "weir", "bin", program)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + program)
}

// required reports whether the list names the program or its package: redis-server and
// redis-cli belong to redis.
func required(program, list string) bool {
	pkg, _, _ := strings.Cut(program, "-")
	return slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
		return name == program || name == strings.TrimSuffix(program, "-server") || name == pkg
	})
}
