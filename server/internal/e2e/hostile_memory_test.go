package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// mostResident is the most memory that a server may ever use whose container
	// has memoryLimit.
	mostResident = 150 << 20
	memoryLimit  = "GOMEMLIMIT=256MiB"

	messageBytes = 256 << 10
	floods       = 1000 // messages at once
	siegeToken   = "a-token-of-the-siege"
)

// confine starts a server with little memory, whose callers need a token.
func confine(t *testing.T, more ...string) *siege {
	t.Helper()
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(siegeToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// GOGC as a program has it that is not told its memory: half of it is garbage.
	w := serveWith(t, []string{memoryLimit, "GOGC=100"}, "testdata/hostile.yaml", "memory", append(more, "--grpc-token-file", file)...)
	return &siege{t: t, client: newClient(t), weir: w}
}

// withstand runs an attack. Meanwhile other clients are answered, over HTTP and gRPC, and
// the process stays within its memory. Their connections are older than the attack: beside
// a thousand attackers in its own process, a client that connects can take longer to send
// its first bytes than a server waits for them.
func (s *siege) withstand(attack func()) {
	s.t.Helper()
	ask := s.asker()
	ask()
	before := s.memory()
	ended := make(chan struct{})
	var bystanding sync.WaitGroup
	bystanding.Go(func() {
		for {
			ask()
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	attack()
	close(ended)
	bystanding.Wait()
	after := s.memory()
	s.t.Logf("resident before %d MiB, most %d MiB", before>>20, after>>20)
	if after > mostResident {
		s.t.Errorf("the process used %d MiB", after>>20)
	}
	select {
	case <-s.Exited:
		s.t.Error("the process ended")
	default:
	}
	s.bystander()
}

// asker returns a function that asks over HTTP and, on a connection of its own, over gRPC.
func (s *siege) asker() func() {
	client := rlsv3.NewRateLimitServiceClient(dialEnvoy(s.t, s.weir))
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), "authorization", "Bearer "+siegeToken)
	question := &rlsv3.RateLimitRequest{Domain: "hostile", Descriptors: []*ratelimitv3.RateLimitDescriptor{envoy("free", "2")}}
	return func() {
		s.bystander()
		if answer, err := client.ShouldRateLimit(ctx, question); err != nil || answer.GetOverallCode() != rlsv3.RateLimitResponse_OK {
			s.t.Errorf("another client of gRPC: %v, %v", answer, err)
		}
	}
}

// verbatim sends bytes as they are.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }

func (verbatim) Name() string { return "proto" }

// emptyDescriptors is a message of as many descriptors as fit, with nothing in them.
var emptyDescriptors = bytes.Repeat([]byte{0x12, 0}, messageBytes/2-16)

// TestHostileEmptyDescriptors sends 1000 messages of 131 056 empty descriptors at once,
// on one connection and on many, by those who know the token and those who do not.
func TestHostileEmptyDescriptors(t *testing.T) {
	for _, connections := range []int{1, 100} {
		for token, want := range map[string]codes.Code{"": codes.Unauthenticated, siegeToken: codes.InvalidArgument} {
			t.Run(fmt.Sprintf("%d connections, token %q", connections, token), func(t *testing.T) {
				s := confine(t)
				s.withstand(func() { s.pourMessages(connections, token, emptyDescriptors, want) })
			})
		}
	}
}

// pourMessages sends 1000 messages at once. Each is answered with a code, or was too much, or
// took this machine too long.
func (s *siege) pourMessages(connections int, token string, message []byte, want codes.Code) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	var mu sync.Mutex
	got := map[codes.Code]int{}
	begun := time.Now()
	var pouring sync.WaitGroup
	for range connections {
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(verbatim{})),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: patience, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 100 * time.Millisecond}}))
		if err != nil {
			s.t.Fatal(err)
		}
		defer conn.Close()
		for range floods / connections {
			pouring.Go(func() {
				err := conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, message, new(rlsv3.RateLimitResponse))
				mu.Lock()
				defer mu.Unlock()
				got[status.Code(err)]++
			})
		}
	}
	pouring.Wait()
	s.t.Logf("answers: %v", got)
	const arrival = 5 * time.Second // what the server gives a message
	slow := time.Since(begun) > arrival
	for code := range got {
		if code != want && code != codes.ResourceExhausted && code != codes.Unavailable && (code != codes.DeadlineExceeded || !slow) {
			s.t.Errorf("%d answers of %v", got[code], code)
		}
	}
}

// TestHostileEmptyObjects posts 1000 bodies of 87 000 empty descriptors at once.
func TestHostileEmptyObjects(t *testing.T) {
	for _, path := range []string{"/json", "/v1/take"} {
		t.Run(path, func(t *testing.T) {
			s := confine(t)
			body := `{"domain":"hostile","descriptors":[` + strings.Repeat("{},", 87_000) + `{}]}`
			s.withstand(func() { s.pourBodies(path, body) })
		})
	}
}

func (s *siege) pourBodies(path, body string) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	got := map[int]int{}
	var pouring sync.WaitGroup
	for range floods {
		pouring.Go(func() {
			status := 0
			r, err := client.Post(s.url()+path, "application/json", strings.NewReader(body))
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
				status = r.StatusCode
			}
			mu.Lock()
			defer mu.Unlock()
			got[status]++
		})
	}
	pouring.Wait()
	s.t.Logf("answers: %v", got)
	for status := range got {
		// 0: what a client goes on sending may take the answer with it.
		if status != http.StatusBadRequest && status != http.StatusServiceUnavailable && status != 0 {
			s.t.Errorf("%d answers of %d", got[status], status)
		}
	}
}
