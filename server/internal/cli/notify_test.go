package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimit/weir/server/internal/app"
)

// listen stands in for systemd: it returns a notifier and what reads one message.
func listen(t *testing.T) (notifier, func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return notifier{socket: conn.LocalAddr().String(), logger: slog.New(slog.DiscardHandler)}, func() string {
		t.Helper()
		message := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
}

func TestNotifier(t *testing.T) {
	t.Parallel()
	n, read := listen(t)
	told := 0
	o := app.Options{Serving: func([]app.Addr) { told++ }}
	n.attach(&o)

	o.Serving([]app.Addr{{Protocol: "http", Address: "127.0.0.1:1"}, {Protocol: "grpc", Address: "unix:/g"}})
	if got, want := read(), "READY=1\nSTATUS=http 127.0.0.1:1, grpc unix:/g"; got != want || told != 1 {
		t.Errorf("serving: %q, and %d calls of who listened before; want %q and 1", got, told, want)
	}
	o.Reloaded(nil)
	if got, want := read(), "READY=1\nSTATUS=the rules in the files are in force"; got != want {
		t.Errorf("reloaded: %q, want %q", got, want)
	}
	// A rules file that could put words of its own into the message.
	o.Reloaded(errors.New("r.yaml:1:1: unknown\nSTOPPING=1"))
	if got := read(); !strings.HasPrefix(got, "READY=1\nSTATUS=the rules files are wrong") || strings.Contains(got, "STOPPING") {
		t.Errorf("not reloaded: %q", got)
	}
}

// TestNotifierUnheard: silence on the other side is logged and stops nothing.
func TestNotifierUnheard(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	notifier{logger: logger}.send(notifyReady)
	if log.Len() > 0 {
		t.Errorf("without a socket: %s", &log)
	}
	notifier{socket: filepath.Join(t.TempDir(), "nobody"), logger: logger}.send(notifyReady)
	if !strings.Contains(log.String(), "cannot notify") {
		t.Errorf("with nobody behind the socket: %q", &log)
	}
}

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
