package remote_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// A cluster is a store of two nodes, named by the first letter of their keys. As in Redis Cluster,
// each has its part of an act, and of what is remembered of an ID.
type cluster struct {
	nodes map[string]weir.Taker
	taken atomic.Uint64
}

func newCluster(now func() time.Time) *cluster {
	c := &cluster{nodes: map[string]weir.Taker{}}
	for _, node := range []string{"a", "b"} {
		c.nodes[node] = memengine.New(memengine.Options{Now: now})
	}
	return c
}

// nodesOf returns the nodes of an act, in the order of its charges.
func nodesOf(a *weir.Act) (all []string) {
	for i := range a.Charges {
		if n := a.Charges[i].Key[:1]; !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

func (c *cluster) Take(ctx context.Context, all []*weir.Act) {
	for _, a := range all {
		if nodes := nodesOf(a); len(nodes) == 1 {
			c.nodes[nodes[0]].Take(ctx, []*weir.Act{a})
		} else {
			c.several(ctx, a, nodes)
		}
	}
}

// several decides an act of several nodes. A take that one of them refuses is withdrawn at those
// before it.
func (c *cluster) several(ctx context.Context, a *weir.Act, nodes []string) {
	whole := *a
	if takes := a.Kind == acts.KindTake; takes && a.ID == "" {
		whole.Scope.Owner, whole.ID = "cluster", "taken "+strconv.FormatUint(c.taken.Add(1), 10)
	}
	if a.Kind == acts.KindTake && whole.Attempt == 0 {
		whole.Attempt = c.taken.Add(1)
	}
	a.Err = nil
	clearUnlessAmended(a)
	var errs []error
	for n, node := range nodes {
		part := partOf(&whole, node)
		c.nodes[node].Take(ctx, []*weir.Act{part})
		for i, j := 0, 0; i < len(a.Charges); i++ {
			if a.Charges[i].Key[:1] == node {
				a.Decisions[i] = part.Decisions[j]
				j++
			}
		}
		if part.Err != nil {
			errs = append(errs, part.Err)
		}
		if a.Kind == acts.KindTake && (part.Err != nil || !part.Allowed()) {
			for _, before := range nodes[:n] {
				undo := partOf(&whole, before)
				undo.Kind = acts.KindWithdraw
				c.nodes[before].Take(ctx, []*weir.Act{undo})
			}
			for i := range a.Decisions {
				if d := &a.Decisions[i]; d.Outcome == weir.Granted {
					d.Outcome, d.Granted = weir.NotCharged, 0
				}
			}
			break
		}
	}
	if takes := a.Kind == acts.KindTake; len(errs) == len(nodes) || takes && len(errs) > 0 {
		a.Err = errs[0]
	} else if i := slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, weir.ErrUnknownID) }); i >= 0 {
		a.Err = errs[i]
	}
}

func clearUnlessAmended(a *weir.Act) {
	if a.Kind != acts.KindAmend {
		clear(a.Decisions)
	}
}

func partOf(a *weir.Act, node string) *weir.Act {
	part := *a
	part.Charges, part.Decisions, part.Err = nil, nil, nil
	for i := range a.Charges {
		if a.Charges[i].Key[:1] == node {
			part.Charges, part.Decisions = append(part.Charges, a.Charges[i]), append(part.Decisions, a.Decisions[i])
		}
	}
	return &part
}

// used is how many units of a key are charged.
func (c *cluster) used(key string, limit *weir.Limit) int64 {
	a := storetest.NewAct(weir.Charge{Key: key, Limit: limit})
	c.Take(context.Background(), []*weir.Act{a})
	return limit.Capacity() - a.Decisions[0].Remaining
}
