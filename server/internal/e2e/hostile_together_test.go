package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestHostileTogether lets slow connections, endless bodies, calls with ten thousand
// descriptors and with a hundred thousand empty ones, and calls that are reset attack at
// once. Others are answered all the
// while, and nothing is charged. How long others wait, "-args -full" prints.
func TestHostileTogether(t *testing.T) {
	s := besiege(t)
	size := struct{ drips, bodies, calls, resets int }{drips / 5, bodies / 4, 5, resets / 10}
	if *full {
		size.drips, size.bodies, size.calls, size.resets = drips, bodies, 100, resets
	}
	calm := s.measure(2*time.Second, func() {})
	before := s.memory()
	attacked := s.measure(0, func() {
		var attacks sync.WaitGroup
		attacks.Go(func() { s.drip(size.drips) })
		attacks.Go(func() { s.flood(size.bodies) })
		attacks.Go(func() { s.reset(size.resets) })
		attacks.Go(func() { s.overload(size.calls) })
		attacks.Go(func() { s.pourMessages(4, "", emptyDescriptors, codes.InvalidArgument) })
		attacks.Wait()
	})
	grown := s.memory() - before
	t.Logf("%d drips, %d bodies, %d calls of 10 000 descriptors, %d resets: p99 of others %v, before %v; %d and %d of them; grown by %d MiB",
		size.drips, size.bodies, size.calls, size.resets, p99(attacked), p99(calm), len(attacked), len(calm), grown>>20)
	if *full {
		fmt.Printf("hostile clients at once: p99 of others %v, before %v; resident set grown by %d MiB\n", p99(attacked), p99(calm), grown>>20)
	}
	if grown > mostGrowth {
		t.Errorf("the process grew by %d MiB", grown>>20)
	}
	s.uncharged()
}

// measure is how long another client waits for its answers during an attack, for so
// long at least.
func (s *siege) measure(least time.Duration, attack func()) []time.Duration {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(least)
		defer timer.Stop()
		attack()
		<-timer.C
	}()
	var took []time.Duration
	for {
		began := time.Now()
		s.bystander()
		took = append(took, time.Since(began))
		select {
		case <-ended:
			return took
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func p99(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)*99/100].Round(10 * time.Microsecond)
}

// overload asks with ten thousand descriptors, so often.
func (s *siege) overload(calls int) {
	client := rlsv3.NewRateLimitServiceClient(dialEnvoy(s.t, s.weir))
	request := &rlsv3.RateLimitRequest{Domain: "hostile", Descriptors: repeat(10_000, envoy("victim", "1"))}
	for range calls {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		_, err := client.ShouldRateLimit(ctx, request)
		cancel()
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted && code != codes.Unavailable {
			s.t.Errorf("10 000 descriptors: %v", err)
		}
	}
}
