package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/internal/client"
	"github.com/weirlimit/weir/server/internal/openloop"
)

// driveRLS loads any rate limit service at an address.
func driveRLS(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench rls", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:8081", "`host:port` of the service")
	domain := flags.String("domain", "demo", "of the requests")
	entry := flags.String("entry", "user", "`key` of the only entry of the only descriptor")
	connections := flags.Int("connections", 4, "of gRPC")
	load := loadFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := client.DialRLS(*address, client.Options{Domain: *domain, Entry: *entry, Connections: *connections})
	if err != nil {
		return err
	}
	return load.drive(ctx, l)
}

// driveHTTP loads any HTTP endpoint.
func driveHTTP(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench http", flag.ContinueOnError)
	address := flags.String("url", "http://127.0.0.1:8080/v1/auth?domain=demo&user=", "the `address`, to which a key is appended")
	load := loadFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return load.drive(ctx, client.DialHTTP(*address, client.Options{Connections: load.Callers}))
}

// load is what both have in common.
type load struct {
	openloop.Load
	keys int
}

func loadFlags(flags *flag.FlagSet) *load {
	l := &load{}
	flags.Float64Var(&l.Rate, "rate", 1000, "requests due a second")
	flags.DurationVar(&l.Duration, "duration", 10*time.Second, "how long requests come")
	flags.IntVar(&l.Callers, "callers", 256, "requests under way at once")
	flags.IntVar(&l.keys, "keys", 100_000, "how many keys, drawn uniformly")
	return l
}

func (l *load) drive(ctx context.Context, target contest.Limiter) error {
	if l.keys < 1 {
		return fmt.Errorf("bench: keys: %d; at least 1", l.keys)
	}
	var lastErr error
	failures := make(chan error, 1)
	l.Ask = func(ctx context.Context, _ int) openloop.Outcome {
		ok, err := target.Allow(ctx, fmt.Sprint("k", rand.IntN(l.keys)))
		switch {
		case err != nil:
			select {
			case failures <- err:
			default: // the first one will do
			}
			return openloop.Failed
		case ok:
			return openloop.Granted
		}
		return openloop.Refused
	}
	l.Progress = func(r openloop.Report) { fmt.Fprintln(os.Stderr, line(r)) }
	report, err := l.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Println(line(report))
	select {
	case lastErr = <-failures:
	default:
	}
	if err := target.Close(); lastErr == nil {
		lastErr = err
	}
	return lastErr
}

func line(r openloop.Report) string {
	at := func(q float64) time.Duration {
		return time.Duration(r.Latency.ValueAtQuantile(q)).Round(time.Microsecond)
	}
	return fmt.Sprintf("%6.1fs  %8.0f/s  granted %d  refused %d  failed %d  p50 %v  p99 %v  p99.9 %v  max %v",
		r.Elapsed.Seconds(), float64(r.Requests())/r.Elapsed.Seconds(), r.Granted, r.Refused, r.Failed,
		at(50), at(99), at(99.9), time.Duration(r.Latency.Max()).Round(time.Microsecond))
}
