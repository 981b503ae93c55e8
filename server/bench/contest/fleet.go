package contest

import (
	"context"
	"errors"
	"sync/atomic"
)

// fleet spreads calls over several instances of one contestant, as a balancer
// does.
type fleet struct {
	all  []Limiter
	turn atomic.Uint64
}

// Fleet makes one contestant of several instances of another, which share their
// budgets in Redis.
func Fleet(c Contestant, instances int) Contestant {
	single := c.Open
	c.Open = func(e Env) (Limiter, error) {
		f := &fleet{}
		for range instances {
			l, err := single(e)
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			f.all = append(f.all, l)
		}
		return f, nil
	}
	return c
}

// Allow decides one unit.
func (f *fleet) Allow(ctx context.Context, key string) (bool, error) {
	return f.all[f.turn.Add(1)%uint64(len(f.all))].Allow(ctx, key)
}

// Close gives back what it holds.
func (f *fleet) Close() error {
	var err error
	for _, l := range f.all {
		err = errors.Join(err, l.Close())
	}
	return err
}
