//go:build unix

package testserver

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// say sends one command and returns the first line of the answer.
func say(t *testing.T, r *Redis, command string) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return sayOn(t, conn, command)
}

func sayOn(t *testing.T, conn net.Conn, command string) (string, error) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func expect(t *testing.T, r *Redis, command, want string) {
	t.Helper()
	if got, err := say(t, r, command); got != want || err != nil {
		t.Fatalf("%s: got %q, %v; want %q", command, got, err, want)
	}
}

// alive reports whether the process exists; one that nobody waited for does.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestRedisEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var servers []*Redis
	t.Run("servers", func(t *testing.T) {
		running, paused, killed := StartRedis(t), StartRedis(t), StartRedis(t)
		expect(t, running, "PING", "+PONG")
		paused.Pause()
		killed.Kill()
		servers = []*Redis{running, paused, killed}
		if !alive(running.Pid()) || !alive(paused.Pid()) || alive(killed.Pid()) {
			t.Error("want the first two alive and the third gone")
		}
	})
	for i, r := range servers {
		if alive(r.Pid()) {
			t.Errorf("server %d is still alive", i)
		}
		if _, err := os.Stat(r.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("server %d left its directory: %v", i, err)
		}
	}
}

func TestRedisPort(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	if r.port < firstPort || r.port > lastPort {
		t.Errorf("port %d, want one of %d … %d", r.port, firstPort, lastPort)
	}
	if !strings.HasPrefix(r.URL(), "redis://"+r.Addr()+"?") {
		t.Errorf("URL is %s, address %s", r.URL(), r.Addr())
	}
}

func TestRedisForgetsUnlessTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"default":    {nil, "$-1"},
		"appendonly": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, "$5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := StartRedis(t, tc.args...)
			expect(t, r, "SET key value", "+OK")
			r.Kill()
			if _, err := say(t, r, "PING"); err == nil {
				t.Error("a killed server answers")
			}
			r.Restart()
			expect(t, r, "GET key", tc.want)
			pid := r.Pid()
			r.Restart()
			if alive(pid) {
				t.Error("the server before the restart is still alive")
			}
			expect(t, r, "GET key", tc.want)
		})
	}
}

func TestRedisWithPassword(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, "--requirepass", "secret")
	if got, err := say(t, r, "PING"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("got %q, %v; want -NOAUTH", got, err)
	}
}

func TestRedisPause(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r.Pause()
	if state := state(t, r.Pid()); state != 'T' {
		t.Errorf("a paused server is in state %c, want T", state)
	}
	r.Resume()
	if got, err := sayOn(t, conn, "PING"); got != "+PONG" {
		t.Errorf("a resumed server: got %q, %v", got, err)
	}
}

// state returns the letter that Linux has for what a process is doing.
func state(t *testing.T, pid int) byte {
	t.Helper()
	var stat []byte
	deadline := time.Now().Add(5 * time.Second)
	for {
		var err error
		stat, err = os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("SKIPPED: there is no /proc to look at")
		}
		_, after, ok := strings.Cut(string(stat), ") ")
		if !ok {
			t.Fatalf("stat of %d: %q, %v", pid, stat, err)
		}
		// The signal is delivered soon after it was sent, not at once.
		if after[0] == 'T' || time.Now().After(deadline) {
			return after[0]
		}
		time.Sleep(pollInterval)
	}
}

func TestRedisRefusesAForeignServer(t *testing.T) {
	t.Parallel()
	first := StartRedis(t)
	second := &Redis{t: t, path: first.path, dir: t.TempDir(), port: first.port}
	t.Cleanup(second.end)
	if err := second.start(); err == nil || !strings.Contains(err.Error(), "it ended") {
		t.Errorf("a server at a taken port: %v, want that it ended", err)
	}
}
