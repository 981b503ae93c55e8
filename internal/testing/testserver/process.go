//go:build unix

package testserver

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a process may take to end.
const Patience = 20 * time.Second

// A Process belongs to one test and ends with it.
type Process struct {
	Cmd *exec.Cmd
	// Lines are those of its standard output; closed with it. Lines that nobody reads in
	// time are lost.
	Lines chan string
	// Stderr is what it has written to standard error.
	Stderr *Output
	// Exited is closed once the process has ended.
	Exited chan struct{}

	t testing.TB
}

// An Output is what a process has written, which may write more.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Start starts a command, and ends it with the test, even if that is killed. If the test
// fails, it logs what the process wrote to standard error.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Lines: make(chan string, 100), Stderr: new(Output), Exited: make(chan struct{}), t: t}
	cmd.Stderr = p.Stderr
	DieWithParent(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(stdout)
	t.Cleanup(func() {
		p.Stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s wrote:\n%s", cmd, p.Stderr)
		}
	})
	return p
}

// follow passes on what the process prints, until it ends.
func (p *Process) follow(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		select {
		case p.Lines <- lines.Text():
		default:
		}
	}
	close(p.Lines)
	// How it ended is judged by the test.
	_ = p.Cmd.Wait()
	close(p.Exited)
}

// Stop sends a signal and returns how long the process took to end, by force if it takes
// too long.
func (p *Process) Stop(s syscall.Signal) time.Duration {
	p.t.Helper()
	sent := time.Now()
	_ = p.Cmd.Process.Signal(s) // an error means that it has ended already
	select {
	case <-p.Exited:
	case <-time.After(Patience):
		p.t.Errorf("%s did not end within %v of %v", p.Cmd.Path, Patience, s)
		_ = p.Cmd.Process.Kill()
		<-p.Exited
	}
	return time.Since(sent)
}
