package check

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// patience is how long a process may take to do what it has to.
const patience = 20 * time.Second

// served says how a server is started: with a shipped command, whose addresses
// are replaced by free ones.
type served struct {
	command []string
	env     []string // the whole environment, $PATH and $NOTIFY_SOCKET aside
	more    []string // flags that beat the command's
}

// A server is a process that serves.
type server struct {
	*testserver.Process
	t          *testing.T
	http, grpc string // where it listens
	words      chan string
	answers    map[int]int // statuses of what was posted
}

// serve starts a server and waits until it serves.
func serve(t *testing.T, how served) *server {
	t.Helper()
	s := &server{t: t, words: make(chan string, 64)}
	args := append(how.command[1:len(how.command):len(how.command)], "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
	cmd := exec.Command(how.command[0], append(args, how.more...)...)
	cmd.Env = append(slices.Clone(how.env), "PATH="+os.Getenv("PATH"), "NOTIFY_SOCKET="+s.listen(), "WEIR_ADMIN=127.0.0.1:0")
	s.Process = testserver.Start(t, cmd)
	for s.http == "" || s.grpc == "" {
		s.note()
	}
	return s
}

// note takes one of the lines that tell the addresses.
func (s *server) note() {
	s.t.Helper()
	select {
	case line, ok := <-s.Lines:
		if !ok {
			s.t.Fatalf("%s ended: %s", s.Cmd, s.Stderr)
		}
		switch protocol, addr, _ := strings.Cut(line, " "); protocol {
		case "http":
			s.http = addr
		case "grpc":
			s.grpc = addr
		}
	case <-time.After(patience):
		s.t.Fatalf("%s does not serve: %s", s.Cmd, s.Stderr)
	}
}

// listen stands in for systemd: what the server tells becomes s.words.
func (s *server) listen() string {
	s.t.Helper()
	// Names of sockets are short.
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		message := make([]byte, 4096)
		for n, err := conn.Read(message); err == nil; n, err = conn.Read(message) {
			word, _, _ := strings.Cut(string(message[:n]), "\n")
			s.words <- word
		}
	}()
	s.t.Cleanup(func() {
		conn.Close()
		<-done
		os.RemoveAll(dir)
	})
	return conn.LocalAddr().String()
}

// told waits for the next words to systemd.
func (s *server) told(words ...string) {
	s.t.Helper()
	for _, want := range words {
		select {
		case got := <-s.words:
			if got != want {
				s.t.Fatalf("told %q, want %q", got, want)
			}
		case <-time.After(patience):
			s.t.Fatalf("did not tell %q: %s", want, s.Stderr)
		}
	}
}

// get returns the status of an answer.
func (s *server) get(path string) int {
	s.t.Helper()
	return get(s.t, "http://"+s.http+path)
}

func get(t *testing.T, url string) int {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (s *server) hangup() {
	s.t.Helper()
	if err := s.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
}

// stop ends the server as service managers do, and demands that it ends well.
func (s *server) stop() {
	s.t.Helper()
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.Exited:
	case <-time.After(patience):
		s.t.Fatalf("still runs: %s", s.Stderr)
	}
	if code := s.Cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Fatalf("exit code %d: %s", code, s.Stderr)
	}
}
