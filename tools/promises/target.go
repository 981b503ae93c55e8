// Package promises checks limiters from outside, through the calls that their users make, for
// what limiters promise: exact bounds, refusals that cost nothing, a true time to retry, one budget
// for several instances, a repeated call that is charged once, and a store that stops or comes
// back empty. It checks Weir in every run of the tests, and others with "make promises", which
// writes the table of docs/comparison.md.
package promises

import (
	"testing"
	"time"
)

// A Setting is the limit that a target applies to each key, and the store that it uses.
type Setting struct {
	// Count units are granted per Period in the long run, and Burst at once where the limiter
	// has bursts.
	Count, Burst int
	Period       time.Duration
	// Redis is the address of a server; empty for limiters in memory.
	Redis string
}

// An Answer is what a limiter said to one call.
type Answer struct {
	Granted bool
	// Retry is the wait that a refusal tells; negative if it tells none.
	Retry time.Duration
	// Err is set if there was no decision.
	Err error
}

// A Target is a limiter at work, used as its users use it. Its methods are safe for concurrent use,
// except Change.
type Target interface {
	// Take asks for units of a key. Targets without IDs ignore the id.
	Take(key string, cost int, id string) Answer
	// Change changes the limit while the limiter runs, and reports false if that takes a new one.
	Change(s Setting) bool
}

// A Family says which bound a limiter promises.
type Family int

// The families.
const (
	// Steady limiters refill without steps: at most Burst + Count in any Period.
	Steady Family = iota
	// Sliding limiters grant at most Count in any Period.
	Sliding
	// Window limiters count in windows that begin at once: at most twice the Count in a Period.
	Window
)

// A Limiter is a program or library that is checked.
type Limiter struct {
	Name, Version string
	Family        Family
	Redis         bool // several instances share one
	IDs           bool // a repeated call may carry an ID
	NoCosts       bool // each call takes one unit
	Cached        bool // no call waits for Redis, which is told later
	// RedisArgs are arguments of the Redis server, such as a module to load.
	RedisArgs []string
	// WholeSeconds limiters have no periods but a second, a minute, an hour and a day.
	WholeSeconds bool
	// Redirect, if it is set, is applied to the address of a server's listener: a proxy may be in
	// between. Only servers call it.
	Open func(t testing.TB, s Setting, redirect func(address string) string) Target
}

// direct is a redirect that changes nothing.
func direct(address string) string { return address }

// A library is a target of two functions.
type library struct {
	take   func(key string, cost int, id string) Answer
	change func(Setting) // nil: takes a new one
}

// Take implements [Target].
func (l *library) Take(key string, cost int, id string) Answer { return l.take(key, cost, id) }

// Change implements [Target].
func (l *library) Change(s Setting) bool {
	if l.change == nil {
		return false
	}
	l.change(s)
	return true
}

func failed(err error) Answer { return Answer{Err: err, Retry: -1} }
