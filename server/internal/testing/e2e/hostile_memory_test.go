package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const (
	// mostResident is the most memory that a server may ever use whose container
	// has memoryLimit.
	mostResident = 150 << 20
	memoryLimit  = "GOMEMLIMIT=256MiB"

	messageBytes = 256 << 10
	floods       = 1000 // messages at once
)

// verbatim sends bytes as they are.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }

func (verbatim) Name() string { return "proto" }

// emptyDescriptors is a message of as many descriptors as fit, with nothing in them.
var emptyDescriptors = bytes.Repeat([]byte{0x12, 0}, messageBytes/2-16)

// pourMessages sends 1000 messages of 131 056 empty descriptors at once. Each is wrong, or was too
// much, or took this machine too long.
func (s *siege) pourMessages(connections int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
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
				err := conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, emptyDescriptors, new(rlsv3.RateLimitResponse))
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
		if code != codes.InvalidArgument && code != codes.ResourceExhausted && code != codes.Unavailable && (code != codes.DeadlineExceeded || !slow) {
			s.t.Errorf("%d answers of %v", got[code], code)
		}
	}
}

// pourBodies posts so many bodies of 87 000 empty descriptors at once.
func (s *siege) pourBodies(path string, bodies int) {
	body := `{"domain":"hostile","descriptors":[` + strings.Repeat("{},", 87_000) + `{}]}`
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	got := map[int]int{}
	var pouring sync.WaitGroup
	for range bodies {
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
		// 429: the other process. 0: what a client goes on sending may take the answer with it.
		if !slices.Contains([]int{http.StatusBadRequest, http.StatusServiceUnavailable, http.StatusTooManyRequests, 0}, status) {
			s.t.Errorf("%d answers of %d", got[status], status)
		}
	}
}
