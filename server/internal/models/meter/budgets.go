package meter

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/topk"
)

const (
	// maxBudgets is how many budgets are kept, those with most dollars.
	maxBudgets = 64
	// budgetsFor is how long the states of budgets are shown before the store is asked again.
	budgetsFor = time.Second
)

// A Budget is a limit of dollars, and what is used of its period, in millionths of a dollar.
type Budget struct {
	// Key is the key of the store, see [rules.ParseKey].
	Key  string
	Name string // of the limit
	// Limit is what is granted in a period, with raises and overrides; Period is its unit, such as
	// month.
	Limit  int64
	Period string
	// Used is what is settled, and what requests of other instances hold. Held is what open
	// requests of this instance hold.
	Used, Held, Remaining int64
	// ResetsAt is when all of it is free again; zero if it is now.
	ResetsAt time.Time
}

// budgets are the keys of limits of dollars that requests were charged under. The zero value has
// none. It is safe for concurrent use.
type budgets struct {
	mu    sync.Mutex
	kept  *topk.Counter[struct{}] // nil before the first
	asked time.Time               // when the states were asked for last
	known []Budget
}

// note counts the dollars that a granted request holds.
func (b *budgets) note(list []weir.Act) {
	for i := range list {
		for j := range list[i].Charges {
			if c := &list[i].Charges[j]; rules.MeterOf(c.Limit) == config.MeterUSD && !algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
				b.add(c.Key, uint64(max(1, c.Cost)))
			}
		}
	}
}

func (b *budgets) add(key string, units uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = topk.New[struct{}](maxBudgets)
	}
	b.kept.Add(key, units)
}

// due returns the keys that are kept, the first one first, if their states are to be asked for
// again, and else what was known last.
func (b *budgets) due(now time.Time) (keys []string, known []Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil || now.Before(b.asked.Add(budgetsFor)) {
		return nil, b.known
	}
	b.asked = now
	for _, k := range b.kept.Keys() {
		keys = append(keys, k.Name)
	}
	slices.Sort(keys)
	return keys, b.known
}

func (b *budgets) set(known []Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = known
}

// Budgets returns the limits of dollars under which requests of this instance were admitted since
// it started, those with most dollars, at most 64. The states are at most a second old; if the store
// does not answer, they are the last known ones.
func (p *Proxy) Budgets(ctx context.Context) []Budget {
	keys, known := p.budgets.due(time.Now())
	if len(keys) == 0 {
		return known
	}
	var plans []*rules.Plan
	var acts []*weir.Act
	seen, set := map[string]bool{}, p.Rules()
	for _, key := range keys {
		asked, _, _ := strings.Cut(key, ";")
		domain, entries, ok := rules.ParseKey(key)
		if !ok || domain != p.Domain || seen[asked] {
			continue
		}
		seen[asked] = true
		plan, err := set.Plan(&rules.Request{Domain: domain, Descriptors: [][]rules.Entry{entries}, Costs: meters})
		if err != nil {
			continue // The rules have changed.
		}
		for _, act := range plan.Acts {
			for i := range act.Charges {
				act.Charges[i].Cost = 0
			}
		}
		plans, acts = append(plans, plan), append(acts, plan.Acts...)
	}
	if len(acts) > 0 {
		p.Taker.Take(ctx, acts)
	}
	fresh := []Budget{}
	for _, plan := range plans {
		plan.Taken()
		for i := range plan.Applied {
			a := &plan.Applied[i]
			if a.Act == nil || meterOf(a) != config.MeterUSD || !slices.Contains(keys, a.Act.Charges[a.Charge].Key) {
				continue
			}
			if a.Act.Err != nil {
				return known
			}
			fresh = append(fresh, p.budgetOf(a))
		}
	}
	p.budgets.set(fresh)
	return fresh
}

// budgetOf describes a limit of dollars, whose charge was a peek.
func (p *Proxy) budgetOf(a *rules.Applied) Budget {
	key, d := a.Act.Charges[a.Charge].Key, a.Decision()
	used := max(0, a.Limit.Capacity()-d.Remaining)
	held := min(used, p.open.of(key).units)
	_, period, _ := strings.Cut(a.Limit.String(), "/")
	period, _, _ = strings.Cut(period, " ")
	b := Budget{Key: key, Name: a.Of.Name, Limit: a.Limit.Count, Period: period, Used: used - held, Held: held, Remaining: d.Remaining}
	if d.ResetAfter > 0 {
		b.ResetsAt = time.Now().Add(d.ResetAfter)
	}
	return b
}
