package weir

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// Algorithm is how a limit counts. The zero value is [GCRA].
type Algorithm uint8

// The algorithms. N is the limit's Count, T its Period, B its Burst; docs/algorithms.md
// has their rules, guarantees and costs.
const (
	// GCRA drains continuously: at most B + N in any interval of T.
	GCRA = Algorithm(algo.GCRA)
	// FixedWindow counts in windows of T: at most N in each.
	FixedWindow = Algorithm(algo.FixedWindow)
	// SlidingLog remembers every instant: at most N in any interval of T.
	SlidingLog = Algorithm(algo.SlidingLog)
	// RollingWindow counts in Buckets+1 counters: at most N in any interval of
	// T, refusing one bucket early at worst.
	RollingWindow = Algorithm(algo.RollingWindow)
	// TokenBucket adds N tokens at once every T to a bucket of B.
	TokenBucket = Algorithm(algo.TokenBucket)
	// SlidingCounter weighs the last window of T by the part of it that is still
	// less than T ago: less than 2N in any interval of T, N where arrivals are
	// even.
	SlidingCounter = Algorithm(algo.SlidingCounter)
	// LeakyBucket queues up to B units and lets them out at N per T: a grant
	// carries the delay after which it may be used.
	LeakyBucket = Algorithm(algo.LeakyBucket)
	// Concurrency lets N holders in at a time, each with a lease of T.
	Concurrency = Algorithm(algo.Concurrency)
)

// Traits are what an algorithm can do and what it asks of its limits.
type Traits = algo.Traits

// Traits returns those of the algorithm, none for a number that names no algorithm.
func (a Algorithm) Traits() Traits {
	if int(a) < len(algo.Steps) {
		return algo.Steps[a].Traits
	}
	return Traits{}
}

// Doc says in one line what the algorithm grants.
func (a Algorithm) Doc() string {
	if int(a) < len(algo.Steps) {
		return algo.Steps[a].Doc
	}
	return ""
}

// Algorithms returns all algorithms, in the order of their numbers.
func Algorithms() []Algorithm {
	all := make([]Algorithm, len(algo.Steps))
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// String returns the algorithm's name in YAML, JSON, logs and metrics.
func (a Algorithm) String() string {
	if int(a) < len(algo.Steps) {
		return algo.Steps[a].Name
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm of that name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i := range algo.Steps {
		if algo.Steps[i].Name == name {
			return Algorithm(i), nil
		}
	}
	return 0, invalid("algorithm", fmt.Sprintf("%q", name), "one of "+AlgorithmNames())
}

// AlgorithmNames lists the names of all algorithms, for messages.
func AlgorithmNames() string {
	var names []string
	for i := range algo.Steps {
		names = append(names, algo.Steps[i].Name)
	}
	return strings.Join(names, ", ")
}

// Anchor is where the windows of [FixedWindow] begin.
type Anchor uint8

const (
	// AnchorEpoch aligns windows to 1970-01-01 00:00 UTC. The zero value.
	AnchorEpoch Anchor = iota
	// AnchorFirst opens a window with the first charge after the last window.
	AnchorFirst
)

// A Limit is a rule: Count units per Period in the long run. It is a plain value
// until [Limit.Compile] makes it ready for a [Charge]; the zero value is not
// valid. Charges must not change a compiled limit.
type Limit struct {
	// Name identifies the limit in headers and answers, and is part of the keys of a
	// [Limiter]: another name is another budget. Empty: the limit's text form in answers,
	// and in keys its place among several limits.
	Name string
	// Algorithm is how the limit counts. Zero: [GCRA].
	Algorithm Algorithm
	// Count is N, 0 … 1 000 000 000. 0 refuses everything.
	Count int64
	// Period is T, 1 ms … 366 days, in whole milliseconds.
	Period time.Duration
	// Burst is B, the most that a fresh key can be charged at one instant,
	// 1 … 1 000 000 000. Zero: Count. Only for gcra, for token_bucket, where it
	// is the capacity, and for leaky_bucket, where it is the queue.
	Burst int64
	// Buckets is how many buckets a rolling_window has, 2 … 3600. Zero: 60.
	Buckets int
	// Anchor is where the windows of a fixed_window begin.
	Anchor Anchor
	// TimeZone, an IANA name such as "Europe/Paris", turns the windows of a
	// fixed_window into calendar windows there; the Period is one of 24h, 168h,
	// 720h and 8760h then, for a day, a week from Monday, a month and a year.
	TimeZone string
	// AnchorDay is the day of the month, 1 … 31, on which calendar months begin,
	// or the last day where the month is shorter. Zero: 1.
	AnchorDay int
	// ChargeRefused counts refused charges too, for costs that are only
	// reported: up to a debt of one full drain, or without end for
	// fixed_window, which then also allows counts up to 2³²−1 and costs up to
	// [MaxCount]. Not for concurrency.
	ChargeRefused bool

	shares   *Shares // that the limit is a part of; nil for none
	class    string  // in shares; "" for the budget itself
	rule     algo.Rule
	zone     *time.Location
	compiled bool
}

// Per returns a limit of count units per period.
func Per(count int64, period time.Duration) Limit { return Limit{Count: count, Period: period} }

// PerSecond returns a limit of count units per second.
func PerSecond(count int64) Limit { return Per(count, time.Second) }

// PerMinute returns a limit of count units per minute.
func PerMinute(count int64) Limit { return Per(count, time.Minute) }

// PerHour returns a limit of count units per hour.
func PerHour(count int64) Limit { return Per(count, time.Hour) }

// PerDay returns a limit of count units per 24 hours.
func PerDay(count int64) Limit { return Per(count, 24*time.Hour) }

// Capacity is the most that a fresh key can be charged at one instant.
func (l *Limit) Capacity() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}

// Compile validates the limit and returns it ready for use: a copy with its
// defaults filled in, which any number of charges may share. The error is an
// [*InvalidError].
func (l Limit) Compile() (*Limit, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Algorithm.Traits().Bursts {
		l.Burst = l.Capacity()
	}
	if l.Algorithm.Traits().Buckets && l.Buckets == 0 {
		l.Buckets = defaultBuckets
	}
	if err := l.compile(); err != nil {
		return nil, err
	}
	l.compiled = true
	return &l, nil
}

// MustCompile is Compile for limits that are written down in the program. It
// panics on one that is not valid.
func (l Limit) MustCompile() *Limit {
	compiled, err := l.Compile()
	if err != nil {
		panic(err)
	}
	return compiled
}

// Shares returns the shares that the limit is a part of and the class it is for, "" for the
// budget itself. It returns nil for any other limit, and for one whose numbers have been
// changed since, by an override for example. For layers.
func (l *Limit) Shares() (s *Shares, class string) {
	if l.shares == nil {
		return nil, ""
	}
	own := l.shares.pool
	if l.class != "" {
		own = l.shares.classes[l.class]
	}
	if l.rule != own.rule {
		return nil, ""
	}
	return l.shares, l.class
}

// Alike reports whether two compiled limits decide alike: they differ in no more than their
// names, as limits of several rules that charge one budget do. For layers.
func (l *Limit) Alike(other *Limit) bool {
	return l == other || l.rule == other.rule && l.TimeZone == other.TimeZone && l.AnchorDay == other.AnchorDay
}

// Rule is the limit as the steps want it; nil unless the limit was compiled. For
// stores.
func (l *Limit) Rule() *algo.Rule {
	if !l.compiled {
		return nil
	}
	return &l.rule
}

// RuleAt is Rule with the calendar windows around an instant, in µs since 1970;
// the same as Rule for a limit without a calendar. For stores.
func (l *Limit) RuleAt(now int64) algo.Rule {
	r := l.rule
	if r.Calendar {
		r.Starts = l.starts(time.UnixMicro(now))
	}
	return r
}

// reports says whether the limit takes costs of any size that are merely
// reported.
func (l *Limit) reports() bool { return l.ChargeRefused && l.Algorithm.Traits().Reports }

func (l *Limit) maxCost() int64 {
	if l.reports() {
		return MaxCount
	}
	return MaxCost
}
