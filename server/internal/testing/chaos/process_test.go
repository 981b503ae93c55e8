package chaos

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const startTimeout = 20 * time.Second

// A process belongs to one test and ends with it.
type process struct {
	*testserver.Process
	t *testing.T
}

func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return &process{testserver.Start(t, exec.Command(program, args...)), t}
}

// until returns once something is so, and fails the test where it does not become so.
func (p *process) until(what string, so func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(startTimeout); !so(); {
		select {
		case <-p.Exited:
			p.t.Fatalf("%s: %s ended: %v\n%s", what, p.Cmd.Path, p.Cmd.ProcessState, p.Stderr)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not within %v", what, startTimeout)
		}
	}
}

// files is how many descriptors the process has open.
func (p *process) files() int {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		p.t.Skipf("descriptors are not to be counted here: %v", err)
	}
	return len(open)
}

// program builds the command once for all tests.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "weir")
	out, err := exec.Command("go", "build", "-o", path, "github.com/weirlimit/weir/server/cmd/weir").CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return path, err
})

// An instance is a running "weir serve".
type instance struct {
	*process
	http, grpc, admin string
}

// serve starts a server, with more arguments than it always has, and returns once it is ready.
func serve(t *testing.T, store string, more ...string) *instance {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	i := &instance{http: testserver.FreeAddr(t), grpc: testserver.FreeAddr(t), admin: testserver.FreeAddr(t)}
	i.process = start(t, path, append([]string{
		"serve", "--config", filepath.Join("testdata", "rules.yaml"), "--store", store,
		"--http", i.http, "--grpc", i.grpc, "--admin", i.admin,
		// On a busy machine an answer may take longer, and what an instance then
		// decides by itself would spoil the count.
		"--timeout", "4s", "--store-timeout", "4s",
	}, more...)...)
	client := newClient(t)
	i.until("ready", func() bool {
		status, _, err := get(t.Context(), client, "http://"+i.http+"/readyz")
		return err == nil && status == http.StatusOK
	})
	return i
}

func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

func get(ctx context.Context, client *http.Client, url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	return resp.StatusCode, body.Bytes(), err
}
