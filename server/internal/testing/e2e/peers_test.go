package e2e

import (
	"flag"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rules"
)

// peers is what "make peers" asks for: it needs registries, and takes minutes.
var peers = flag.Bool("peers", false, "run TestPeers")

// TestPeers runs the suites of other rate limiters against the adapters of the clients: each
// clients/peers/LANGUAGE/run fetches the suites and prints a table of what
// fails and why.
//
// WEIR is the program. WEIR_URL names a server in memory, and WEIR_CLOCK its clock, which moves on with
// POST ?forward=DURATION, and stands between POST ?stand=1 and ?stand=0: suites that forward the time of their own process
// forward the server's, too.
func TestPeers(t *testing.T) {
	if !*peers {
		t.Skip("make peers runs it: it needs PyPI, npm and GitHub")
	}
	runs, err := filepath.Glob("../../../../clients/peers/*/run")
	if err != nil || len(runs) == 0 {
		t.Fatalf("no peers: %v", err)
	}
	for _, run := range runs {
		t.Run(filepath.Base(filepath.Dir(run)), func(t *testing.T) {
			c := new(movableClock)
			cmd := exec.Command("./run")
			cmd.Dir = filepath.Dir(run)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			cmd.Env = append(os.Environ(), "WEIR="+binary(t), "WEIR_URL=weir://"+serveRESP(t, c), "WEIR_CLOCK=http://"+serveClock(t, c))
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
}

func serveRESP(t *testing.T, c *movableClock) string {
	t.Helper()
	s := resp.New(resp.Options{Taker: memengine.New(memengine.Options{Now: c.now}), Rules: rules.Demo, Timeout: 10 * time.Second})
	l := listen(t)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	return l.Addr().String()
}

func serveClock(t *testing.T, c *movableClock) string {
	t.Helper()
	l := listen(t)
	s := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A movableClock is the system's, moved.
type movableClock struct {
	mu     sync.Mutex
	offset time.Duration
	stands time.Time // zero: it runs
}

func (c *movableClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *movableClock) read() time.Time {
	if !c.stands.IsZero() {
		return c.stands
	}
	return time.Now().Add(c.offset)
}

func (c *movableClock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	forward, err := time.ParseDuration(r.FormValue("forward"))
	switch stand := r.FormValue("stand"); {
	case stand == "1":
		c.stands = c.read()
	case stand == "0" && !c.stands.IsZero():
		c.offset, c.stands = time.Until(c.stands), time.Time{}
	case stand == "0":
	case err != nil || forward < 0:
		http.Error(w, "want stand=1, stand=0 or forward=DURATION", http.StatusBadRequest)
	case !c.stands.IsZero():
		c.stands = c.stands.Add(forward)
	default:
		c.offset += forward
	}
}
