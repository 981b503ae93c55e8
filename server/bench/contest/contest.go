// Package contest holds the limiters that are measured side by side: Weir and its
// peers, behind one small face each, with the same limit and the same keys.
package contest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Limit is what every contestant is asked to enforce: Count units a Period, all
// of which a fresh key may spend at once.
type Limit struct {
	Count  int
	Period time.Duration
}

// The limits of the scenarios.
var (
	// Ample is never exhausted by a run.
	Ample = Limit{1_000_000_000, time.Hour}
	// Tight is exhausted by its first decision.
	Tight = Limit{1, 24 * time.Hour}
	// Counted is what exactness is judged with: it gives nothing back while a
	// run lasts.
	Counted = Limit{1000, 24 * time.Hour}
)

// A Limiter is one contestant at work.
type Limiter interface {
	// Allow decides one unit of key.
	Allow(ctx context.Context, key string) (bool, error)
	// Close gives back what the limiter holds.
	Close() error
}

// A Kind says where a contestant keeps its state.
type Kind int

// The kinds.
const (
	Memory Kind = iota
	Redis
)

// A Contestant opens limiters of one kind.
type Contestant struct {
	Name   string
	Module string // whose version the report names; empty for Weir itself
	Kind   Kind
	// Keyless contestants have one budget, whatever the key.
	Keyless bool
	// Open returns a limiter with connections of its own. In Redis its keys
	// begin with Prefix; two limiters with one prefix share their budgets.
	Open func(Env) (Limiter, error)
	// Blocking contestants make a caller wait where others refuse.
	Blocking bool
}

// Env is what a contestant gets to work with.
type Env struct {
	Address string // of Redis, host:port
	Prefix  string
	Limits  []Limit // of one decision; several are decided one after another or together
	Callers int     // how many will ask at once
}

// one returns the only limit of a decision.
func (e Env) one() Limit { return e.Limits[0] }

// sequence asks several limiters one after another, as a program does whose
// limiter knows one limit a call.
type sequence []Limiter

// each opens a limiter for every limit of the decision.
func each(e Env, open func(Env) (Limiter, error)) (Limiter, error) {
	if len(e.Limits) == 1 {
		return open(e)
	}
	var all sequence
	for i, limit := range e.Limits {
		single := e
		single.Limits = []Limit{limit}
		single.Prefix = fmt.Sprint(e.Prefix, "l", i, ":")
		l, err := open(single)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, l)
	}
	return all, nil
}

// Allow decides one unit.
func (s sequence) Allow(ctx context.Context, key string) (bool, error) {
	allowed := true
	for _, l := range s {
		ok, err := l.Allow(ctx, key)
		if err != nil {
			return false, err
		}
		allowed = allowed && ok
	}
	return allowed, nil
}

// Close gives back what it holds.
func (s sequence) Close() error {
	var err error
	for _, l := range s {
		err = errors.Join(err, l.Close())
	}
	return err
}
