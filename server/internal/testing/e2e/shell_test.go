package e2e

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A shell runs the commands of a page one after the other, as a reader types them:
// where one has gone to and what runs in the background stays. Only the addresses are
// others.
type shell struct {
	*process
	in   io.Writer
	to   *strings.Replacer // from the page's addresses to the test's
	from *strings.Replacer
	// ready are addresses of the page that programs listen at, by what the command
	// begins with that starts them in the background.
	ready map[string]string
}

// newShell starts a shell in the root of the repository, with weir in its path.
// Replaced are pairs: what stands in the page, and what is in its place.
func newShell(t *testing.T, replaced ...string) *shell {
	t.Helper()
	program := binary(t)
	backwards := make([]string, 0, len(replaced))
	for i := 0; i < len(replaced); i += 2 {
		backwards = append(backwards, replaced[i+1], replaced[i])
	}
	cmd := exec.Command(testserver.Require(t, "bash"))
	cmd.Dir = pages.Path(".")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "TZ=UTC", "LC_ALL=C.UTF-8")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{in: in, to: strings.NewReplacer(replaced...), from: strings.NewReplacer(backwards...)}
	s.process = &process{testserver.Start(t, cmd), t}
	// It ends with its input, and what runs in the background with it.
	t.Cleanup(func() { in.Close() })
	s.run(`exec 2>&1; trap 'kill $(jobs -p) 2>&-; wait' EXIT; trap : TERM`)
	return s
}

// commandTimeout is for a command that compiles the server on a busy machine.
const commandTimeout = 5 * time.Minute

// done is what the shell says after each command.
const done = "--done--"

// run runs a command and returns what it prints.
func (s *shell) run(command string) string {
	s.t.Helper()
	if _, err := io.WriteString(s.in, s.to.Replace(command)+"\nstatus=$?; echo "+done+"; (exit $status)\n"); err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	var printed strings.Builder
	for deadline := time.After(commandTimeout); ; {
		select {
		case line, open := <-s.Lines:
			rest, ended := strings.CutSuffix(line, done)
			if ended || !open {
				return s.clean(printed.String() + rest)
			}
			printed.WriteString(line + "\n")
		case <-deadline:
			s.t.Fatalf("%s does not end; it has printed\n%s", command, printed.String())
		}
	}
}

// clean returns an output as it stands in a page.
func (s *shell) clean(printed string) string {
	text := strings.TrimRight(strings.ReplaceAll(s.from.Replace(printed), "\r", ""), "\n")
	if text == "" {
		return ""
	}
	return text + "\n"
}

// background runs a command that goes on, and returns when it listens. Of weir that
// is when it has said where.
func (s *shell) background(command string) string {
	s.t.Helper()
	printed := s.run(command)
	for deadline := time.After(startTimeout); strings.Contains(command, "weir serve") && !strings.Contains(printed, "admin "); {
		select {
		case line, open := <-s.Lines:
			if !open {
				s.t.Fatalf("%s ended: %s", command, printed)
			}
			printed += s.from.Replace(line) + "\n"
		case <-deadline:
			s.t.Fatalf("%s does not serve: %s", command, printed)
		}
	}
	program, _, _ := strings.Cut(command, " ")
	if address := s.ready[program]; address != "" {
		s.listens(s.to.Replace(address))
	}
	return printed
}

func (s *shell) listens(addr string) {
	s.t.Helper()
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return
		}
	}
	s.t.Fatalf("nobody listens at %s", addr)
}

// console runs the commands of a block and returns it with what they print.
func (s *shell) console(text string) string {
	s.t.Helper()
	var out strings.Builder
	command := ""
	for line := range strings.Lines(text) {
		if first, found := strings.CutPrefix(line, "$ "); found {
			command = first
		} else if command == "" {
			continue // what the command before has printed
		} else {
			command += line
		}
		out.WriteString(line)
		if strings.HasSuffix(command, "\\\n") {
			continue
		}
		run := s.run
		if strings.HasSuffix(command, " &\n") {
			run = s.background
		}
		out.WriteString(run(strings.TrimSuffix(command, "\n")))
		command = ""
	}
	return out.String()
}
