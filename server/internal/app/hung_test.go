//go:build unix

package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// stopsIn is how long Stop takes at most with a context of drainTime: what is cut off has
// a second, and a busy machine is late.
const drainTime, stopsIn = 200 * time.Millisecond, 6 * time.Second

// wantStopped stops a server in which something hangs.
func wantStopped(t *testing.T, app *App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = app.Stop(ctx)
	}()
	select {
	case <-stopped:
	case <-time.After(stopsIn):
		t.Errorf("not stopped %v after its time", stopsIn)
	}
}

// hangFile replaces a file by one that can be opened and never read, and lets go of it when
// the test ends.
func hangFile(t *testing.T, file string) {
	t.Helper()
	if err := syscall.Mkfifo(file+".fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".fifo", file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if writer, err := os.OpenFile(file, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = writer.Close()
		}
	})
}

// TestHungFile: a file of callers or tokens that cannot be read delays no call, and the
// server stops in time.
func TestHungFile(t *testing.T) {
	t.Parallel()
	callers, tokens := callersFile(t, "peek", `"*"`), passwordFile(t, tokenOf("root"))
	var log lines
	app := unstopped(t, Options{
		Config: rulesFor(t, scopedRules), Callers: callers, HTTPTokenFile: tokens, GRPCTokenFile: tokens,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	hangFile(t, callers)
	hangFile(t, tokens)
	log.await(t, "reading a file with secrets hangs")
	for _, caller := range []string{"edge", "root"} { // of callers, of tokens
		code, text := (scoped{t, app, caller}).http("http", "POST", "/v1/take", `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}],"cost":0}`)
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", caller, code, text)
		}
	}
	wantStopped(t, app)
}

// hanging is a store that never answers.
type hanging struct{ released, asked chan struct{} }

func (h hanging) Take(context.Context, []*weir.Act) {
	h.asked <- struct{}{}
	<-h.released
}

// TestHungStore: the server stops in time beside a store that never answers, whatever its
// callers' deadlines.
func TestHungStore(t *testing.T) {
	t.Parallel()
	store := hanging{make(chan struct{}), make(chan struct{}, 2)}
	defer close(store.released)
	app := unstopped(t, Options{wrapStore: func(weir.Taker) weir.Taker { return store }})
	conn := connect(t, addrOf(app, "http"))
	if _, err := io.WriteString(conn, "GET /v1/auth?domain=demo&user=a HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-store.asked
	rpc := dialGRPC(t, app)
	go func() { _, _ = login(t, rpc) }()
	<-store.asked
	wantStopped(t, app)
}

// stuck is a log whose writes hang once hangs is set.
type stuck struct {
	hangs    atomic.Bool
	released chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.hangs.Load() {
		<-s.released
	}
	return len(p), nil
}

// TestHungLog: the server stops in time although nobody reads its log.
func TestHungLog(t *testing.T) {
	t.Parallel()
	log := &stuck{released: make(chan struct{})}
	defer close(log.released)
	app := unstopped(t, Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	log.hangs.Store(true)
	wantStopped(t, app)
}
