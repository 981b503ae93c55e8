package cli

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// manager lets the servers of a script find a service manager.
func (s *session) manager(ts *testscript.TestScript, _ []string) {
	// Sockets have short names; those of a script's folder may be too long.
	dir, err := os.MkdirTemp("", "weir")
	ts.Check(err)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	ts.Check(err)
	heard := &output{written: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		message := make([]byte, 4096)
		for n, err := conn.Read(message); err == nil; n, err = conn.Read(message) {
			_, _ = heard.Write(append(message[:n:n], '\n'))
		}
	}()
	ts.Defer(func() {
		conn.Close()
		<-done
		os.RemoveAll(dir)
	})
	s.heard = heard
	ts.Setenv("NOTIFY_SOCKET", conn.LocalAddr().String())
}

// told waits until the manager has heard it all, in this order, with anything between.
func (s *session) told(ts *testscript.TestScript, args []string) {
	s.await(ts, s.heard, regexp.MustCompile(`(?s)`+strings.Join(args, ".*")))
}
