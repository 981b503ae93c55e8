package redisengine_test

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
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most tests wait for Redis
		panic(err)
	}
	flag.Parse() // what the command line says wins
	os.Exit(m.Run())
}

func TestStore(t *testing.T) {
	t.Parallel()
	onPrograms(t, func(t *testing.T, program testserver.Spec) {
		storetest.RunBeside(t, memory, onOne(dialPatient(t, program.Redis(t).Addr())))
	})
}

// onPrograms runs a test on each program that the machine has.
func onPrograms(t *testing.T, test func(t *testing.T, program testserver.Spec)) {
	t.Helper()
	for _, program := range testserver.Programs {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			test(t, testserver.Spec{Program: program})
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

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memengine.New(memengine.Options{Now: clock.Now})
}

// onOne returns what opens stores that share one Redis or cluster.
func onOne(client redis.UniversalClient) storetest.Open {
	var opened atomic.Int64
	return func(t testing.TB, clock *storetest.Clock) weir.Taker {
		prefix := fmt.Sprintf("suite%d:", opened.Add(1))
		store, err := redisengine.NewWithClock(client, redisengine.Options{Prefix: prefix, Timeout: time.Minute}, clock.Micros)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
}
