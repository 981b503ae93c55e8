// Command bench measures Weir and other limiters side by side, in one run and against one
// Redis, and writes the results into docs/contributing/benchmarks.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/bench/measure"
	"github.com/weirlimit/weir/server/bench/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New(`usage:
  bench run [flags]      measure; -help lists the flags
  bench report [flags]   write the tables of a run into a document
  bench calls [flags]    count the functions that a request calls`)

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "run":
		return run(ctx, args[1:])
	case "report":
		return report(args[1:])
	case "calls":
		return calls(ctx, args[1:])
	case "empty": // what run starts beside weir serve
		return remote.ServeEmpty(ctx)
	}
	return errUsage
}

// settings are the flags of a run.
type settings struct {
	short bool
	only  *regexp.Regexp
	out   string
	plan  measure.Plan
}

func run(ctx context.Context, args []string) error {
	var s settings
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	flags.BoolVar(&s.short, "short", false, "two minutes: fewer callers, rounds and keys")
	only := flags.String("only", "", "run the scenarios whose names match this `expression`")
	flags.StringVar(&s.out, "out", "", "write what was measured to this `file`, as JSON")
	flags.IntVar(&s.plan.Rounds, "rounds", 5, "measured rounds of each contestant")
	flags.DurationVar(&s.plan.Duration, "duration", 400*time.Millisecond, "of one round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	s.plan.Progress = func(what string) { fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), what) }
	if s.short {
		s.plan.Rounds, s.plan.Duration = 3, 200*time.Millisecond
	}
	r, err := s.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Print(r.markdown())
	if s.out == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.out, append(data, '\n'), 0o644)
}

// measure does all of it.
func (s *settings) measure(ctx context.Context) (*results, error) {
	redis, err := measure.StartRedis()
	if err != nil {
		return nil, err
	}
	defer redis.Stop()
	r := &results{Machine: machine(redis)}
	for _, step := range []func(context.Context, *results, *measure.Redis) error{
		s.redisRows, s.memoryRows, s.exactness, s.sizes, s.growth, s.serverRows,
	} {
		if err := step(ctx, r, redis); err != nil {
			return nil, err
		}
		if err := redis.Clear(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// contestants are those of a kind, Weir's first.
func contestants(kind contest.Kind) []contest.Contestant {
	var all []contest.Contestant
	for _, c := range append(append([]contest.Contestant{}, contest.Weir...), append(contest.RedisPeers, contest.MemoryPeers...)...) {
		if c.Kind == kind {
			all = append(all, c)
		}
	}
	return all
}
