package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const startTimeout = 20 * time.Second

// A process belongs to one test and ends with it.
type process struct {
	*testserver.Process
	t *testing.T
}

// start starts a program that finds more variables, each as NAME=value.
func start(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	return &process{testserver.Start(t, command(env, program, args...)), t}
}

func command(env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	// Servers of several tests run at once.
	cmd.Env = append(append(os.Environ(), "WEIR_ADMIN=off"), env...)
	return cmd
}

// named returns addresses by their protocols, once a server has named all that are wanted.
func (p *process) named(protocols ...string) map[string]string {
	p.t.Helper()
	addrs := map[string]string{}
	missing := func(protocol string) bool { return addrs[protocol] == "" }
	for deadline := time.After(startTimeout); slices.ContainsFunc(protocols, missing); {
		select {
		case line, open := <-p.Lines:
			if !open {
				p.t.Fatalf("weir ended before it served: %s", p.Stderr)
			}
			protocol, addr, _ := strings.Cut(line, " ")
			addrs[protocol] = addr
		case <-deadline:
			p.t.Fatalf("weir named %v within %v", addrs, startTimeout)
		}
	}
	return addrs
}

// binary returns the path of the command, which is built once for all tests.
func binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "weir")
	out, err := exec.Command("go", "build", "-o", path, "github.com/weirlimit/weir/server/cmd/weir").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, err
})

// buildDir lives as long as the tests of the package.
var buildDir string

// full is what "make chaos" asks for.
var full = flag.Bool("full", false, "do more of TestHostileTogether, and judge times")

func TestMain(m *testing.M) {
	if os.Getenv(sinkVariable) != "" {
		os.Exit(serveSink())
	}
	// Most of them wait for servers.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	if testing.Short() {
		fmt.Println("servers and proxies take seconds each, which -short does not have")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if buildDir, err = os.MkdirTemp("", "weir-e2e-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(buildDir)
	// Clones of this tree are compiled in several folders, but need it once.
	flags, err := exec.Command("go", "env", "GOFLAGS").Output()
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("GOFLAGS", strings.TrimSpace(string(flags))+" -trimpath"); err != nil {
		panic(err)
	}
	return m.Run()
}

// A weir is a running "weir serve".
type weir struct {
	*process
	addr string // of HTTP
	grpc string // of gRPC
	resp string // of RESP, if it was asked for
}

func (w *weir) url() string { return "http://" + w.addr }

// serve starts a server, with more arguments than it always has.
func serve(t *testing.T, config, store string, more ...string) *weir {
	t.Helper()
	return serveWith(t, nil, config, store, more...)
}

// serveWith starts a server that finds more variables, each as NAME=value.
func serveWith(t *testing.T, env []string, config, store string, more ...string) *weir {
	t.Helper()
	args := []string{"serve", "--config", config, "--store", store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store-timeout", "1s"}
	return listening(start(t, env, binary(t), append(args, more...)...), slices.Contains(more, "--resp"))
}

// listening waits until a server has named its addresses.
func listening(p *process, resp bool) *weir {
	p.t.Helper()
	protocols := []string{"http", "grpc"}
	if resp {
		protocols = append(protocols, "resp")
	}
	addrs := p.named(protocols...)
	return &weir{p, addrs["http"], addrs["grpc"], addrs["resp"]}
}

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func dialEnvoy(t *testing.T, w *weir) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(w.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// envoy is a descriptor as Envoy sends it: key, value, key, value …
func envoy(entries ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}
