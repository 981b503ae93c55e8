package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

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

// The servers' names in the tables.
const (
	emptyHandler = "empty handler"
	weirServe    = "weir serve"
	onGRPCGo     = "weir serve, grpc-go"
	onFrames     = "weir serve, frames"
)

// servers are the processes that are measured: weir serve with each transport of gRPC,
// in plain text and with TLS, and empty handlers.
type servers struct {
	folder  string
	program string // weir
	rules   string
	redis   *measure.Redis
	empty   *remote.Process
	plain   map[string]*remote.Process // by name
	secured map[string]*remote.Process
	tls     *tls.Config // for clients
}

// serverWork is what the servers are asked.
var serverWork = []struct {
	name, entry string
	keys        int
	callers     []int // over gRPC
}{
	{hotGranted, "user", 1, []int{1, 256}},
	{uniformKeys, "user", 100_000, []int{256}},
	{hotRefused, "refused", 1, []int{256}},
}

// serverRows measures weir serve on Redis beside empty handlers.
func (s *settings) serverRows(ctx context.Context, r *results, redis *measure.Redis) error {
	if !s.wanted("server") {
		return nil
	}
	all, err := startServers(ctx, redis)
	if err != nil {
		return err
	}
	return errors.Join(s.idleRows(ctx, r, all), s.busyRows(ctx, r, all), all.stop())
}

func (s *settings) busyRows(ctx context.Context, r *results, all *servers) error {
	plan := s.plan
	// The kernel counts a process's time in ticks of 10 ms.
	plan.Stride, plan.Duration = 16, 3*plan.Duration
	compete := func(name string, keys *measure.Keys, callers []int, contestants ...contest.Contestant) error {
		return plan.Compete(ctx, measure.Scenario{
			Name: name, Keys: keys, Callers: callers, Limits: []contest.Limit{contest.Ample},
		}, contestants, all.redis, &r.Servers)
	}
	for _, w := range serverWork {
		keys := measure.Uniform(w.keys)
		if w.keys == 1 {
			keys = measure.Hot()
		}
		err := compete("server over gRPC, "+w.name, keys, w.callers,
			overGRPC(onGRPCGo, w.entry, w.keys, all.plain[onGRPCGo], nil),
			overGRPC(onFrames, w.entry, w.keys, all.plain[onFrames], nil),
			overGRPC(emptyHandler, w.entry, w.keys, all.empty, nil))
		if err != nil {
			return err
		}
		err = compete("server over gRPC and TLS, "+w.name, keys, []int{256},
			overGRPC(onGRPCGo, w.entry, w.keys, all.secured[onGRPCGo], all.tls),
			overGRPC(onFrames, w.entry, w.keys, all.secured[onFrames], all.tls))
		if err != nil {
			return err
		}
		err = compete("server over HTTP, "+w.name, keys, []int{256},
			overHTTP(weirServe, w.entry, all.plain[onGRPCGo]), overHTTP(emptyHandler, w.entry, all.empty))
		if err != nil {
			return err
		}
	}
	return nil
}

// idleRows weighs idle connections, in servers that have not served anything yet.
func (s *settings) idleRows(ctx context.Context, r *results, all *servers) error {
	n, settle := 10_000, 15*time.Second // until connections give their buffers back
	if s.short {
		n, settle = 1000, 10*s.plan.Duration
	}
	for _, secured := range []bool{false, true} {
		processes, config := all.plain, (*tls.Config)(nil)
		if secured {
			processes, config = all.secured, all.tls
		}
		for _, name := range []string{onGRPCGo, onFrames} {
			s.plan.Progress(fmt.Sprintf("idle connections: %s, TLS %v", name, secured))
			each, err := weigh(ctx, processes[name], config, n, settle)
			if err != nil {
				return err
			}
			r.Idle = append(r.Idle, idle{name, secured, n, each})
		}
	}
	return nil
}

// weigh returns how much a server's resident memory grows for each idle connection.
func weigh(ctx context.Context, p *remote.Process, config *tls.Config, n int, settle time.Duration) (float64, error) {
	before, err := loadtest.MemoryOf(p.PID())
	if err != nil {
		return 0, err
	}
	closeAll, err := loadtest.DialIdle(ctx, p.Addrs["grpc"], config, n)
	if err != nil {
		return 0, err
	}
	defer closeAll()
	time.Sleep(settle)
	after, err := loadtest.MemoryOf(p.PID())
	return float64(after-before) / float64(n), err
}

func startServers(ctx context.Context, redis *measure.Redis) (all *servers, err error) {
	all = &servers{redis: redis, plain: map[string]*remote.Process{}, secured: map[string]*remote.Process{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.stop())
		}
	}()
	if all.folder, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return all, err
	}
	all.rules, all.program = filepath.Join(all.folder, "rules.yaml"), filepath.Join(all.folder, "weir")
	if err := os.WriteFile(all.rules, []byte(serverRules), 0o644); err != nil {
		return all, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", all.program, "github.com/weirlimit/weir/server/cmd/weir")
	build.Dir, build.Stderr = "..", os.Stderr
	build.Env = append(os.Environ(), "GOWORK=") // the program needs the workspace
	if err := build.Run(); err != nil {
		return all, fmt.Errorf("bench: build weir: %w", err)
	}
	cert, key := filepath.Join(all.folder, "cert.pem"), filepath.Join(all.folder, "key.pem")
	if all.tls, err = certify(cert, key); err != nil {
		return all, err
	}
	for name, transport := range map[string]string{onGRPCGo: "grpc-go", onFrames: "frames"} {
		if all.plain[name], err = all.serve(transport); err != nil {
			return all, err
		}
		if all.secured[name], err = all.serve(transport, "--grpc-tls-cert", cert, "--grpc-tls-key", key); err != nil {
			return all, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return all, err
	}
	all.empty, err = remote.Start([]string{self, "empty"}, "http", "grpc")
	return all, err
}

func (s *servers) serve(transport string, flags ...string) (*remote.Process, error) {
	return remote.Start(append([]string{
		s.program, "serve", "--config", s.rules, "--store", "redis://" + s.redis.Address, "--admin", "off", "--log-level", "warn",
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--grpc-transport", transport, "--grpc-max-connections", "20000",
	}, flags...), "http", "grpc")
}

// stop ends all that were started.
func (s *servers) stop() error {
	var err error
	for _, some := range []map[string]*remote.Process{s.plain, s.secured, {emptyHandler: s.empty}} {
		for _, p := range some {
			if p != nil {
				err = errors.Join(err, p.Stop())
			}
		}
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// certify writes a certificate for 127.0.0.1 and its key to files, and returns what a
// client needs to trust it.
func certify(certFile, keyFile string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	err = errors.Join(os.WriteFile(certFile, cert, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, err
}

// overHTTP is a contestant that is asked by /v1/auth.
func overHTTP(name, entry string, p *remote.Process) contest.Contestant {
	return contest.Contestant{Name: name, Kind: contest.Redis, Open: func(e contest.Env) (contest.Limiter, error) {
		client := loadtest.DialHTTP("http://"+p.Addrs["http"]+"/v1/auth?domain=bench&"+entry+"=", loadtest.ClientOptions{Connections: e.Callers})
		return contest.Limiter{Allow: client.Allow, Release: client.Close, PID: p.PID()}, nil
	}}
}

// overGRPC is a contestant that is asked by Envoy's rate limit service. One goroutine a
// connection keeps its calls in flight.
func overGRPC(name, entry string, keys int, p *remote.Process, config *tls.Config) contest.Contestant {
	return contest.Contestant{Name: name, Kind: contest.Redis, Open: func(contest.Env) (contest.Limiter, error) {
		return contest.Limiter{PID: p.PID(), Drive: func(ctx context.Context, callers int, d time.Duration) (loadtest.Report, error) {
			load := loadtest.RLSLoad{
				Address: p.Addrs["grpc"], TLS: config, Domain: "bench", Entry: entry, Keys: keys, Callers: callers,
				Connections: min(2, callers), Duration: d, Timeout: 10 * time.Second, Traceparent: true,
			}
			got, err := load.Run(ctx)
			return got.Report, err
		}}, nil
	}}
}
