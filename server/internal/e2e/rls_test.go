package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/testserver"
)

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

func charging(d *ratelimitv3.RateLimitDescriptor, hits uint64) *ratelimitv3.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func refunding(d *ratelimitv3.RateLimitDescriptor, hits uint64) *ratelimitv3.RateLimitDescriptor {
	d.IsNegativeHits = true
	return charging(d, hits)
}

func overriding(d *ratelimitv3.RateLimitDescriptor, requests uint32, unit typev3.RateLimitUnit) *ratelimitv3.RateLimitDescriptor {
	d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

func shouldRateLimit(t *testing.T, conn *grpc.ClientConn, hits uint32, descriptors ...*ratelimitv3.RateLimitDescriptor) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: "edge", Descriptors: descriptors, HitsAddend: hits,
	})
}

// told is an answer without its times: code, limit, what remains; and so on.
func told(t *testing.T, m *rlsv3.RateLimitResponse) string {
	t.Helper()
	words := []string{m.GetOverallCode().String()}
	for _, s := range m.GetStatuses() {
		l := s.GetCurrentLimit()
		if wait := s.GetDurationUntilReset(); l != nil && (wait.GetSeconds() < 0 || wait.GetNanos() != 0) {
			t.Errorf("reset after %v", wait)
		}
		words = append(words, fmt.Sprintf("%v %d/%v %s%d", s.GetCode(), l.GetRequestsPerUnit(), l.GetUnit(), l.GetName(), s.GetLimitRemaining()))
	}
	return strings.Join(words, "; ")
}

// TestEnvoy sends what Envoy sends to the binary, on both stores.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	ip, path := "remote_address", "path"
	for name, store := range map[string]func(*testing.T) string{
		"memory": func(*testing.T) string { return "memory" },
		"redis":  func(t *testing.T) string { return testserver.StartRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dialEnvoy(t, serve(t, "testdata/envoy.yaml", store(t)))
			for i, step := range []struct {
				hits        uint32
				descriptors []*ratelimitv3.RateLimitDescriptor
				want        string
			}{
				{0, []*ratelimitv3.RateLimitDescriptor{envoy("generic_key", "checkout"), envoy(ip, "10.0.0.1")}, "OK; OK 5/YEAR checkout4; OK 3/YEAR 2"},
				{2, []*ratelimitv3.RateLimitDescriptor{envoy(ip, "10.0.0.1", path, "/login"), envoy(ip, "10.0.0.1", path, "/")}, "OK; OK 2/YEAR 0; OK 0/UNKNOWN 0"},
				{0, []*ratelimitv3.RateLimitDescriptor{envoy("generic_key", "checkout"), envoy(ip, "10.0.0.1", path, "/login")}, "OVER_LIMIT; OK 5/YEAR checkout3; OVER_LIMIT 2/YEAR 0"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 0)}, "OK; OK 5/YEAR checkout3"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 3)}, "OK; OK 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 0)}, "OK; OK 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 40)}, "OVER_LIMIT; OVER_LIMIT 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 0)}, "OVER_LIMIT; OVER_LIMIT 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{refunding(envoy("generic_key", "checkout"), 43)}, "OK; OK 5/YEAR checkout3"},
				{0, []*ratelimitv3.RateLimitDescriptor{refunding(envoy("generic_key", "checkout"), 100)}, "OK; OK 5/YEAR checkout5"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 1<<63)}, "OVER_LIMIT; OVER_LIMIT 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 1<<53-1)}, "OVER_LIMIT; OVER_LIMIT 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("generic_key", "checkout"), 1<<53-1)}, "OVER_LIMIT; OVER_LIMIT 5/YEAR checkout0"},
				{0, []*ratelimitv3.RateLimitDescriptor{overriding(envoy(ip, "10.0.0.1"), 7, typev3.RateLimitUnit_YEAR)}, "OK; OK 7/YEAR 5"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("model", "large"), 60)}, "OK; OK 100/DAY tokens40"},
				{0, []*ratelimitv3.RateLimitDescriptor{charging(envoy("model", "large"), 41), envoy(ip, "10.0.0.2")}, "OVER_LIMIT; OVER_LIMIT 100/DAY tokens0; OK 3/YEAR 2"},
				{0, []*ratelimitv3.RateLimitDescriptor{refunding(envoy("model", "large"), 10), charging(envoy("model", "large"), 0)}, "OK; OK 100/DAY tokens50; OK 100/DAY tokens50"},
			} {
				m, err := shouldRateLimit(t, conn, step.hits, step.descriptors...)
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if got := told(t, m); got != step.want {
					t.Errorf("step %d:\n got %s\nwant %s", i, got, step.want)
				}
			}
			_, err := shouldRateLimit(t, conn, 0, overriding(envoy(ip, "10.0.0.1"), 7, typev3.RateLimitUnit_UNKNOWN))
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("a limit without unit: %v", err)
			}
			exactly(t, conn)
		})
	}
}

// exactly sends more calls at once than fit.
func exactly(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	var passed atomic.Int64
	var left [40]atomic.Int64
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			m, err := shouldRateLimit(t, conn, 0, overriding(envoy("stampede", "1"), 40, typev3.RateLimitUnit_YEAR))
			if err != nil {
				t.Error(err)
			} else if m.GetOverallCode() == rlsv3.RateLimitResponse_OK {
				passed.Add(1)
				left[m.GetStatuses()[0].GetLimitRemaining()].Add(1)
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 40 {
		t.Errorf("%d of 60 passed, want 40", n)
	}
	for i := range left {
		if n := left[i].Load(); n != 1 {
			t.Errorf("%d calls were told that %d remain", n, i)
		}
	}
}

// TestEnvoyAtTheEnd: the health says so, and the process ends well.
func TestEnvoyAtTheEnd(t *testing.T) {
	t.Parallel()
	w := serve(t, "testdata/envoy.yaml", "memory")
	watch, err := healthv1.NewHealthClient(dialEnvoy(t, w)).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("at first: %v %v", m, err)
	}
	w.Stop(syscall.SIGTERM)
	if m, err := watch.Recv(); err == nil && m.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("at the end: %v", m)
	}
	if code := w.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, w.Stderr)
	}
}
