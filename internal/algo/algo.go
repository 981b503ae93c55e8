// Package algo holds the algorithms: what time does to a key's state, how much
// room it leaves, and when a charge that does not fit will. Each is a pure step,
// written once in Go (x.go) and once in Lua (x.lua) with the same names in the
// same order; a test drives both with the same histories and demands equal
// answers.
//
// All instants are microseconds since 1970, all durations microseconds, and
// every number and product stays below 2⁵³, which Lua can count to.
package algo

import (
	"math"
	"slices"
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

// State is what a key has used. The zero State is a fresh key.
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
}

// Ext holds the state of the algorithms that keep more than three numbers. Just
// one of its parts is in use.
type Ext struct {
	Ring    Ring
	Log     Log
	Holders []Holder
}

// A Grant is what a charge was granted, when, and for how much later: Units of
// Whole are to be taken back.
type Grant struct{ Units, Whole, At, Delay int64 }

// A Step is one algorithm as others name it; [Rule] has its functions.
type Step struct {
	// Name is the algorithm's name wherever people meet it.
	Name string
	// Letter and Format begin the Redis key, so that no state is ever read by
	// another algorithm or as another layout.
	Letter, Format byte
}

// Steps is the table of all algorithms, by ID.
var Steps = [Count]Step{
	GCRA:           {Name: "gcra", Letter: 'g', Format: '1'},
	FixedWindow:    {Name: "fixed_window", Letter: 'f', Format: '1'},
	SlidingLog:     {Name: "sliding_log", Letter: 'l', Format: '2'},
	RollingWindow:  {Name: "rolling_window", Letter: 'r', Format: '1'},
	TokenBucket:    {Name: "token_bucket", Letter: 't', Format: '1'},
	SlidingCounter: {Name: "sliding_counter", Letter: 's', Format: '1'},
	LeakyBucket:    {Name: "leaky_bucket", Letter: 'k', Format: '1'},
	Concurrency:    {Name: "concurrency", Letter: 'c', Format: '1'},
}

// Room is how many units fit now.
func Room(s *State, r *Rule) int64 { return max(0, r.Burst-s.Used) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// ExtBytes estimates the memory that a new key needs outside its inline state.
func (r *Rule) ExtBytes() int64 {
	switch r.ID {
	case RollingWindow:
		return extBytes + 4*(r.Buckets+1)
	case SlidingLog:
		return extBytes + entryBytes
	case Concurrency:
		return extBytes + holderBytes
	}
	return 0
}

const (
	extBytes   = 112 // an Ext and the header of its allocation
	entryBytes = 16
	// holderBytes is a holder.
	holderBytes = 24
)

// Bytes estimates the memory of an Ext; a nil one has none.
func (e *Ext) Bytes() int64 {
	if e == nil {
		return 0
	}
	return extBytes + 4*int64(cap(e.Ring.counts)) + entryBytes*int64(cap(e.Log.entries)) + holderBytes*int64(cap(e.Holders))
}

// Clone returns a copy that shares nothing; nil for nil.
func (e *Ext) Clone() *Ext {
	if e == nil {
		return nil
	}
	c := *e
	c.Ring.counts = slices.Clone(e.Ring.counts)
	c.Log.entries = slices.Clone(e.Log.entries)
	c.Holders = slices.Clone(e.Holders)
	return &c
}

// Params are the numbers that the algorithm's Lua calls p, q, x and y.
func (r *Rule) Params() [4]int64 {
	switch r.ID {
	case GCRA, LeakyBucket:
		return [4]int64{r.Num, r.Den, r.Tick, r.Full}
	case RollingWindow:
		return [4]int64{r.Buckets, r.Period, r.Width}
	case TokenBucket:
		return [4]int64{r.Count, r.Period}
	case SlidingCounter:
		return [4]int64{0, r.Period / r.Tick, r.Tick}
	case FixedWindow:
		if r.Calendar {
			return r.Starts
		}
	}
	return [4]int64{0, r.Period}
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
