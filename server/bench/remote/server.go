// Package remote starts servers: Weir's, and empty ones that show what the
// transport alone costs.
package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// empty says yes to everything: what is left is the transport.
type empty struct{}

// ShouldRateLimit says yes to everything.
func (empty) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// ServeEmpty serves empty handlers over gRPC and HTTP on free ports until ctx ends. It
// prints their addresses as weir serve does.
func ServeEmpty(ctx context.Context) error {
	rpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	service := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(service, empty{})
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		ReadHeaderTimeout: time.Second,
	}
	failed := make(chan error, 2)
	go func() { failed <- service.Serve(rpc) }()
	go func() { failed <- server.Serve(web) }()
	fmt.Println("http", web.Addr())
	fmt.Println("grpc", rpc.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	service.Stop()
	return errors.Join(err, server.Close())
}

// A Process is a server that the benchmark has started.
type Process struct {
	cmd   *exec.Cmd
	Addrs map[string]string // by protocol
}

// Start runs a program that prints "protocol address" lines once it serves, and
// waits for as many of them as it is told protocols.
func Start(program []string, protocols ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(program[0], program[1:]...), Addrs: map[string]string{}}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: start %s: %w", program[0], err)
	}
	lines := bufio.NewScanner(out)
	for len(p.missing(protocols)) > 0 && lines.Scan() {
		if protocol, address, ok := strings.Cut(lines.Text(), " "); ok {
			p.Addrs[protocol] = address
		}
	}
	if missing := p.missing(protocols); len(missing) > 0 {
		return nil, errors.Join(fmt.Errorf("bench: %s does not serve %v", program[0], missing), p.Stop())
	}
	go func() { // nobody must wait to print
		for lines.Scan() {
		}
	}()
	return p, nil
}

func (p *Process) missing(protocols []string) []string {
	var missing []string
	for _, protocol := range protocols {
		if p.Addrs[protocol] == "" {
			missing = append(missing, protocol)
		}
	}
	return missing
}

// PID names the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the process and waits for it.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) {
		return err
	}
	return nil
}
