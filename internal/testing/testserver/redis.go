//go:build unix

package testserver

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	startTries   = 5
	startTimeout = time.Minute
	stopTimeout  = 5 * time.Second
	pollInterval = 5 * time.Millisecond
	logTail      = 4 << 10
)

// A Redis is a redis-server or valkey-server process that belongs to one test and ends
// with it. Its methods are for the test's own goroutine, except Do.
type Redis struct {
	t    testing.TB
	path string // of the program
	Spec
	args    []string
	dir     string
	port    int
	tlsPort int // 0 where there is no TLS
	cmd     *exec.Cmd
	exited  chan struct{} // closed once the process has ended
}

// A Spec is the settings of servers besides their arguments. Its methods start them.
type Spec struct {
	Program Program  // empty: redis-server
	Env     []string // environment variables besides the test's own, each as NAME=value
	TLS     TLS      // zero: none
	config  string   // a configuration file, or empty
}

// A Program is the name of a server with Redis's protocol. Tests that start one are skipped
// if it is not installed, see [Require].
type Program string

// The programs that stores are tested on.
const (
	RedisServer  Program = "redis-server"
	ValkeyServer Program = "valkey-server"
)

// Programs are all programs.
var Programs = []Program{RedisServer, ValkeyServer}

// StartRedis starts a redis-server on a free port of the loopback interface and
// returns once it answers. It keeps nothing on disk unless args, given as on the
// command line, say otherwise. The test is skipped if redis-server is not installed, see
// [Require].
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return Spec{}.Redis(t, args...)
}

// Redis is [StartRedis] with the settings.
func (s Spec) Redis(t testing.TB, args ...string) *Redis {
	t.Helper()
	r := &Redis{t: t, path: Require(t, string(cmp.Or(s.Program, RedisServer))), Spec: s, args: args, dir: Folder(t)}
	t.Cleanup(r.end)
	var err error
	for range startTries {
		// Another process may take the port first; then the next one is tried.
		r.port = freePort(t, firstPort, lastPort)
		if r.TLS != (TLS{}) {
			r.tlsPort = freePort(t, firstPort, lastPort)
		}
		if err = r.start(); err == nil {
			return r
		}
	}
	t.Fatalf("redis-server did not start: %v", err)
	return nil
}

// Addr returns the server's address, as host:port. It survives a restart.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL returns redis://host:port, with timeouts that suit a busy machine.
func (r *Redis) URL() string {
	return "redis://" + r.Addr() + "?dial_timeout=4s&pool_timeout=4s&read_timeout=4s&write_timeout=4s"
}

// Pid returns the id of the server's process, or of the last one if it was killed.
func (r *Redis) Pid() int { return r.cmd.Process.Pid }

// Kill ends the server at once, as a crash does, and waits for its end.
func (r *Redis) Kill() { r.stop(syscall.SIGKILL) }

// Restart starts the server again with its port, its directory and its
// arguments, ending it first if it runs. It returns once the server answers.
func (r *Redis) Restart() {
	r.t.Helper()
	r.stop(syscall.SIGTERM)
	if err := r.start(); err != nil {
		r.t.Fatalf("redis-server did not start again: %v", err)
	}
}

// Pause stops the server: connections stay open and get no answer.
func (r *Redis) Pause() { r.signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (r *Redis) Resume() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatalf("redis-server: %v: %v", s, err)
	}
}

// start starts the process and waits until it answers. On an error nothing runs.
func (r *Redis) start() error {
	log, err := os.OpenFile(r.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir}
	if r.config != "" {
		args = append([]string{r.config}, args...)
	} else {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, r.TLS.args(r.tlsPort)...)
	r.cmd = exec.Command(r.path, append(args, r.args...)...)
	r.cmd.Env = append(os.Environ(), r.Env...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	DieWithParent(r.cmd)
	if err := r.cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	r.exited = exited
	go func(cmd *exec.Cmd) {
		// How it ended is in its log.
		_ = cmd.Wait()
		close(exited)
	}(r.cmd)
	return r.await()
}

func (r *Redis) await() error {
	deadline := time.Now().Add(startTimeout)
	for !r.answers() {
		select {
		case <-r.exited:
			return fmt.Errorf("it ended:\n%s", r.tail())
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			r.Kill()
			return fmt.Errorf("no answer within %v:\n%s", startTimeout, r.tail())
		}
	}
	return nil
}

// answers reports whether this process serves at the address: another server that took
// the port first would answer a PING, too.
func (r *Redis) answers() bool {
	conn, err := net.DialTimeout("tcp", r.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\n"); err != nil {
		return false
	}
	lines := bufio.NewScanner(conn)
	if !lines.Scan() || strings.HasPrefix(lines.Text(), "-NOAUTH") {
		return lines.Text() != ""
	}
	if lines.Text() != "+PONG" {
		return false
	}
	for lines.Scan() {
		if pid, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			return pid == strconv.Itoa(r.Pid())
		}
	}
	return false
}

// stop sends a signal and waits for the end of the process, which it forces if it takes too
// long.
func (r *Redis) stop(s syscall.Signal) {
	if r.exited == nil {
		return
	}
	// Errors mean that the process has ended. A paused one has to run to handle a signal.
	_ = r.cmd.Process.Signal(s)
	_ = r.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-r.exited:
	case <-time.After(stopTimeout):
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
}

// end stops the server when its test ends.
func (r *Redis) end() {
	r.stop(syscall.SIGTERM)
	if r.t.Failed() {
		r.t.Logf("redis-server at %s logged:\n%s", r.Addr(), r.tail())
	}
}

func (r *Redis) log() string { return filepath.Join(r.dir, "redis.log") }

// Torn reports whether the server restored only a part of a script, so that its data prove
// nothing: a server that is killed while it writes its append-only file can leave a
// transaction without an end in it, and reads the next one as a part of that.
func (r *Redis) Torn() bool {
	log, err := os.ReadFile(r.log())
	return err == nil && bytes.Contains(log, []byte("MULTI calls can not be nested"))
}

// tail returns the end of the log, in whole lines.
func (r *Redis) tail() []byte {
	log, err := os.ReadFile(r.log())
	if err != nil {
		return []byte(err.Error())
	}
	if len(log) > logTail {
		_, log, _ = bytes.Cut(log[len(log)-logTail:], []byte("\n"))
	}
	return log
}
