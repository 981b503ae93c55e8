package check

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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
	t          *testing.T
	cmd        *exec.Cmd
	ended      chan struct{}
	http, grpc string // where it listens
	words      chan string
	answers    map[int]int // statuses of what was posted
	log        *log
}

// A log is what a process writes to stderr.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve starts a server and waits until it serves.
func serve(t *testing.T, how served) *server {
	t.Helper()
	s := &server{t: t, ended: make(chan struct{}), words: make(chan string, 64), log: new(log)}
	args := append(how.command[1:len(how.command):len(how.command)], "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
	s.cmd = exec.Command(how.command[0], append(args, how.more...)...)
	s.cmd.Env = append(slices.Clone(how.env), "PATH="+os.Getenv("PATH"), "NOTIFY_SOCKET="+s.listen(), "WEIR_ADMIN=127.0.0.1:0")
	s.cmd.Stderr = s.log
	dieWithParent(s.cmd)
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go func() {
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			t.Log(s.log)
		}
	})
	for s.http == "" || s.grpc == "" {
		s.note(lines)
	}
	// Whatever else it prints must not keep it from printing.
	go func() {
		for range lines {
		}
	}()
	return s
}

// note takes one of the lines that tell the addresses.
func (s *server) note(lines <-chan string) {
	s.t.Helper()
	select {
	case line, ok := <-lines:
		if !ok {
			s.t.Fatalf("%s ended: %s", s.cmd, s.log)
		}
		switch protocol, addr, _ := strings.Cut(line, " "); protocol {
		case "http":
			s.http = addr
		case "grpc":
			s.grpc = addr
		}
	case <-time.After(patience):
		s.t.Fatalf("%s does not serve: %s", s.cmd, s.log)
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
			s.t.Fatalf("did not tell %q: %s", want, s.log)
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
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
}

// stop ends the server as service managers do, and demands that it ends well.
func (s *server) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("still runs: %s", s.log)
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Fatalf("exit code %d: %s", code, s.log)
	}
}
