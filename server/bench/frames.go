package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir/server/bench/wire"
	"github.com/weirlimit/weir/server/internal/cputime"
)

const shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// driveFrames loads any rate limit service as fast as it answers, from bare frames.
func driveFrames(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench frames", flag.ContinueOnError)
	l := wire.Load{Method: shouldRateLimit}
	flags.StringVar(&l.Address, "address", "127.0.0.1:8081", "`host:port` of the service")
	flags.IntVar(&l.Connections, "connections", 2, "of HTTP/2")
	flags.IntVar(&l.InFlight, "in-flight", 256, "calls on all connections")
	flags.DurationVar(&l.Duration, "duration", 3*time.Second, "how long to call")
	flags.StringVar(&l.Token, "token", "", "to send as Bearer")
	domain := flags.String("domain", "demo", "of the requests")
	entry := flags.String("entry", "user", "`key` of the only entry of the only descriptor")
	keys := flags.Int("keys", 100_000, "how many keys, drawn uniformly")
	pid := flags.Int("pid", 0, "process whose CPU time to report")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *keys < 1 || l.Connections < 1 || l.InFlight < 1 {
		return fmt.Errorf("bench: keys, connections and calls in flight: at least 1")
	}
	l.Message = func(buf []byte, _ int) []byte { return request(buf, *domain, *entry, rand.IntN(*keys)) }
	before, err := cpu(*pid)
	if err != nil {
		return err
	}
	report, err := l.Run(ctx)
	if err != nil {
		return err
	}
	after, err := cpu(*pid)
	if err != nil {
		return err
	}
	fmt.Printf("%8.0f/s  failed %d  p50 %v  p99 %v", report.Rate(), report.Failed, report.P50.Round(time.Microsecond), report.P99.Round(time.Microsecond))
	if *pid != 0 && report.Calls > 0 {
		fmt.Printf("  server CPU %.2f µs/call", float64((after-before).Nanoseconds())/1000/float64(report.Calls))
	}
	fmt.Println()
	return nil
}

func cpu(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	return cputime.Of(pid)
}

// request is an encoded RateLimitRequest with one descriptor of one entry.
func request(buf []byte, domain, entry string, key int) []byte {
	value := fmt.Append(nil, "k", key)
	inner := 2 + len(entry) + 2 + len(value) // each below 128 bytes
	buf = append(append(buf, 0x0a, byte(len(domain))), domain...)
	buf = binary.AppendUvarint(append(buf, 0x12), uint64(inner+2))
	buf = binary.AppendUvarint(append(buf, 0x0a), uint64(inner))
	buf = append(append(buf, 0x0a, byte(len(entry))), entry...)
	return append(append(buf, 0x12, byte(len(value))), value...)
}
