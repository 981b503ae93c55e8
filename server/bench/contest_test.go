package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
type Limiter struct {
	// Allow decides one unit of key.
	Allow func(ctx context.Context, key string) (bool, error)
	// Release gives back what the limiter holds. Nil: nothing.
	Release func() error
}

// Close gives back what the limiter holds.
func (l Limiter) Close() error {
	if l.Release == nil {
		return nil
	}
	return l.Release()
}

// A Kind says where a contestant keeps its state.
type Kind int

// The kinds.
const (
	Memory Kind = iota
	Redis
)

func (k Kind) String() string { return [...]string{"memory", "redis"}[k] }

// A Contestant opens limiters of one kind.
type Contestant struct {
	Name string
	Kind Kind
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
}

// one returns the only limit of a decision.
func (e Env) one() Limit { return e.Limits[0] }

// limiters are several that are closed together.
type limiters []Limiter

// openAll opens n limiters, or none.
func openAll(n int, one func(i int) (Limiter, error)) (limiters, error) {
	var all limiters
	for i := range n {
		l, err := one(i)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, l)
	}
	return all, nil
}

func (all limiters) close() error {
	var err error
	for _, l := range all {
		err = errors.Join(err, l.Close())
	}
	return err
}

// each opens a limiter for every limit of the decision and asks them one after another, as
// a program does whose limiter knows one limit a call.
func each(single func(Env) (Limiter, error)) func(Env) (Limiter, error) {
	return func(e Env) (Limiter, error) {
		if len(e.Limits) == 1 {
			return single(e)
		}
		all, err := openAll(len(e.Limits), func(i int) (Limiter, error) {
			part := e
			part.Limits, part.Prefix = e.Limits[i:i+1], fmt.Sprint(e.Prefix, "l", i, ":")
			return single(part)
		})
		return Limiter{Release: all.close, Allow: func(ctx context.Context, key string) (bool, error) {
			allowed := true
			for _, l := range all {
				ok, err := l.Allow(ctx, key)
				if err != nil {
					return false, err
				}
				allowed = allowed && ok
			}
			return allowed, nil
		}}, err
	}
}

// Fleet makes one contestant of several instances of another, which share their budgets in
// Redis. It spreads calls over them, as a balancer does.
func Fleet(c Contestant, instances int) Contestant {
	single := c.Open
	c.Open = func(e Env) (Limiter, error) {
		all, err := openAll(instances, func(int) (Limiter, error) { return single(e) })
		var turn atomic.Uint64
		return Limiter{Release: all.close, Allow: func(ctx context.Context, key string) (bool, error) {
			return all[turn.Add(1)%uint64(len(all))].Allow(ctx, key)
		}}, err
	}
	return c
}
