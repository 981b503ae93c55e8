package weir

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// A Cost is a number of units of one key of a limiter. Create it with [Limiter.Cost], and
// charge it with [Together].
type Cost struct {
	limiter *Limiter
	key     string
	units   int64
}

// Cost returns n units of the key, to be charged together with other costs. Under
// concurrency limits it is a slot if n is at least 1.
func (l *Limiter) Cost(key string, n int64) Cost { return Cost{l, key, n} }

// A Joint is several costs that are charged together. It is safe for concurrent use.
// Create it with [Together].
type Joint struct {
	limiter *Limiter // of all limits; its keys are complete without another one
}

// An element says to which cost of a [Joint] a charge belongs.
type element struct {
	key    string
	units  int64
	number uint8
}

// Together joins costs of several keys and limiters into one decision: all of them are
// charged, or none is. Its limiters use the same store. The decision is that of the
// strictest limit of all, and its Limit says which one that is.
//
// In memory, in one Redis, and in a Redis Cluster if all keys are equal, the costs are
// charged at one instant. In a Redis Cluster, different keys may be on different nodes, which
// are asked one after the other. If one refuses, the charges of those before it are undone,
// and until then they may refuse other requests for a moment. No limit ever grants more
// than it allows.
//
// A bad cost is an [*InvalidError] of every call.
func Together(costs ...Cost) *Joint {
	limiter, err := join(costs)
	if err != nil {
		failed := Limiter{taker: failing{err}}
		limiter = failed.with([]*Limit{PerSecond(1).MustCompile()}, []string{""}, nil)
	}
	return &Joint{limiter}
}

func join(costs []Cost) (*Limiter, error) {
	var all Limiter
	var parts []element
	for i, c := range costs {
		switch {
		case c.limiter == nil:
			return nil, invalidIn("costs", i, "limiter", "missing", "a cost that Limiter.Cost returned")
		case i > 0 && reflect.ValueOf(all.taker).Comparable() && all.taker != c.limiter.taker:
			return nil, invalidIn("costs", i, "store", fmt.Sprintf("another %T", c.limiter.taker), "the same store for all costs")
		case c.units < 0 || c.units > MaxCost:
			return nil, invalidIn("costs", i, "cost", c.units, "0 … "+strconv.Itoa(MaxCost))
		}
		all.taker = c.limiter.taker
		for j, limit := range c.limiter.limits {
			all.limits = append(all.limits, limit)
			all.prefixes = append(all.prefixes, c.limiter.prefixes[j]+c.key)
			parts = append(parts, element{c.key, c.units, uint8(min(i, MaxCharges))})
		}
		all.options = append(all.options, c.limiter.chargeOptions()...)
	}
	if n := len(all.limits); n == 0 || n > MaxCharges {
		return nil, invalid("costs", strconv.Itoa(n)+" limits in all", "1 … "+strconv.Itoa(MaxCharges))
	}
	if !slices.ContainsFunc(all.options, func(o chargeOptions) bool { return o != chargeOptions{} }) {
		all.options = nil // so that they can be booked ahead
	}
	joint := all.with(all.limits, all.prefixes, all.options)
	joint.parts = parts
	return joint, nil
}

// Allow charges all costs or none.
func (j *Joint) Allow(ctx context.Context) (Decision, error) { return j.limiter.AllowN(ctx, "", 1) }

// Peek returns the decision of the limit with least room. It charges nothing.
func (j *Joint) Peek(ctx context.Context) (Decision, error) { return j.limiter.AllowN(ctx, "", 0) }

// Wait charges all costs and returns nil once all of them may be used, as [Limiter.WaitN]
// does.
func (j *Joint) Wait(ctx context.Context) error { return j.limiter.Wait(ctx, "") }

// Hold charges the costs as estimates and takes the slots, as [Limiter.Hold] does.
// [Hold.Settle] has a number of its own for each cost.
func (j *Joint) Hold(ctx context.Context, d time.Duration) (*Hold, error) {
	return j.limiter.Hold(ctx, "", 1, d)
}
