// Package algo holds the algorithms: what time does to a key's state, how much
// room it leaves, and when a charge that does not fit will. Each is a pure step,
// written once in Go (x.go) and once in Lua (x.lua) with the same names in the
// same order; a test drives both with the same histories and demands equal
// answers.
//
// All instants are microseconds since 1970, all durations microseconds, and
// every number and product stays below 2⁵³, which Lua can count to.
package algo

import "slices"

// ID is an algorithm's place in the table.
type ID uint8

// The algorithms. The numbers are part of the wire format between Go and Lua.
const (
	GCRA ID = iota
	FixedWindow
	SlidingLog
	RollingWindow
	TokenBucket
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
	Cap           int64 // most units a state can hold, debt included
	Buckets       int64 // rolling_window
	Width         int64 // rolling_window: µs a bucket
	Num, Den      int64 // gcra: N and T, in ticks, divided by their gcd
	Tick          int64 // gcra: µs of a tick, the limit's resolution
	Full          int64 // gcra: ticks in which Cap units drain
	Drain         int64 // µs after which a state without debt equals a fresh one
}

// State is what a key has used. The zero State is a fresh key.
type State struct {
	At   int64 // an instant whose meaning is the algorithm's
	Used int64 // units that count; a fresh key has none
	Rem  int64 // gcra: the part of a tick that has drained, in units of 1/Num
	Ext  *Ext  // what does not fit inline
	// Tight asks Save not to grow: better to count a grant as newer than it is.
	Tight bool
}

// Ext holds the state of the algorithms that keep more than three numbers. Just
// one of its parts is in use.
type Ext struct {
	Ring Ring
	Log  Log
}

// A Step is one algorithm. It works on a scratch copy of a key's state: Age
// first, then as many charges as there are, each of which adds to Used, then
// Save. A store publishes the copy if anything was added or Age asks for it, and
// drops it otherwise, so that looks and refusals change nothing.
type Step struct {
	// Name is the algorithm's name wherever people meet it.
	Name string
	// Letter and Format begin the Redis key, so that no state is ever read by
	// another algorithm or as another layout.
	Letter, Format byte
	// Age does to a state what time has done: Used becomes the units that still
	// count. It reports whether the state lay in the future and was clamped,
	// which must be published even if nothing is charged. It leaves Ext alone
	// unless it reports that.
	Age func(s *State, r *Rule, now int64) bool
	// Wait is how long until cost units fit, if nothing else happens. It is
	// asked only where they do not fit now and cost is at most r.Burst.
	Wait func(s *State, r *Rule, now, cost int64) int64
	// Fresh is how long until the key equals one never used.
	Fresh func(s *State, r *Rule, now int64) int64
	// Save files the units that were added to Used since Age under now. Nil
	// where Used says it all.
	Save func(s *State, r *Rule, now, added int64)
}

// Steps is the table of all algorithms, by ID.
var Steps = [Count]Step{
	GCRA:          {"gcra", 'g', '1', gcraAge, gcraWait, gcraFresh, nil},
	FixedWindow:   {"fixed_window", 'f', '1', fixedAge, fixedWait, fixedFresh, nil},
	SlidingLog:    {"sliding_log", 'l', '1', logAge, logWait, logFresh, logSave},
	RollingWindow: {"rolling_window", 'r', '1', ringAge, ringWait, ringFresh, ringSave},
	TokenBucket:   {"token_bucket", 't', '1', bucketAge, bucketWait, bucketFresh, nil},
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
	}
	return 0
}

const (
	extBytes   = 80 // an Ext and the header of its allocation
	entryBytes = 16
)

// Bytes estimates the memory of an Ext; a nil one has none.
func (e *Ext) Bytes() int64 {
	if e == nil {
		return 0
	}
	return extBytes + 4*int64(cap(e.Ring.counts)) + entryBytes*int64(cap(e.Log.entries))
}

// Clone returns a copy that shares nothing; nil for nil.
func (e *Ext) Clone() *Ext {
	if e == nil {
		return nil
	}
	c := *e
	c.Ring.counts = slices.Clone(e.Ring.counts)
	c.Log.entries = slices.Clone(e.Log.entries)
	return &c
}

// Params are the numbers that the algorithm's Lua calls p, q, x and y.
func (r *Rule) Params() [4]int64 {
	switch r.ID {
	case GCRA:
		return [4]int64{r.Num, r.Den, r.Tick, r.Full}
	case RollingWindow:
		return [4]int64{r.Buckets, r.Period, r.Width}
	case TokenBucket:
		return [4]int64{r.Count, r.Period}
	}
	return [4]int64{0, r.Period}
}
