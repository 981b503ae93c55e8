package resp

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// protected returns an authenticator whose only password is "secret", and which calls failed
// for each wrong one, if that is not nil.
func protected(t testing.TB, failed func()) *callers.Authenticator {
	t.Helper()
	file := filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets, err := callers.SecretsFile{Setting: "resp password file", File: file, Least: 1}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return callers.New(callers.Options{Listener: "resp", Secrets: secrets, Failed: failed})
}

// newServer returns a server that ends with the test, on an empty store whose
// clock stands still unless the options bring another.
func newServer(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Taker == nil {
		o.Taker = memengine.New(memengine.Options{Now: storetest.NewClock().Now})
	}
	if o.Rules == nil {
		o.Rules = rules.Demo
	}
	s := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect returns a client of the server, without a network between them.
func connect(t testing.TB, s *Server) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	s.accept(server)
	return client
}

// listen serves on a free port and returns its address. The server gets its connections as wrap
// returns them.
func listen(t testing.TB, s *Server, wrap func(net.Conn) net.Conn) string {
	t.Helper()
	opened, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &wrapping{opened, wrap}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// plain wraps nothing.
func plain(c net.Conn) net.Conn { return c }

type wrapping struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l *wrapping) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(conn), nil
}

// tell sends all of the input and returns all that is answered until the server
// hangs up.
func tell(t testing.TB, conn net.Conn, input string) string {
	t.Helper()
	go func() {
		// The server may hang up before it has heard everything.
		_, _ = io.WriteString(conn, input)
	}()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("after %q: %v", answer, err)
	}
	return string(answer)
}

// converse is tell with an end that the client chooses.
func converse(t testing.TB, s *Server, input string) string {
	t.Helper()
	answer := tell(t, connect(t, s), input+"QUIT\r\n")
	rest, ended := strings.CutSuffix(answer, "+OK\r\n")
	if !ended {
		t.Fatalf("hung up before QUIT: %q", answer)
	}
	return rest
}

// lines writes a wire text as the tests spell it: a space for each end of line.
func lines(words string) string { return strings.ReplaceAll(words, " ", "\r\n") + "\r\n" }

// answering is a Taker that answers all acts alike and notes how many came at
// once.
type answering struct {
	err   error
	calls *[]int
}

func (a answering) Take(_ context.Context, acts []*weir.Act) {
	if a.calls != nil {
		*a.calls = append(*a.calls, len(acts))
	}
	for i, act := range acts {
		act.Err = a.err
		act.Decisions[0] = weir.Decision{Outcome: weir.Granted, Remaining: int64(i)}
	}
}

// waiting is a Taker that reaches no decision before it has to.
type waiting struct{ begun chan<- struct{} }

func (w waiting) Take(ctx context.Context, acts []*weir.Act) {
	if w.begun != nil {
		w.begun <- struct{}{}
	}
	<-ctx.Done()
	for _, act := range acts {
		act.Err = weir.ErrAmbiguous
	}
}
