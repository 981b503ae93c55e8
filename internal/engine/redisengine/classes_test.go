package redisengine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A refusal is a state of a real server in which it decides nothing.
type refusal struct {
	args  []string // of the server
	cause func(t *testing.T, server *testserver.Redis, client *redis.Client)
	says  string
	class error
	user  string
}

// do sends a command that must succeed.
func do(t *testing.T, client *redis.Client, args ...any) {
	t.Helper()
	if err := client.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

func command(args ...any) func(*testing.T, *testserver.Redis, *redis.Client) {
	return func(t *testing.T, _ *testserver.Redis, client *redis.Client) { do(t, client, args...) }
}

// refusals are all that a single server can be brought to say.
var refusals = map[string]refusal{
	"READONLY":   {cause: command("replicaof", "127.0.0.1", "1"), says: "READONLY", class: weir.ErrNotApplied},
	"MASTERDOWN": {args: []string{"--replica-serve-stale-data", "no"}, cause: command("replicaof", "127.0.0.1", "1"), says: "MASTERDOWN", class: weir.ErrNotApplied},
	"NOREPLICAS": {cause: command("config", "set", "min-replicas-to-write", "1"), says: "NOREPLICAS", class: weir.ErrNotApplied},
	"OOM":        {cause: command("config", "set", "maxmemory", "1"), says: "OOM", class: weir.ErrNotApplied},
	"MISCONF":    {args: []string{"--save", "3600 1000000"}, cause: cannotSave, says: "MISCONF", class: weir.ErrNotApplied},
	"BUSY":       {args: []string{"--busy-reply-threshold", "10"}, cause: busy, says: "BUSY", class: weir.ErrNotApplied},
	"LOADING": {
		args: []string{"--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"}, cause: load, says: "LOADING", class: weir.ErrNotApplied,
	},
	"CLUSTERDOWN": {args: []string{"--cluster-enabled", "yes"}, cause: command("ping"), says: "CLUSTERDOWN", class: weir.ErrNotApplied},
	"NOAUTH":      {cause: command("config", "set", "requirepass", "secret"), says: "NOAUTH", class: weir.ErrMisconfigured},
	"WRONGPASS":   {cause: command("ping"), user: "nobody", says: "WRONGPASS", class: weir.ErrMisconfigured},
	"NOPERM": {
		cause: command("acl", "setuser", "weir", "on", ">secret", "~*", "+@all", "-evalsha"), user: "weir", says: "NOPERM", class: weir.ErrMisconfigured,
	},
	"a command within": {
		cause: command("acl", "setuser", "weir", "on", ">secret", "~*", "+@all", "-set"), user: "weir", says: "can't run this command", class: weir.ErrMisconfigured,
	},
	"a key within": {
		cause: command("acl", "setuser", "weir", "on", ">secret", "~other:*", "+@all"), user: "weir", says: "key", class: weir.ErrMisconfigured,
	},
	"a missing command": {
		args: []string{"--rename-command", "EVALSHA", "\"\""}, cause: command("ping"), says: "unknown command", class: weir.ErrMisconfigured,
	},
}

// cannotSave takes the folder away that the server saves to.
func cannotSave(t *testing.T, server *testserver.Redis, client *redis.Client) {
	t.Cleanup(server.Kill) // it does not end by itself before it has saved
	dir := client.ConfigGet(context.Background(), "dir").Val()["dir"]
	if dir == "" {
		t.Fatal("no folder")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	do(t, client, "bgsave")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if strings.Contains(client.Info(context.Background(), "persistence").Val(), "rdb_last_bgsave_status:err") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it still saves")
		}
	}
}

// busy runs a script that does not end, until the test does.
func busy(t *testing.T, _ *testserver.Redis, client *redis.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	other := redis.NewClient(&redis.Options{Addr: client.Options().Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = other.Eval(ctx, "while true do end", nil).Err()
	}()
	t.Cleanup(func() {
		_ = client.ScriptKill(context.Background()).Err()
		cancel()
		<-done
		_ = other.Close()
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := client.Ping(context.Background()).Err(); redis.HasErrorPrefix(err, "BUSY") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("never busy")
		}
	}
}

// load has the server read many keys slowly.
func load(t *testing.T, _ *testserver.Redis, client *redis.Client) {
	do(t, client, "eval", "for i = 1, 20000 do redis.call('set', 'k' .. i, i) end return 1", 0)
	go func() {
		// It answers once all is read, or not at all.
		_ = client.Do(context.Background(), "debug", "reload").Err()
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		other := redis.NewClient(&redis.Options{Addr: client.Options().Addr, MaxRetries: -1})
		err := other.Ping(context.Background()).Err()
		_ = other.Close()
		if redis.HasErrorPrefix(err, "LOADING") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("never loading")
		}
	}
}

// TestClassesOfRealReplies brings a real server to refuse, and finds each refusal
// in its class.
func TestClassesOfRealReplies(t *testing.T) {
	t.Parallel()
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t, append([]string{"--enable-debug-command", "yes"}, r.args...)...)
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = client.Close() })
			r.cause(t, server, client)
			o := &redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1}
			if r.user != "" {
				o.Username, o.Password = r.user, "secret"
			}
			ours := redis.NewClient(o)
			t.Cleanup(func() { _ = ours.Close() })
			store := open(t, ours, redisengine.Options{Timeout: 10 * time.Second})
			a := takeOne(store, "k")
			if !errors.Is(a.Err, r.class) || !strings.Contains(a.Err.Error(), r.says) {
				t.Errorf("%v, want %s in the class %v", a.Err, r.says, r.class)
			}
			if n := classesOf(a.Err); n != 1 {
				t.Errorf("%v has %d classes", a.Err, n)
			}
		})
	}
}

func classesOf(err error) int {
	n := 0
	for _, class := range []error{weir.ErrInvalid, weir.ErrNotApplied, weir.ErrAmbiguous, weir.ErrMisconfigured, weir.ErrBackend} {
		if errors.Is(err, class) {
			n++
		}
	}
	return n
}

// says starts a server that answers every script with one reply, and returns its
// address.
func says(t *testing.T, reply string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					switch word := strings.ToLower(lines.Text()); {
					case word == "hello":
						_, _ = io.WriteString(conn, "-ERR unknown command 'HELLO'\r\n")
					case word == "eval" || word == "evalsha":
						_, _ = io.WriteString(conn, reply)
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// TestClassesOfScriptedReplies is for what one server cannot be brought to say.
func TestClassesOfScriptedReplies(t *testing.T) {
	t.Parallel()
	for reply, class := range map[string]error{
		"-ERR max number of clients reached\r\n":                                                                weir.ErrNotApplied,
		"-NOSCRIPT No matching script. Please use EVAL.\r\n":                                                    weir.ErrNotApplied,
		"-MOVED 3999 127.0.0.1:6381\r\n":                                                                        weir.ErrNotApplied,
		"-ASK 3999 127.0.0.1:6381\r\n":                                                                          weir.ErrNotApplied,
		"-TRYAGAIN Multiple keys request during rehashing of slot\r\n":                                          weir.ErrNotApplied,
		"-CROSSSLOT Keys in request don't hash to the same slot\r\n":                                            weir.ErrNotApplied,
		"-READONLY You can't write against a read only replica. script: x, on @user_script:1.\r\n":              weir.ErrNotApplied,
		"-WRONGTYPE Operation against a key holding the wrong kind of value script: x, on @user_script:1.\r\n":  weir.ErrBackend,
		"-ERR increment or decrement would overflow\r\n":                                                        weir.ErrBackend,
		"-ERR user_script:1: attempt to index a nil value script: x, on @user_script:1.\r\n":                    weir.ErrBackend,
		"-ERR The user executing the script can't access at least one of the keys mentioned in the command\r\n": weir.ErrMisconfigured,
		"-ERR DB index is out of range\r\n":                                                                     weir.ErrMisconfigured,
		":1\r\n":                                                                                                weir.ErrAmbiguous,
		"$5\r\nhello\r\n":                                                                                       weir.ErrBackend,
		"$-1\r\n":                                                                                               weir.ErrBackend,
		"?\r\n":                                                                                                 weir.ErrAmbiguous,
		"$5\r\nhe":                                                                                              weir.ErrAmbiguous,
	} {
		client := redis.NewClient(&redis.Options{Addr: says(t, reply), ContextTimeoutEnabled: true, MaxRetries: -1, Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { _ = client.Close() })
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: perDay, Cost: 1})
		open(t, client, redisengine.Options{}).Take(ctx, []*weir.Act{a})
		cancel()
		if !errors.Is(a.Err, class) || classesOf(a.Err) != 1 {
			t.Errorf("%q: %v, want %v", fmt.Sprint(reply), a.Err, class)
		}
	}
}
