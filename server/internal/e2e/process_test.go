package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = testserver.Patience
)

// A process belongs to one test and ends with it.
type process struct {
	*testserver.Process
	t *testing.T
}

func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, program, args...)
}

// startWith starts a process that finds more variables, each as NAME=value.
func startWith(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	return startCommand(t, commandWith(env, program, args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	return &process{testserver.Start(t, cmd), t}
}

// commandWith is a command that finds more variables, each as NAME=value.
func commandWith(env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	// Servers of several tests run at once.
	cmd.Env = append(append(os.Environ(), "WEIR_ADMIN=off"), env...)
	return cmd
}

// binary builds the command once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "weir")
	out, err := exec.Command("go", "build", "-o", path, "github.com/weirlimit/weir/server/cmd/weir").CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
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
	path, err := binary()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	args := []string{"serve", "--config", config, "--store", store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store-timeout", "1s"}
	return listening(t, startWith(t, env, path, append(args, more...)...), slices.Contains(more, "--resp"))
}

// listening waits until a server has named its addresses.
func listening(t *testing.T, p *process, resp bool) *weir {
	t.Helper()
	w := &weir{process: p}
	deadline := time.After(startTimeout)
	for w.addr == "" || w.grpc == "" || w.resp == "" && resp {
		select {
		case line, ok := <-w.Lines:
			if !ok {
				t.Fatal("weir ended before it served")
			}
			switch protocol, addr, _ := strings.Cut(line, " "); protocol {
			case "http":
				w.addr = addr
			case "grpc":
				w.grpc = addr
			case "resp":
				w.resp = addr
			}
		case <-deadline:
			t.Fatalf("weir named no address within %v", startTimeout)
		}
	}
	return w
}
