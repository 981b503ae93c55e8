package weir

import (
	"fmt"
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
	// SlidingLog stores the instant of every grant: at most N in any interval of T.
	SlidingLog = Algorithm(algo.SlidingLog)
	// RollingWindow counts in Buckets+1 counters: at most N in any interval of
	// T. It refuses at most one bucket early.
	RollingWindow = Algorithm(algo.RollingWindow)
	// TokenBucket adds N tokens at once every T to a bucket of B.
	TokenBucket = Algorithm(algo.TokenBucket)
	// SlidingCounter weights the previous window by the part of it that is still
	// less than T ago: less than 2N in any interval of T, and N if arrivals are
	// even.
	SlidingCounter = Algorithm(algo.SlidingCounter)
	// LeakyBucket queues up to B units, which leave at N per T: a grant
	// has the delay after which it may be used.
	LeakyBucket = Algorithm(algo.LeakyBucket)
	// Concurrency grants slots to N holders at a time, each with a lease of T.
	Concurrency = Algorithm(algo.Concurrency)
)

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
	return 0, invalid("algorithm", fmt.Sprintf("%q", name), "one of "+algo.Names())
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
	// [Limiter]: another name is another budget. If it is empty, answers have the limit's
	// text form, and keys its position among several limits.
	Name string
	// Algorithm is how the limit counts. Zero: [GCRA].
	Algorithm Algorithm
	// Count is N, 0 … 1 000 000 000; for a fixed_window up to 999 999 999 999 999, or, with
	// ChargeRefused, 4 294 967 295. 0 refuses everything.
	Count int64
	// Period is T, 1 ms … 366 days, in whole milliseconds.
	Period time.Duration
	// Burst is B, the most that a fresh key can be charged at one instant,
	// 1 … 1 000 000 000. Zero: Count. Only for gcra, for token_bucket, where it
	// is the capacity, and for leaky_bucket, where it is the queue.
	Burst int64
	// Buckets is the number of buckets of a rolling_window, 2 … 3600. Zero: 60.
	Buckets int
	// Anchor is where the windows of a fixed_window begin.
	Anchor Anchor
	// TimeZone, an IANA name such as "Europe/Paris", turns the windows of a
	// fixed_window into calendar windows of that zone. The Period is then 24h for a day,
	// 168h for a week from Monday, 720h for a month or 8760h for a year.
	TimeZone string
	// AnchorDay is the day of the month, 1 … 31, on which calendar months begin,
	// or on the last day of a shorter month. Zero: 1.
	AnchorDay int
	// ChargeRefused counts refused charges, too, for costs that are only
	// reported: up to one full drain beyond the limit, or without a bound for
	// fixed_window, which then also allows costs up to 2⁵³−1. Not for
	// concurrency.
	ChargeRefused bool
	// Block, if set, refuses a key for that long after the limit has refused a take of it: the
	// refusal that begins a block has at least this RetryAfter, and the key is refused until
	// then, whatever room the limit has. Takes that are refused meanwhile do not extend it, and a
	// reset ends it. A take that exceeds the capacity, keeps units free or only asks (see
	// [Act.Dry]) begins none, and neither does one that other limits or alternatives refuse or
	// decide. 1 ms … 240 hours in whole milliseconds. Not for concurrency, ChargeRefused or
	// [Shares], and such a limit cannot be booked ahead.
	Block time.Duration
	// Meter names what the units of the limit are, such as "output". It does
	// not change how the limit counts. Empty: "requests".
	Meter string

	blocks   *algo.Rule // the rule of the blocks; nil without Block
	open     *Limit     // the limit without its Block
	shares   *Shares    // the shares that the limit is a part of; nil for none
	class    string     // the class in shares; "" for the budget itself
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

// Capacity returns the most that a fresh key can be charged at one instant.
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
	if algo.TraitsOf(l.Algorithm).Bursts {
		l.Burst = l.Capacity()
	}
	if algo.TraitsOf(l.Algorithm).Buckets && l.Buckets == 0 {
		l.Buckets = defaultBuckets
	}
	if err := l.compile(); err != nil {
		return nil, err
	}
	l.compiled, l.open = true, nil
	if open := l; l.Block > 0 {
		open.Block, open.blocks = 0, nil
		l.open = &open
	}
	return &l, nil
}

// MustCompile is like [Limit.Compile], but panics if the limit is not valid. It is for
// limits that are constants of the program.
func (l Limit) MustCompile() *Limit {
	compiled, err := l.Compile()
	if err != nil {
		panic(err)
	}
	return compiled
}

// Shares returns the shares that the limit belongs to, and its class, which is "" for the
// budget itself. It returns nil for any other limit, and for one whose numbers have been
// changed since, for example by an override. For layers.
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

// Alike reports whether two compiled limits decide alike: only their names may differ, as
// those of several rules that charge one budget. For layers.
func (l *Limit) Alike(other *Limit) bool {
	return l == other || l.rule == other.rule && l.Block == other.Block && l.TimeZone == other.TimeZone && l.AnchorDay == other.AnchorDay
}

// rule is a limit in the form that the steps use.
type rule = algo.Rule

// Rule returns the limit in the form that the steps use, or nil if the limit was not
// compiled. For stores.
func (l *Limit) Rule() *rule {
	if !l.compiled {
		return nil
	}
	return &l.rule
}

// Blocks returns the rule of the blocks of a limit's keys, or nil if it has no Block. A key is
// blocked while a unit is used under it. For stores.
func (l *Limit) Blocks() *rule { return l.blocks }

// WithoutBlock returns a compiled limit without its Block: always the same one. For layers.
func (l *Limit) WithoutBlock() *Limit {
	if l.open == nil {
		return l
	}
	return l.open
}

// RuleAt returns [Limit.Rule] with the calendar windows around an instant, in µs since
// 1970. For a limit without a calendar it is the same as Rule. For stores.
func (l *Limit) RuleAt(now int64) rule {
	r := l.rule
	if r.Calendar {
		r.Starts = l.starts(time.UnixMicro(now))
	}
	return r
}

// reports returns whether the limit accepts costs of any size that are only reported.
func (l *Limit) reports() bool { return l.ChargeRefused && algo.TraitsOf(l.Algorithm).Reports }

func (l *Limit) maxCost() int64 {
	if l.reports() {
		return algo.MaxCount
	}
	return MaxCost
}

// A KeyLimit bounds the tracked keys of a limit, for keys that clients can make up. Further
// keys share the key Overflow, and so one budget.
type KeyLimit struct {
	// MaxKeys is the largest number of tracked keys, at most 10 000 000. Zero: any
	// number.
	MaxKeys int
	// Overflow is the key under which further keys are charged. Limits with the same
	// Overflow share one set of keys. No client may use it.
	Overflow string
}
