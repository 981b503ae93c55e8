// Package algo has the algorithms. They compute how time changes a key's state, how much
// room there is, and when a charge that does not fit now will fit. Each is a pure step,
// written once in Go (x.go) and once in Lua (x.lua), with the same names in the same
// order. A test runs both with the same histories and requires equal answers.
//
// All instants are microseconds since 1970, all durations microseconds, and
// every number and product stays below 2⁵³, which Lua can count to.
package algo

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// ID is an algorithm's place in the table.
type ID uint8

// The algorithms. The numbers are part of the wire format between Go and Lua.
const (
	GCRA ID = iota
	FixedWindow
	SlidingLog
	RollingWindow
	TokenBucket
	SlidingCounter
	LeakyBucket
	Concurrency
	// Count is how many there are.
	Count
)

// Bounds of acts.
const (
	// MaxBuckets is the largest number of buckets that the rolling_window limits of one
	// act may have together, counted for each charge. Redis is busy for about
	// a millisecond if it has to read that many.
	MaxBuckets = 8192
	// MaxSlots is the largest number of slots that an anonymous act takes or returns.
	MaxSlots = 1000
	// MaxCount is the largest value of a counter. A limit that charges refused requests
	// saturates there, and accepts costs up to it.
	MaxCount = 1<<53 - 1
	// MaxWindow is the largest count of a fixed_window: the largest integer of a structured
	// header field.
	MaxWindow = 999_999_999_999_999
)

// A Rule is a limit ready to be applied: validated, defaults filled in, and
// every derived number computed once.
type Rule struct {
	ID            ID
	ChargeRefused bool
	AnchorFirst   bool  // fixed_window: opened by the first charge
	Count         int64 // N, at least 1: a limit of 0 has a Burst of 0
	Period        int64 // T, µs
	Burst         int64 // most that a fresh key can be charged at one instant
	Debt          int64 // most units that can be charged without fitting
	Cap           int64 // most units a state can hold, debts and bookings included
	Buckets       int64 // rolling_window
	Width         int64 // rolling_window: µs a bucket
	Num, Den      int64 // gcra, leaky_bucket: N and T, in ticks, divided by their gcd
	Tick          int64 // gcra, leaky_bucket, sliding_counter: µs of a tick, the limit's resolution
	Full          int64 // gcra, leaky_bucket: ticks in which Cap units drain
	Calendar      bool  // fixed_window: Starts are the windows
	Starts        [4]int64
	Drain         int64 // µs after which a state without debt equals a fresh one
}

// State has the units that a key has used. The zero State is a fresh key.
type State struct {
	At   int64 // an instant whose meaning is the algorithm's
	Used int64 // units that count; a fresh key has none
	Rem  int64 // gcra: the part of a tick that has drained, in units of 1/Num
	// Base is the part of Used that is not stored in it, but follows from the
	// rest: sliding_counter's share of the window before.
	Base int64
	Ext  *Ext // what does not fit inline
	// Tight asks Save not to grow: better to count a grant as newer than it is.
	Tight bool
	// Refundable asks Save to keep low-water marks, because units may be given back.
	Refundable bool
}

// Ext holds the state of the algorithms that keep more than three numbers. Just
// one of its parts is in use.
type Ext struct {
	Ring     Ring
	Log      Log
	Holders  *Holders
	LowWater *LowWater
}

// A Grant describes an earlier grant for a refund: its units, its time and its delay.
// Units of Whole are to be refunded. With Newest, the newest grants are refunded instead,
// and At is now.
type Grant struct {
	Units, Whole, At, Delay int64
	Newest                  bool
}

// Traits describe an algorithm to the rest of the program, so that no other code has to
// name it. The zero value describes an algorithm of Count and Period that counts units.
type Traits struct {
	Bursts     bool   // Limit.Burst is of its own
	BurstName  string // what people call the Burst; "" for Bursts false
	Books      bool   // charges can be booked ahead, up to Act.MaxWait
	Delays     bool   // what is granted may have to wait before it is used
	Drains     bool   // used units drain one after another, Count every Period
	Windows    bool   // all units return at once when a window ends
	Calendars  bool   // windows have an anchor, or those of a calendar
	Buckets    bool   // counts in Limit.Buckets
	KeepsLog   bool   // remembers each grant, which bounds the Count
	HoldsSlots bool   // counts holders that have ids, not units
	Reports    bool   // counts refused charges without end, see Limit.ChargeRefused
	Aligned    bool   // when a key is fresh depends on the time of day
}

// TraitsOf returns the traits of an algorithm, or none for an unknown number.
func TraitsOf[Algorithm ~uint8](a Algorithm) Traits {
	if int(a) < len(Steps) {
		return Steps[a].Traits
	}
	return Traits{}
}

// A Step is one algorithm: its row of the table. Adding one takes its two files, its
// row, its ID and its public name.
type Step struct {
	// Name is the algorithm's name wherever people meet it.
	Name string
	// Doc says in one line what it grants, for help and documentation.
	Doc string
	// Letter and Format begin the Redis key, so that no state is ever read by
	// another algorithm or as another layout.
	Letter, Format byte
	// State is how Redis keeps it.
	State Layout
	Traits

	// The functions behind the methods of Rule of the same names. Save, Refund and
	// the following may be nil.
	Age    func(s *State, r *Rule, now int64) bool
	Wait   func(s *State, r *Rule, now, cost int64) int64
	Fresh  func(s *State, r *Rule, now int64) int64
	Refund func(s *State, r *Rule, now int64, g Grant) int64
	Save   func(s *State, r *Rule, now, added int64)
	// Compile derives numbers of a rule that has defaults for all; it returns false where
	// no number is exact. Nil: the defaults do.
	Compile func(r *Rule) bool
	// Admit raises the Cap to a number of units, as far as all numbers stay exact. Nil: they do
	// with any Cap.
	Admit func(r *Rule, units int64)
	// Params are the numbers that the Lua calls p, q, x and y. Nil: 0 and the Period.
	Params func(r *Rule) [4]int64
	// Ext estimates the bytes that a new key needs in Ext. Nil: none.
	Ext func(r *Rule) int64
	// Worst is the most units that pass in any half-open interval of a Period, one by
	// one. Nil: Burst + Count.
	Worst func(r *Rule) int64
}

// Layout is how Redis keeps a state.
type Layout uint8

const (
	// Numbers are At, Used and Rem in a string.
	Numbers Layout = iota
	// Counters are At, Used, Rem and Base in a string.
	Counters
	// RingText is a ring of counters in a string.
	RingText
	// Collection is no string.
	Collection
)

// Steps is the table of all algorithms, by ID.
var Steps = [Count]Step{
	GCRA: {
		Name: "gcra", Letter: 'g', Format: '2',
		Doc:    "drains continuously: at most burst + N in any interval of T",
		Traits: Traits{Bursts: true, BurstName: "burst", Books: true, Drains: true},
		Age:    gcraAge, Wait: gcraWait, Fresh: gcraFresh, Refund: gcraRefund,
		Compile: gcraCompile, Admit: gcraAdmit, Params: gcraParams,
	},
	FixedWindow: {
		Name: "fixed_window", Letter: 'f', Format: '1',
		Doc:    "counts in windows of T: at most N in each",
		Traits: Traits{Windows: true, Calendars: true, Reports: true, Aligned: true},
		Age:    fixedAge, Wait: fixedWait, Fresh: fixedFresh, Refund: fixedRefund, Save: fixedSave,
		Compile: fixedCompile, Params: fixedParams, Worst: twice,
	},
	SlidingLog: {
		Name: "sliding_log", Letter: 'l', Format: '2', State: Collection,
		Doc:    "remembers every instant: at most N in any interval of T",
		Traits: Traits{KeepsLog: true},
		Age:    logAge, Wait: logWait, Fresh: logFresh, Refund: logRefund, Save: logSave,
		Ext: logExt, Worst: once,
	},
	RollingWindow: {
		Name: "rolling_window", Letter: 'r', Format: '1', State: RingText,
		Doc:    "counts in buckets: at most N in any interval of T, refusing one bucket early at worst",
		Traits: Traits{Buckets: true, Aligned: true},
		Age:    ringAge, Wait: ringWait, Fresh: ringFresh, Refund: ringRefund, Save: ringSave,
		Compile: ringCompile, Params: ringParams, Ext: ringExt, Worst: once,
	},
	TokenBucket: {
		Name: "token_bucket", Letter: 't', Format: '2',
		Doc:    "adds N tokens at once every T to a bucket of burst",
		Traits: Traits{Bursts: true, BurstName: "capacity (burst)", Books: true},
		Age:    bucketAge, Wait: bucketWait, Fresh: bucketFresh, Refund: bucketRefund,
		Compile: bucketCompile, Admit: bucketAdmit, Params: bucketParams,
	},
	SlidingCounter: {
		Name: "sliding_counter", Letter: 's', Format: '1', State: Counters,
		Doc:    "weighs the last window: less than 2N in any interval of T, N where arrivals are even",
		Traits: Traits{Aligned: true},
		Age:    counterAge, Wait: counterWait, Fresh: counterFresh, Refund: counterRefund, Save: counterSave,
		Compile: counterCompile, Admit: counterAdmit, Params: counterParams, Worst: func(r *Rule) int64 { return max(1, 2*r.Count-1) },
	},
	LeakyBucket: {
		Name: "leaky_bucket", Letter: 'k', Format: '2',
		Doc:    "queues up to burst units and lets them out at N per T",
		Traits: Traits{Bursts: true, BurstName: "queue (burst)", Books: true, Delays: true, Drains: true},
		Age:    gcraAge, Wait: gcraWait, Fresh: gcraFresh, Refund: leakyRefund,
		Compile: gcraCompile, Admit: gcraAdmit, Params: gcraParams, Worst: func(r *Rule) int64 { return r.Count + 1 },
	},
	Concurrency: {
		Name: "concurrency", Letter: 'c', Format: '1', State: Collection,
		Doc:    "lets N holders in at a time, each with a lease of T",
		Traits: Traits{HoldsSlots: true},
		Age:    holdersAge, Wait: holdersWait, Fresh: holdersFresh, Save: holdersSave,
		Ext: holdersExt,
	},
}

// Names lists the names of all algorithms, for messages.
func Names() string {
	var names []string
	for i := range Steps {
		names = append(names, Steps[i].Name)
	}
	return strings.Join(names, ", ")
}

// once and twice are how much a window of a Period grants.
func once(r *Rule) int64  { return r.Count }
func twice(r *Rule) int64 { return 2 * r.Count }

// Step returns the row of the rule's algorithm.
func (r *Rule) Step() *Step { return &Steps[r.ID] }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// ExtBytes estimates the memory that a new key needs outside its inline state.
func (r *Rule) ExtBytes() int64 {
	if ext := Steps[r.ID].Ext; ext != nil {
		return extBytes + ext(r)
	}
	return 0
}

const (
	extBytes   = 120 // an Ext and the header of its allocation
	entryBytes = 16
)

// Bytes estimates the memory of an Ext; a nil one has none.
func (e *Ext) Bytes() int64 {
	if e == nil {
		return 0
	}
	bytes := extBytes + 4*int64(cap(e.Ring.counts)) + 8*int64(cap(e.Ring.blocks)) + entryBytes*int64(cap(e.Log.entries)) + e.Holders.bytes()
	if e.LowWater != nil {
		bytes += lowWaterBytes + markBytes*int64(cap(e.LowWater.marks))
	}
	return bytes
}

// Clone returns a copy that shares nothing; nil for nil.
func (e *Ext) Clone() *Ext {
	if e == nil {
		return nil
	}
	c := *e
	c.Ring.counts, c.Ring.blocks = slices.Clone(e.Ring.counts), slices.Clone(e.Ring.blocks)
	c.Log.entries = slices.Clone(e.Log.entries)
	c.Holders = e.Holders.clone()
	if e.LowWater != nil {
		low := *e.LowWater
		low.marks = slices.Clone(low.marks)
		c.LowWater = &low
	}
	return &c
}

// Params are the numbers that the algorithm's Lua calls p, q, x and y.
func (r *Rule) Params() [4]int64 {
	if params := Steps[r.ID].Params; params != nil {
		return params(r)
	}
	return [4]int64{0, r.Period}
}

// Worst is the most units that pass in any half-open interval of the Period, asked for
// one by one.
func (r *Rule) Worst() int64 {
	if worst := Steps[r.ID].Worst; worst != nil {
		return worst(r)
	}
	return r.Burst + r.Count
}

const (
	// exact is the bound below which Lua's numbers are exact integers.
	exact = 1 << 53
	// ahead is how far a charge may be booked into the future, in µs.
	ahead = 24 * 3600 * 1_000_000
)

// Compile derives the numbers of a rule from the fields of its limit: ID, Count, Period,
// Burst, Buckets and the options. It returns false if a number would not be exact.
func (r *Rule) Compile() bool {
	r.Debt = 2 * r.Burst
	r.Cap, r.Drain = r.Debt, r.Period
	if compile := Steps[r.ID].Compile; compile != nil {
		return compile(r)
	}
	return true
}

// Admit lets states hold all units that another rule of the algorithm admits, which this one
// replaces for a time, and lets as many be charged without fitting. So no unit that was used
// under the other rule is cut off. A rule that admits more already is left as it is.
func (r *Rule) Admit(own *Rule) {
	if admit := Steps[r.ID].Admit; admit != nil {
		admit(r, own.Cap)
	} else {
		r.Cap = max(r.Cap, own.Cap)
	}
	r.Debt = max(r.Debt, min(own.Debt, r.Cap))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// productCap is a·b, or 2⁵³ if that is less.
func productCap(a, b int64) int64 {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low < exact {
		return int64(low)
	}
	return exact
}

// Never is a wait that is never long enough.
const Never time.Duration = math.MaxInt64

// Duration returns a number of microseconds as a duration, [Never] where it does
// not fit one.
func Duration(micros int64) time.Duration {
	if micros > math.MaxInt64/1000 {
		return Never
	}
	return time.Duration(micros) * time.Microsecond
}
