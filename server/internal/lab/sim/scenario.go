package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Bounds of a scenario.
const (
	// MaxEvents is how many requests a scenario may offer to one algorithm,
	// retries aside.
	MaxEvents = 1_000_000_000
	// MaxKeys is how many budgets or clients it may have.
	MaxKeys = 1_000_000
	// MaxInstances is how many instances may serve it.
	MaxInstances = 1000
	// maxTracked is how many grants of the last period may be remembered.
	maxTracked = 50_000_000
	minLength  = time.Millisecond
	maxLength  = 366 * 24 * time.Hour
)

// A Scenario is traffic, and the limit that it meets. The zero value is not
// valid; [Builtin] has some that are.
type Scenario struct {
	// Name and Summary describe the scenario, in a word and in a line.
	Name, Summary string
	// Limit is the rule. Each of the Algorithms is given it in turn, less those
	// options that only others have.
	Limit      weir.Limit
	Algorithms []weir.Algorithm
	Pattern    Pattern
	Retry      Retry
	// Rate is how many requests arrive a second, from all clients together, on
	// average. [Edge] has none: its bursts are as large as the limit's count.
	Rate float64
	// Keys is how many budgets there are; client i has number i modulo Keys.
	Keys int
	// Clients is how many clients share them. 0: as many as there are keys.
	Clients  int
	Duration time.Duration
	// Seed determines all random choices: the same seed gives the same result.
	Seed uint64
	// Instances is how many instances of the limiter serve the clients, each
	// request at a random one. 0: one.
	Instances int
	// LocalShares gives each instance a budget of its own, its share of the
	// limit, instead of one that all share.
	LocalShares bool
	// Faults are the faults of the store, in the order of their instants and not
	// overlapping.
	Faults []Fault
}

// check returns a [*weir.InvalidError] for a scenario that cannot be simulated.
func (s *Scenario) check() error {
	switch {
	case len(s.Algorithms) == 0:
		return invalid("algorithms", "empty", "at least one of "+algo.Names())
	case s.Pattern >= patterns:
		return invalid("pattern", s.Pattern, "one of "+PatternNames())
	case s.Retry >= retries:
		return invalid("retry", s.Retry, "one of "+RetryNames())
	case s.Keys < 1 || s.Keys > MaxKeys:
		return invalid("keys", s.Keys, fmt.Sprintf("1 … %d", MaxKeys))
	case s.Clients < 0 || s.Clients > MaxKeys:
		return invalid("clients", s.Clients, fmt.Sprintf("1 … %d, or 0 for one a key", MaxKeys))
	case s.Clients != 0 && s.Clients < s.Keys:
		return invalid("clients", s.Clients, fmt.Sprintf("at least the %d keys", s.Keys))
	case s.Duration < minLength || s.Duration > maxLength:
		return invalid("duration", s.Duration, fmt.Sprintf("%v … %v", minLength, maxLength))
	case s.Instances < 0 || s.Instances > MaxInstances:
		return invalid("instances", s.Instances, fmt.Sprintf("1 … %d, or 0 for one", MaxInstances))
	case s.LocalShares && len(s.Faults) > 0:
		return invalid("faults", len(s.Faults), "none: local shares have no store that could fail")
	}
	if err := s.checkSize(); err != nil {
		return err
	}
	return checkFaults(s.Faults, s.Duration)
}

// checkSize keeps the work and the memory within bounds.
func (s *Scenario) checkSize() error {
	if s.Pattern != Edge && !(s.Rate > 0 && s.Rate <= MaxEvents) {
		return invalid("rate", s.Rate, fmt.Sprintf("requests a second, more than 0, at most %d", MaxEvents))
	}
	if s.Pattern == Edge && s.Duration < 2*s.Limit.Period {
		return invalid("duration", s.Duration, fmt.Sprintf("at least two periods, %v, for the pattern edge", 2*s.Limit.Period))
	}
	if n := s.expected(); n > MaxEvents {
		return invalid("rate", fmt.Sprintf("%.3g requests in %v", n, s.Duration), fmt.Sprintf("at most %d", MaxEvents))
	}
	perKey := float64(2*s.Limit.Count + s.Limit.Burst)
	tracked := math.Min(s.expected()*math.Min(1, float64(s.Limit.Period)/float64(s.Duration)), float64(s.Keys)*perKey)
	if tracked > maxTracked {
		return invalid("keys", fmt.Sprintf("%d, granted %.3g a period together", s.Keys, tracked),
			fmt.Sprintf("at most %d grants a period", maxTracked))
	}
	return nil
}

// expected is how many requests the scenario offers, retries aside, about.
func (s *Scenario) expected() float64 {
	if s.Pattern == Edge {
		return 2 * float64(s.clients()) * float64(s.Limit.Count)
	}
	return s.Rate * s.Duration.Seconds()
}

func (s *Scenario) clients() int { return max(s.Keys, s.Clients) }

func (s *Scenario) instances() int { return max(1, s.Instances) }

// limit is the scenario's limit under one of its algorithms.
func (s *Scenario) limit(algorithm weir.Algorithm) (weir.Limit, error) {
	l := s.Limit
	traits := algo.TraitsOf(algorithm)
	if traits.HoldsSlots {
		return l, invalid("algorithms", algorithm, "those that count units: requests of a simulation take no time")
	}
	l.Algorithm = algorithm
	if !traits.Bursts {
		l.Burst = 0
	}
	if !traits.Buckets {
		l.Buckets = 0
	}
	if !traits.Calendars {
		l.Anchor, l.TimeZone, l.AnchorDay = weir.AnchorEpoch, "", 0
	}
	_, err := l.Compile()
	return l, err
}

// Counting returns the algorithms that a scenario can have.
func Counting() []weir.Algorithm {
	var all []weir.Algorithm
	for i := range algo.Steps {
		if !algo.Steps[i].HoldsSlots {
			all = append(all, weir.Algorithm(i))
		}
	}
	return all
}

func invalid(field string, value any, want string) error {
	return &weir.InvalidError{Field: field, Value: fmt.Sprint(value), Want: want}
}

// named finds a name's place in a list of them.
func named(field, name string, names []string) (int, error) {
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	return 0, invalid(field, fmt.Sprintf("%q", name), "one of "+strings.Join(names, ", "))
}
