package redisstore_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// buildDir is a folder for what tests build once.
var buildDir string

// TestMain shares the suite's random histories out among the servers, topologies and
// layers that it runs on here: each runs a quarter of rapid's usual number, all of them
// together more than twice that; under -short, a tenth. The flag -rapid.checks=100 runs
// all on each.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	checks := "25"
	if testing.Short() {
		checks = "10"
	}
	for name, value := range map[string]string{"rapid.checks": checks, "test.parallel": "8"} { // most tests wait for Redis
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse() // what the command line says wins
	var err error
	if buildDir, err = os.MkdirTemp("", "weir-build-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(buildDir)
	return m.Run()
}

func TestStore(t *testing.T) {
	t.Parallel()
	onPrograms(t, func(t *testing.T, program testserver.Program) { suite(t, dialPatient(t, program.Redis(t).Addr())) })
}

// onPrograms runs a test on each program that the machine has.
func onPrograms(t *testing.T, test func(t *testing.T, program testserver.Program)) {
	t.Helper()
	for _, program := range testserver.Programs {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			test(t, program)
		})
	}
}

// TestStoreOnValkey has TestStore find a valkey-server, which is redis-server by
// another name, and run a case on it. Where there is a real one, the suite runs on that.
func TestStoreOnValkey(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.Symlink(testserver.Require(t, string(testserver.RedisServer)), filepath.Join(bin, string(testserver.ValkeyServer))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestStore$/^"+string(testserver.ValkeyServer)+"$/^a_refusal_changes_nothing$")
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestStore/"+string(testserver.ValkeyServer))) || bytes.Contains(out, []byte("SKIP")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// suite runs the suite.
func suite(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var opened atomic.Int64
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		prefix := fmt.Sprintf("suite%d:", opened.Add(1))
		store, err := redisstore.NewWithClock(client, redisstore.Options{Prefix: prefix, Timeout: time.Minute}, clock.Micros)
		if err != nil {
			t.Fatal(err)
		}
		return store
	})
}
