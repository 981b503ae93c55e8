package app

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/dashboard"
)

// mountDashboard puts the dashboard before the administrators' interface.
func (a *App) mountDashboard(o *admin.Options, secure bool) error {
	d, err := dashboard.New(dashboard.Options{
		Rules: o.Rules, Loaded: o.Loaded, Traffic: a.traffic, Overrides: o.Overrides.List, ThrottleKey: o.ThrottleKey,
		Checks: a.checks, Store: a.storeState, Callers: o.Callers, Secure: secure, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	maps.Copy(o.Mounts, d.Mounts())
	maps.Copy(o.Free, d.Free())
	o.Login = d
	return nil
}

// storeState tells how the store does, and what stands before it.
func (a *App) storeState(ctx context.Context) dashboard.Store {
	told := dashboard.Store{Facts: []dashboard.Fact{{Name: "Store", Value: strings.ReplaceAll(describe(a.options.Store), ",", ", ")}}}
	switch store := a.store.Taker.(type) {
	case *memstore.Store:
		s := store.Stats()
		told.Facts = append(told.Facts,
			dashboard.Fact{Name: "Shared by", Value: "this process alone"},
			dashboard.Fact{Name: "Keys", Value: fmt.Sprint(s.Keys)},
			dashboard.Fact{Name: "Memory of keys", Value: fmt.Sprintf("%.1f MiB", float64(s.Bytes)/(1<<20))},
			dashboard.Fact{Name: "Charges that shared a budget", Value: fmt.Sprint(s.Overflowed), Bad: s.Overflowed > 0},
		)
	case *redisstore.Store:
		told.Nodes = a.store.nodes.look(ctx)
		pool := poolOf(a.store.client)
		answer, err := a.answer(ctx)
		told.Err = err
		told.Facts = append(told.Facts, answer,
			dashboard.Fact{Name: "Instances", Value: a.instancesKnown()},
			dashboard.Fact{Name: "Connections", Value: fmt.Sprintf("%d, %d idle", pool.TotalConns, pool.IdleConns)},
			dashboard.Fact{Name: "Waits for a connection that timed out", Value: fmt.Sprint(pool.Timeouts), Bad: pool.Timeouts > 0},
			dashboard.Fact{Name: "Foreign values under our keys", Value: fmt.Sprint(store.Foreign()), Bad: store.Foreign() > 0},
		)
	}
	told.Facts = append(told.Facts, a.decorated()...)
	return told
}

// instancesKnown says how many instances share the store, and who says so.
func (a *App) instancesKnown() string {
	n := a.instances()
	switch {
	case a.options.Fallback.Instances > 0:
		return fmt.Sprintf("%d, as --instances says", n)
	case n == 1:
		return "this one alone"
	}
	return fmt.Sprintf("%d share this store", n)
}

// answer is how long the store takes to decide; the error says why it does not.
func (a *App) answer(ctx context.Context) (dashboard.Fact, error) {
	begun := time.Now()
	if err := a.storeTrouble(ctx); err != nil {
		return dashboard.Fact{Name: "Answers", Value: "no", Bad: true}, err
	}
	return dashboard.Fact{Name: "Answers", Value: "in " + time.Since(begun).Round(10*time.Microsecond).String()}, nil
}

// decorated is what the decorators spare the store.
func (a *App) decorated() []dashboard.Fact {
	var facts []dashboard.Fact
	if c := a.stack.Coalesce(); c != nil {
		if s := c.Stats(); s.Batches > 0 {
			facts = append(facts, dashboard.Fact{Name: "Acts a call", Value: fmt.Sprintf("%.2f, at most %d", float64(s.Acts)/float64(s.Batches), s.Largest)})
		}
	}
	if c := a.stack.DenyCache(); c != nil {
		facts = append(facts, dashboard.Fact{Name: "Refusals remembered", Value: fmt.Sprint(c.Stats().Entries)})
	}
	if l := a.stack.Lease(); l != nil {
		if s := l.Stats(); s.Keys > 0 {
			facts = append(facts, dashboard.Fact{Name: "Leased keys", Value: fmt.Sprintf("%d, %d units out", s.Keys, s.Left)})
		}
	}
	return facts
}
