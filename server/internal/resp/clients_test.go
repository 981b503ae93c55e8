package resp

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// The answers to eleven CL.THROTTLE a 9 10 60, by a clock that stands.
var (
	firstAnswer = []int64{0, 10, 9, -1, 6}
	lastAnswer  = []int64{1, 10, 0, 6, 60}
)

const calls = 11

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "redis-cli")
	for _, proto := range []string{"-2", "-3"} {
		host, port, err := net.SplitHostPort(listen(t, newServer(t, Options{Callers: protected(t, nil)}), plain))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, proto, "--no-auth-warning", "-h", host, "-p", port, "-a", "secret")
		cmd.Stdin = strings.NewReader(strings.Repeat("CL.THROTTLE \"a key\" 9 10 60\n", calls) + "PING\nGET x\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text := string(out)
		if !strings.HasPrefix(text, "0\n10\n9\n-1\n6\n") || !strings.HasSuffix(strings.TrimSpace(text), "1\n10\n0\n6\n60\nPONG\nERR unknown command \"GET\"") {
			t.Errorf("%s: %s", proto, text)
		}
	}
}

func TestGoRedis(t *testing.T) {
	t.Parallel()
	for _, proto := range []int{2, 3} {
		addr := listen(t, newServer(t, Options{Callers: protected(t, nil)}), plain)
		client := redis.NewClient(&redis.Options{
			Addr: addr, Password: "secret", Protocol: proto, ClientName: "test", MaxRetries: -1,
			ReadTimeout: 10 * time.Second, // the machine may be busy
		})
		pipe := client.Pipeline()
		answers := make([]*redis.Cmd, calls)
		for i := range answers {
			answers[i] = pipe.Do(t.Context(), "CL.THROTTLE", "a", 9, 10, 60)
		}
		kept, bad := pipe.Do(t.Context(), "CL.THROTTLE", "b", 9, 10, 60, 7, "KEEP", 3), pipe.Do(t.Context(), "CL.THROTTLE", "b", 9, 10, 60, "keep", 10)
		refused := pipe.Do(t.Context(), "CL.THROTTLE", "b", 9, 10, 60, "keep", 3)
		name := pipe.ClientGetName(t.Context())
		if _, err := pipe.Exec(t.Context()); err == nil || err.Error() != `ERR KEEP is "10": want 0 … 9` || !errors.Is(bad.Err(), err) {
			t.Fatalf("RESP%d: %v", proto, err)
		}
		for cmd, want := range map[*redis.Cmd][]int64{kept: {0, 10, 0, -1, 42}, refused: {1, 10, 0, 6, 42}} {
			got, err := cmd.Int64Slice()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("RESP%d, %v: %v %s", proto, cmd.Args(), err, diff)
			}
		}
		for i, want := range map[int][]int64{0: firstAnswer, calls - 1: lastAnswer} {
			got, err := answers[i].Int64Slice()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("RESP%d, call %d: %v %s", proto, i, err, diff)
			}
		}
		if name.Val() != "test" {
			t.Errorf("RESP%d: the client's name is %q", proto, name.Val())
		}
		if err := client.Get(t.Context(), "a").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
			t.Errorf("RESP%d: GET: %v", proto, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		stranger := redis.NewClient(&redis.Options{Addr: addr, Protocol: proto, MaxRetries: -1})
		if err := stranger.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
			t.Errorf("RESP%d, no password: %v", proto, err)
		}
		if err := stranger.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRueidis(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rueidis.ClientOption{
		"RESP3, as it comes":      {},
		"RESP3, always pipelined": {AlwaysPipelining: true},
		"RESP2":                   {AlwaysRESP2: true, DisableCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.InitAddress = []string{listen(t, newServer(t, Options{Callers: protected(t, nil)}), plain)}
			o.Password, o.ClientName, o.ForceSingleClient = "secret", "test", true
			client, err := rueidis.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			cmds := make(rueidis.Commands, calls)
			for i := range cmds {
				cmds[i] = client.B().Arbitrary("CL.THROTTLE").Keys("a").Args("9", "10", "60").Build()
			}
			answers := client.DoMulti(t.Context(), cmds...)
			for i, want := range map[int][]int64{0: firstAnswer, calls - 1: lastAnswer} {
				got, err := answers[i].AsIntSlice()
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Errorf("call %d: %v %s", i, err, diff)
				}
			}
		})
	}
}
