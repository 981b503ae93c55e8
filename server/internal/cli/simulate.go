package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/lab/sim"
)

// simulateFlags are the flags of weir simulate.
type simulateFlags struct {
	limit, pattern, retry string
	algorithms, faults    []string
	rate                  float64
	keys, clients         int
	instances             int
	localShares           bool
	duration              time.Duration
	seed                  uint64
	output                reportFlags
}

func newSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [SCENARIO]",
		Short: "Simulate traffic against limits, and plot the outcome",
		Long: `Simulate sends traffic against a limit in virtual time, with several algorithms side
by side. The server's own code decides. The same scenario and seed give the same
result.

Without a scenario, give a --limit; the traffic is then random, a fifth above the
limit. Flags change a scenario's settings.

Scenarios:
` + scenarioList() + `
Patterns: ` + sim.PatternNames() + `.
Retries: ` + sim.RetryNames() + `.`,
		Example: `  # 1000 requests just before a minute ends, 1000 just after
  weir simulate edge-burst --svg edge.svg

  # your own limit, at twice its rate
  weir simulate --limit '100/min burst 20' --algorithms gcra,fixed_window --rate 3.3

  # three instances, and a store outage of ten seconds
  weir simulate --limit 50/s --rate 80 --instances 3 --fault 'outage 30s+10s local'`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: scenarioNames(),
		RunE:      func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.limit, "limit", "", `the limit, such as "100/min burst 20"`)
	flags.StringSliceVar(&f.algorithms, "algorithms", nil, "algorithms to compare: "+algorithmNames())
	flags.StringVar(&f.pattern, "pattern", "", "pattern of arrivals: "+sim.PatternNames())
	flags.StringVar(&f.retry, "retry", "", "how refused clients retry: "+sim.RetryNames())
	flags.Float64Var(&f.rate, "rate", 0, "requests per second, of all clients together")
	flags.IntVar(&f.keys, "keys", 0, "number of keys")
	flags.IntVar(&f.clients, "clients", 0, "number of clients that share the keys (default: one for each key)")
	flags.DurationVar(&f.duration, "duration", 0, "duration of the traffic")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the random numbers")
	flags.IntVar(&f.instances, "instances", 0, "number of instances of the limiter")
	flags.BoolVar(&f.localShares, "local-shares", false, "give each instance a fixed share of the limit, in its own memory")
	flags.StringArrayVar(&f.faults, "fault", nil, `fault of the store: "outage 30s+10s allow" (or deny, local), "failover 60s-5s"`)
	f.output.define(flags)
	return cmd
}

func scenarioNames() []string {
	names := []string{sim.Sharing}
	for _, s := range sim.Builtin() {
		names = append(names, s.Name)
	}
	return names
}

func scenarioList() string {
	var b strings.Builder
	for _, s := range sim.Builtin() {
		fmt.Fprintf(&b, "  %-14s %s\n", s.Name, s.Summary)
	}
	fmt.Fprintf(&b, "  %-14s %s\n", sim.Sharing, sim.SharingSummary)
	return b.String()
}

func algorithmNames() string {
	var names []string
	for _, a := range sim.Counting() {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

func (f *simulateFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.output.check(); err != nil {
		return err
	}
	if len(args) == 0 && f.limit == "" {
		return errors.New("simulate needs a scenario or --limit; see 'weir simulate --help'")
	}
	if len(args) > 0 && args[0] == sim.Sharing {
		return f.runSharing(cmd)
	}
	s, err := f.scenario(cmd, args)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	result, err := play(ctx, s, cmd.ErrOrStderr())
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	return f.output.write(cmd.OutOrStdout(), result.Page(), result)
}

// runSharing plays the scenario that has no settings.
func (f *simulateFlags) runSharing(cmd *cobra.Command) error {
	for _, name := range []string{"limit", "algorithms", "pattern", "retry", "rate", "keys", "clients", "duration", "seed", "instances", "local-shares", "fault"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("simulate %s has no --%s: its classes and their budget are fixed", sim.Sharing, name)
		}
	}
	result, err := sim.RunSharing(cmd.Context())
	if err != nil {
		return err
	}
	return f.output.write(cmd.OutOrStdout(), result.Page(), result)
}

func play(ctx context.Context, s sim.Scenario, errOut io.Writer) (*sim.Result, error) {
	line := newProgress(errOut)
	defer line.end()
	return s.Run(ctx, func(done, expected int64) {
		line.show(func() string {
			return fmt.Sprintf("%s of about %s requests", report.Count(done), report.Count(expected))
		})
	})
}

// scenario is the one that was named, with what the flags change.
func (f *simulateFlags) scenario(cmd *cobra.Command, args []string) (sim.Scenario, error) {
	var s sim.Scenario
	var err error
	if len(args) > 0 {
		if s, err = sim.Find(args[0]); err != nil {
			if meant := config.Nearest(args[0], scenarioNames()); meant != "" {
				err = fmt.Errorf("%w; did you mean %q?", err, meant)
			}
			return s, err
		}
	}
	if f.limit != "" {
		if s.Limit, err = weir.ParseLimit(f.limit); err != nil {
			return s, err
		}
	}
	if len(args) == 0 {
		s = overloaded(s.Limit)
	}
	if err := f.parse(&s); err != nil {
		return s, err
	}
	changed := cmd.Flags().Changed
	set(changed("rate"), &s.Rate, f.rate)
	set(changed("keys"), &s.Keys, f.keys)
	set(changed("clients"), &s.Clients, f.clients)
	set(changed("duration"), &s.Duration, f.duration)
	set(changed("instances"), &s.Instances, f.instances)
	set(changed("local-shares"), &s.LocalShares, f.localShares)
	s.Seed = f.seed
	return s, nil
}

// overloaded is random traffic a fifth above a limit.
func overloaded(l weir.Limit) sim.Scenario {
	return sim.Scenario{
		Limit: l, Algorithms: sim.Counting(), Pattern: sim.Poisson, Keys: 1,
		Rate: 1.2 * float64(max(1, l.Count)) / l.Period.Seconds(), Duration: max(10*l.Period, time.Second),
	}
}

func set[T any](given bool, to *T, value T) {
	if given {
		*to = value
	}
}

// parse reads the flags that have a form of their own.
func (f *simulateFlags) parse(s *sim.Scenario) error {
	var err error
	if len(f.algorithms) > 0 {
		s.Algorithms = nil
	}
	for _, name := range f.algorithms {
		a, err := weir.ParseAlgorithm(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		s.Algorithms = append(s.Algorithms, a)
	}
	if f.pattern != "" {
		if s.Pattern, err = sim.ParsePattern(f.pattern); err != nil {
			return err
		}
	}
	if f.retry != "" {
		if s.Retry, err = sim.ParseRetry(f.retry); err != nil {
			return err
		}
	}
	if len(f.faults) > 0 {
		s.Faults = nil
	}
	for _, text := range f.faults {
		fault, err := sim.ParseFault(text)
		if err != nil {
			return err
		}
		s.Faults = append(s.Faults, fault)
	}
	return nil
}

// marshal writes indented JSON.
func marshal(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
