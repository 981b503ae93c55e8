package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Builtin returns the scenarios that come along, ready to run or to be changed.
func Builtin() []Scenario {
	minute := weir.PerMinute(100)
	return []Scenario{
		{
			Name: "edge-burst", Summary: "1000 a minute; 1000 requests before the edge of a window, 1000 after it",
			Limit: weir.PerMinute(1000), Algorithms: windows(), Pattern: Edge, Keys: 1, Duration: 4 * time.Minute,
		},
		{
			Name: "steady", Summary: "100 a minute; one client sends a little more than that, evenly",
			Limit: minute, Algorithms: Counting(), Pattern: Steady, Rate: 2, Keys: 1, Duration: 10 * time.Minute,
		},
		{
			Name: "poisson", Summary: "100 a minute each; 50 clients at 90 % of their limits, at random",
			Limit: minute, Algorithms: Counting(), Pattern: Poisson, Rate: 75, Keys: 50, Duration: 10 * time.Minute,
		},
		{
			Name: "diurnal", Summary: "100 an hour each; two days of 20 clients, quiet at night and over the limit at noon",
			Limit: weir.PerHour(100), Algorithms: Counting(), Pattern: Diurnal, Rate: 0.5, Keys: 20, Duration: 48 * time.Hour,
		},
		{
			Name: "retry-storm", Summary: "a spike at 20 a second; refused clients retry at once",
			Limit: weir.PerSecond(20), Algorithms: windows(), Pattern: Spike, Retry: RetryAtOnce, Rate: 18, Keys: 1, Clients: 200, Duration: 2 * time.Minute,
		},
		{
			Name: "retry-after", Summary: "the same spike; refused clients all wait exactly as long as the refusal says",
			Limit: weir.PerSecond(20), Algorithms: windows(), Pattern: Spike, Retry: RetryAfter, Rate: 18, Keys: 1, Clients: 200, Duration: 2 * time.Minute,
		},
		{
			Name: "retry-backoff", Summary: "the same spike; refused clients wait for a random time whose bound doubles",
			Limit: weir.PerSecond(20), Algorithms: windows(), Pattern: Spike, Retry: RetryBackoff, Rate: 18, Keys: 1, Clients: 200, Duration: 2 * time.Minute,
		},
		{
			Name: "abuser-shared", Summary: "one budget for all; one of 50 clients sends half of all requests",
			Limit: weir.PerSecond(100), Algorithms: windows(), Pattern: Abuser, Rate: 180, Keys: 1, Clients: 50, Duration: time.Minute,
		},
		{
			Name: "abuser", Summary: "the same client, but each client has its own budget",
			Limit: weir.PerSecond(2), Algorithms: windows(), Pattern: Abuser, Rate: 180, Keys: 50, Duration: time.Minute,
		},
		{
			Name: "local-shares", Summary: "100 a minute on 4 instances that share nothing but the count",
			Limit: minute, Algorithms: windows(), Pattern: Poisson, Rate: 2, Keys: 1, Duration: 10 * time.Minute,
			Instances: 4, LocalShares: true,
		},
		{
			Name: "outage", Summary: "100 a minute on 4 instances; the store is unreachable for two minutes, each grants its local share",
			Limit: minute, Algorithms: windows(), Pattern: Poisson, Rate: 3, Keys: 1, Duration: 8 * time.Minute, Instances: 4,
			Faults: []Fault{{Kind: Outage, At: 3 * time.Minute, Length: 2 * time.Minute, Policy: LocalShare}},
		},
		{
			Name: "failover", Summary: "100 a minute; a replica takes over that lacks the last 20 s",
			Limit: minute, Algorithms: windows(), Pattern: Poisson, Rate: 3, Keys: 1, Duration: 8 * time.Minute,
			Faults: []Fault{{Kind: Failover, At: 4*time.Minute + 30*time.Second, Length: 20 * time.Second}},
		},
	}
}

// windows are the algorithms that people choose between.
func windows() []weir.Algorithm {
	return []weir.Algorithm{weir.FixedWindow, weir.SlidingLog, weir.SlidingCounter, weir.GCRA}
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, error) {
	var names []string
	for _, s := range Builtin() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	names = append(names, Sharing)
	return Scenario{}, invalid("scenario", fmt.Sprintf("%q", name), "one of "+strings.Join(names, ", "))
}
