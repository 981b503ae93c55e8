package app

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

const clientRules = `
domain: clients
descriptors:
  - {key: free, rate_limit: {unlimited: true}}
`

// TestGRPCJS calls with grpc-js in every way, and while servers replace each other at one
// address: no call fails.
func TestGRPCJS(t *testing.T) {
	t.Parallel()
	const folder = "testdata/grpcjs"
	node := testserver.Require(t, "node")
	if _, err := os.Stat(folder + "/node_modules"); err != nil {
		if strings.Contains(os.Getenv(testserver.RequireVariable), "node") {
			t.Fatalf("grpc-js is not installed: run scripts/setup.sh: %v", err)
		}
		t.Skip("SKIPPED, NOTHING WAS TESTED: grpc-js is not installed: run scripts/setup.sh")
	}
	address := freeAddress(t)
	app := startAt(t, address)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, folder+"/matrix.js", address)
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
	for range 5 {
		if err := stopped(app); err != nil {
			t.Error(err)
		}
		app = startAt(t, address)
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
	if err := stopped(app); err != nil {
		t.Error(err)
	}
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startAt starts a server whose gRPC listener has an address.
func startAt(t *testing.T, address string) *App {
	t.Helper()
	app, err := New(Options{HTTP: "127.0.0.1:0", GRPC: address, Config: rulesFor(t, clientRules), Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(errors.Join(err, app.Stop(context.Background())))
	}
	return app
}

func stopped(app *App) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return app.Stop(ctx)
}
