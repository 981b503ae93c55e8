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
// once. Others are answered all the while, nothing is charged, and the process stays within
// its memory.
//
// With "-args -full" it also judges how long others wait. Attackers, others and server
// share the machine, so attacks slow everything down that runs on it, whatever they aim
// at. The control is the same attack on another process, which does nothing but refuse:
// beside attacks on Weir, others may wait three times as long for Weir as beside those. On
// a machine that is too busy to answer them in time without attacks, nothing is judged.
func TestHostileTogether(t *testing.T) {
	t.Parallel()
	s := &siege{t: t, client: newClient(t), weir: serveWith(t, []string{memoryLimit}, "testdata/hostile.yaml", "memory")}
	size, rounds := together{drips / 5, bodies / 4, 5, resets / 10}, 1
	if *full {
		size, rounds = together{drips, bodies, 100, resets}, 5
	}
	control := &siege{t: t, client: s.client, weir: startSink(t)}
	calm := p99(s.measure(2*time.Second, func() {}))
	var beside, under []time.Duration
	for range rounds {
		beside = append(beside, p99(s.measure(0, func() { control.attack(size) })))
		under = append(under, p99(s.measure(0, func() { s.attack(size) })))
	}
	most := s.memory()
	report := fmt.Sprintf("%+v: p99 of others %v, beside the same attacks on another process %v, without attacks %v; resident at most %d MiB",
		size, median(under), median(beside), calm, most>>20)
	t.Log(report, under, beside)
	if *full {
		fmt.Println("hostile clients at once:", report)
		if median(under) > 3*median(beside) && calm < busy {
			t.Error("others waited more than three times as long")
		}
	}
	if most > mostResident {
		t.Errorf("the process used %d MiB", most>>20)
	}
	s.uncharged()
}

// busy is a p99 without attacks that says that the machine has no time for the test.
const busy = 3 * time.Millisecond

// together is how much of each attack is made at once.
type together struct{ drips, bodies, calls, resets int }

// attack makes all attacks at once.
func (s *siege) attack(size together) {
	var attacks sync.WaitGroup
	attacks.Go(func() { s.drip(size.drips) })
	attacks.Go(func() { s.flood(size.bodies) })
	attacks.Go(func() { s.reset(size.resets) })
	attacks.Go(func() { s.overload(size.calls) })
	attacks.Go(func() { s.pourMessages(4, "", emptyDescriptors, codes.InvalidArgument) })
	attacks.Wait()
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

func median(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)/2]
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
