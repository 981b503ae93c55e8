package app

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const clientRules = `
domain: clients
descriptors:
  - {key: free, rate_limit: {unlimited: true}}
`

// proxies are programs before two servers, with what they are told. nginx asks the other server
// where a connection broke: a kernel resets those that wait in the queue of a listener that closes.
var proxies = map[string]struct {
	conf string
	args func(dir string) []string
}{
	"nginx": {`
daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors info;
events {}
http {
  access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi; client_max_body_size 10m; keepalive_requests 1000000;
  upstream weir { server %[3]s max_fails=0; server %[4]s max_fails=0; keepalive 32; }
  server { listen %[2]s http2; location / { grpc_pass grpc://weir; grpc_next_upstream error non_idempotent; } }
}
`, func(dir string) []string { return []string{"-p", dir, "-c", dir + "/conf"} }},
	"haproxy": {`
defaults
  mode http
  option redispatch 1
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend front
  bind %[2]s proto h2
  default_backend weir
backend weir
  server one %[3]s proto h2
  server two %[4]s proto h2
# %[1]s
`, func(dir string) []string { return []string{"-f", dir + "/conf", "-db"} }},
}

// TestClients calls with grpc-js and with grpcio in every way, straight and through proxies, and
// while servers replace each other: no call fails.
func TestClients(t *testing.T) {
	t.Parallel()
	for client, command := range map[string]func(*testing.T) []string{"grpc-js": grpcjs, "grpcio": grpcio} {
		for _, way := range []string{"straight", "nginx", "haproxy"} {
			t.Run(client+"/"+way, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && way != "straight" {
					t.Skip("without a proxy only")
				}
				program := command(t)
				addresses := []string{testserver.FreeAddr(t)}
				target := addresses[0]
				if way != "straight" {
					addresses = append(addresses, testserver.FreeAddr(t))
					target = proxy(t, way, addresses)
				}
				testClient(t, append(program, target), addresses)
			})
		}
	}
}

func grpcjs(t *testing.T) []string {
	const folder = "testdata/grpcjs"
	node := testserver.Require(t, "node")
	if _, err := os.Stat(folder + "/node_modules"); err != nil {
		testserver.Missing(t, "node", "grpc-js")
	}
	return []string{node, folder + "/matrix.js"}
}

func grpcio(t *testing.T) []string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if err := exec.CommandContext(t.Context(), python, "-c", "import grpc").Run(); err == nil {
			return []string{python, "testdata/grpcio/matrix.py"}
		}
	}
	testserver.Missing(t, "grpcio", "grpcio")
	return nil
}

// proxy starts a program before two servers and returns where it listens.
func proxy(t *testing.T, name string, servers []string) string {
	t.Helper()
	program, address := testserver.Require(t, name), testserver.FreeAddr(t)
	dir := t.TempDir()
	conf := fmt.Appendf(nil, proxies[name].conf, dir, address, servers[0], servers[1])
	if err := os.WriteFile(filepath.Join(dir, "conf"), conf, 0o600); err != nil {
		t.Fatal(err)
	}
	testserver.Start(t, exec.Command(program, proxies[name].args(dir)...))
	eventually(t, func() error {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			err = nc.Close()
		}
		return err
	})
	return address
}

// testClient runs a client's matrix, and replaces servers while it calls.
func testClient(t *testing.T, command, addresses []string) {
	var apps []*App
	for _, address := range addresses {
		apps = append(apps, startAt(t, address))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(output)
	for said.Scan() && said.Text() != "ready" {
		t.Error(said.Text())
	}
	for n := range 6 {
		i := n % len(apps)
		stop(t, apps[i])
		apps[i] = startAt(t, addresses[i])
		time.Sleep(200 * time.Millisecond) // of calls
	}
	_ = input.Close()
	last := ""
	for said.Scan() {
		if last = said.Text(); last != "all answered" {
			t.Error(last)
		}
	}
	if err := cmd.Wait(); err != nil || last != "all answered" {
		t.Errorf("%q, %v", last, err)
	}
	for _, app := range apps {
		stop(t, app)
	}
}

// startAt starts a server whose gRPC listener has an address.
func startAt(t *testing.T, address string) *App {
	t.Helper()
	return unstopped(t, Options{GRPC: address, Config: rulesFor(t, clientRules), Timeout: 4 * time.Second})
}
