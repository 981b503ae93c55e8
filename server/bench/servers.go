package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/bench/measure"
	"github.com/weirlimit/weir/server/bench/remote"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

// serverRules has a limit that nobody reaches and one that everybody does.
const serverRules = `domain: bench
descriptors:
  - key: user
    rate_limit: {algorithm: gcra, requests_per_unit: 1000000000, unit: hour}
  - key: refused
    rate_limit: {algorithm: gcra, requests_per_unit: 1, unit: day}
`

// A hosted limiter is a client of a server process whose work counts.
type hosted struct {
	contest.Limiter
	process *remote.Process
}

// PID names the server.
func (h hosted) PID() int { return h.process.PID() }

// serverRows measures weir serve on Redis beside empty handlers.
func (s *settings) serverRows(ctx context.Context, r *results, redis *measure.Redis) error {
	if !s.wanted("server") {
		return nil
	}
	folder, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	weir, empty, err := startServers(ctx, folder, redis)
	if err != nil {
		return err
	}
	plan := s.plan
	// The kernel counts a process's time in ticks of 10 ms.
	plan.Stride, plan.Duration = 16, 3*plan.Duration
	for _, scenario := range []struct {
		name, entry string
		keys        *measure.Keys
	}{
		{"hot key granted", "user", measure.Hot()},
		{"100 000 uniform keys", "user", measure.Uniform(100_000)},
		{"hot key refused", "refused", measure.Hot()},
	} {
		for _, transport := range []string{"gRPC", "HTTP"} {
			rows, err := plan.Compete(ctx, measure.Scenario{
				Name: fmt.Sprintf("server over %s, %s", transport, scenario.name), Keys: scenario.keys, Callers: []int{256},
				Limits: []contest.Limit{contest.Ample},
			}, []contest.Contestant{
				server("weir serve", transport, scenario.entry, weir),
				server("empty handler", transport, scenario.entry, empty),
			}, redis)
			if err != nil {
				return errors.Join(err, weir.Stop(), empty.Stop())
			}
			r.Servers = append(r.Servers, rows...)
		}
	}
	return errors.Join(weir.Stop(), empty.Stop())
}

func startServers(ctx context.Context, folder string, redis *measure.Redis) (weir, empty *remote.Process, err error) {
	rules, program := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "weir")
	if err := os.WriteFile(rules, []byte(serverRules), 0o644); err != nil {
		return nil, nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/weirlimit/weir/server/cmd/weir")
	build.Dir, build.Stderr = "..", os.Stderr
	build.Env = append(os.Environ(), "GOWORK=") // the program needs the workspace
	if err := build.Run(); err != nil {
		return nil, nil, fmt.Errorf("bench: build weir: %w", err)
	}
	weir, err = remote.Start([]string{
		program, "serve", "--config", rules, "--store", "redis://" + redis.Address,
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "off",
	}, "http", "grpc")
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, errors.Join(err, weir.Stop())
	}
	empty, err = remote.Start([]string{self, "empty"}, "http", "grpc")
	if err != nil {
		return nil, nil, errors.Join(err, weir.Stop())
	}
	return weir, empty, nil
}

// server is a contestant behind a connection.
func server(name, transport, entry string, p *remote.Process) contest.Contestant {
	return contest.Contestant{Name: name, Kind: contest.Redis, Open: func(e contest.Env) (contest.Limiter, error) {
		if transport == "HTTP" {
			return hosted{loadtest.DialHTTP("http://"+p.Addrs["http"]+"/v1/auth?domain=bench&"+entry+"=", loadtest.ClientOptions{Connections: e.Callers}), p}, nil
		}
		l, err := loadtest.DialRLS(p.Addrs["grpc"], loadtest.ClientOptions{Domain: "bench", Entry: entry, Connections: 4})
		return hosted{l, p}, err
	}}
}
