// Package config reads the rules files: envoyproxy/ratelimit's YAML with Weir's own keys.
// It checks them strictly and as a whole. Rules that it returns are valid; otherwise it
// lists every mistake at once, each with its position.
package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Bounds of the rules files. A file beyond them is refused, so that no file costs more
// time or memory than a large valid one.
const (
	// MaxFileBytes is the size of the largest file.
	MaxFileBytes = 8 << 20
	// MaxDepth is the most levels of nested descriptors, and the most entries of a
	// request's descriptor.
	MaxDepth = 16
	// MaxTextBytes is the length of the longest domain, key, value or name.
	MaxTextBytes = 1 << 10
	// MaxProblems is the most mistakes of one file that are listed.
	MaxProblems = 1000

	maxFiles = 1000
	// maxBytes is the size of all files together, which are held at once.
	maxBytes = 32 << 20
	// maxNodes is the number of YAML nodes that a small file may come to once its
	// aliases are replaced. A larger file may have two for each of its bytes.
	maxNodes = 400_000
	// maxNesting is the most levels of nested metadata and merges.
	maxNesting = 64
)

// A Position is a position in a rules file. Line and Column count from 1. They are 0 for
// a rule that is not in a file: File then names its source and its position there.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column, or the file alone where there is no line.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// problem is a mistake at the position.
func (p Position) problem(what, want string) Problem {
	return Problem{File: p.File, Line: p.Line, Column: p.Column, What: what, Want: want}
}

// line is the position without its column.
func (p Position) line() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// brief is the position for a message about the same file.
func (p Position) brief() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("line %d", p.Line)
}

// A Domain is one rules file, or several that were merged.
type Domain struct {
	At          Position
	Name        string
	Descriptors []*Descriptor // in file order
	Budgets     []*Budget     // by name
	Models      []Model       // the price table, in file order
	// AsOf is the day on which the prices were right; zero if the rules file has them itself.
	AsOf    time.Time
	Classes []string // of callers, the highest first
	Calls   Calls

	overlay Problems // lines of the overlay that match a rule and cannot change it
}

// A Descriptor is one entry of a list of descriptors. In Key and Value each "*"
// stands for any text.
type Descriptor struct {
	At  Position
	Key string
	// Value is empty for the default rule of its key.
	Value string
	// Limits are those of rate_limit and rate_limits: none, one that is Unlimited,
	// one that names no algorithm, or any number that do. Behind them are those of
	// otherwise.
	Limits []RateLimit
	// HashTag names the keys, of this entry and those above, whose values choose
	// the hash slot of the limits' state; empty: all of them.
	HashTag []string
	// Trial is a limit on trial beside the Limits, which never refuses; nil for none.
	Trial *RateLimit
	Settings
	Descriptors []*Descriptor // nested, in file order
	// Shares are those of the values, which have descriptors of their own beside this one;
	// nil for none.
	Shares *weir.Shares
	// Budgets are those that rules here and below can charge, by name.
	Budgets []*Budget
}

// Settings are what a descriptor says besides its limits about the requests that match it.
type Settings struct {
	// Shadow rules are decided and charged, but never refuse.
	Shadow bool
	// Unenforced is the part of the keys for which the limits never refuse. The zero value is
	// none.
	Unenforced Part
	// Quota rules refuse a request only if all its quota rules do.
	Quota bool
	// ShareThreshold rules give all values that their pattern matches one budget.
	ShareThreshold bool
	// DetailedMetric and ValueToMetric ask for requested values in the names of metrics.
	DetailedMetric, ValueToMetric bool
	// Strict estimates hold the most that a request to a language model can use.
	Strict bool
	// OutputGuess is how many output tokens other estimates hold; 0: not said.
	OutputGuess int64
	// Metadata is free-form: maps, lists, texts, numbers, booleans and nil. It is not to be
	// changed.
	Metadata map[string]any
}

// A Glob is a text in which each star stands for any text.
type Glob struct{ pieces []string }

// NewGlob returns the glob of a text.
func NewGlob(text string) Glob { return Glob{strings.Split(text, "*")} }

// String returns the text.
func (g Glob) String() string { return strings.Join(g.pieces, "*") }

// Wild reports whether the text has a star.
func (g Glob) Wild() bool { return len(g.pieces) > 1 }

// Match reports whether the glob fits a text.
func (g Glob) Match(text string) bool {
	if !g.Wild() {
		return text == g.pieces[0]
	}
	last := len(g.pieces) - 1
	rest, ok := strings.CutPrefix(text, g.pieces[0])
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, g.pieces[last]); !ok {
		return false
	}
	for _, piece := range g.pieces[1:last] {
		if _, rest, ok = strings.Cut(rest, piece); !ok {
			return false
		}
	}
	return true
}

// A RateLimit is a rate_limit, or one element of rate_limits.
type RateLimit struct {
	At Position
	// Name stands in the file, or is empty.
	Name string
	// Was is an earlier name, whose keys the limit keeps; empty: none.
	Was string
	// Show says that everybody whom the limit applies to may see what is used of it.
	Show bool
	// Instead is the model that takes the place of a dearer one when the limit refuses; empty:
	// none. A pattern of the file has become the model of a row. At is where the file says so.
	Instead   string
	InsteadAt Position
	// Part is how many units are left to requests without a cheaper model.
	Part int64
	// Alerts are the percents of the limit at which an alert is due, in rising order; nil: none.
	Alerts []int
	// Replaces are the names of the limits that this one replaces.
	Replaces []string
	// Unlimited limits grant everything; their Limit means nothing.
	Unlimited bool
	// Grouped limits name an algorithm; the others are envoyproxy/ratelimit's.
	Grouped bool
	// Unit is the unit in lower case, or empty where a period stands instead.
	Unit string
	// Limit is the limit as written. It was checked by Compile but is not compiled, so
	// that it can still be given a name.
	Limit          weir.Limit
	OnStoreFailure StoreFailure
	// Budget is the budget that the limit charges; nil for a limit of its own. The Limit
	// and all further settings are then the budget's.
	Budget *Budget
	// Keep is how many units a request leaves to others.
	Keep int64
	// Alternative is 0 for rate_limit and rate_limits, and counts from 1 in otherwise.
	Alternative int
	// Overlay is the position of the overlay's line that changed this limit; zero if none
	// did. Sent is the limit as it was without that line.
	Overlay Position
	Sent    string
	// Lease lets instances spend leased units from memory.
	Lease bool
	// RLQS lets Envoys lease units by their rate limit quota service.
	RLQS bool
	// MaxKeys is the number of keys that an instance tracks; 0: any number.
	MaxKeys int
}

// A StoreFailure is a limit's policy during a store outage.
type StoreFailure uint8

const (
	// FailLocal: each instance grants its local share of the limit. The zero value,
	// and the default of limits that name an algorithm.
	FailLocal StoreFailure = iota
	// FailAllow: everything is granted.
	FailAllow
	// FailDeny: everything is refused.
	FailDeny
	// FailError: the caller gets the error. Limits that name no algorithm have it; a
	// server may apply another policy to them.
	FailError
)

var storeFailures = []string{"local", "allow", "deny", "error"}

// ParseStoreFailure returns the policy with a name. The error is a
// [*weir.InvalidError].
func ParseStoreFailure(word string) (StoreFailure, error) {
	if i := slices.Index(storeFailures, word); i >= 0 {
		return StoreFailure(i), nil
	}
	return FailError, &weir.InvalidError{
		Field: "on_store_failure", Value: strconv.Quote(word), Want: "one of " + StoreFailureNames(),
	}
}

// StoreFailureNames lists the words, for messages.
func StoreFailureNames() string { return strings.Join(storeFailures, ", ") }

// String returns the policy's name in YAML, logs and metrics.
func (f StoreFailure) String() string {
	if int(f) < len(storeFailures) {
		return storeFailures[f]
	}
	return "unknown"
}

// Parse reads one rules file from memory. Problems and positions have the name. The error is of type [Problems].
func Parse(name string, text []byte) (*Domain, error) {
	p := &parser{file: name}
	domain, problems := p.parse(text)
	if len(problems) == 0 {
		problems = domain.settleInsteads()
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return domain, nil
}
