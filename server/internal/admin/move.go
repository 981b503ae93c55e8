package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/problem"
)

// maxMoved is the most units that one limit can be moved with: a move records them in charges of at
// most [weir.MaxCost], and must not occupy the store.
const maxMoved = 1000 * weir.MaxCost

// move charges what a key has used to another key that has used nothing, and resets the first. What
// is used is recorded first, so that a move that breaks off counts it twice rather than not at all.
// Slots stay with their holders.
func (a *api) move(ctx context.Context, req *request, targets []target) (*changeAnswer, error) {
	aim := *req
	aim.entries, aim.to = req.to, nil
	others, err := a.find(&aim)
	if err == nil {
		others, err = affected("reset", &aim, others)
	}
	if err != nil {
		return nil, err
	}
	answer := &changeAnswer{Spread: "store"}
	var records, resets []*weir.Act
	for _, from := range targets {
		i := slices.IndexFunc(others, func(to target) bool { return to.name() == from.name() })
		if i < 0 || others[i].limit.Algorithm != from.limit.Algorithm || others[i].limit.Meter != from.limit.Meter {
			return nil, problem.Invalid("to", "another rule", fmt.Sprintf("a key with a limit %q of the same algorithm and count", from.name()))
		}
		to := others[i]
		if to.key == from.key {
			return nil, problem.Invalid("to", "the same key", "another one")
		}
		if algo.TraitsOf(from.limit.Algorithm).HoldsSlots {
			continue
		}
		used, err := a.used(ctx, &from)
		if err != nil {
			return nil, err
		}
		switch already, err := a.used(ctx, &to); {
		case err != nil:
			return nil, err
		case already > 0:
			return nil, &problem.Document{
				Status: http.StatusConflict, Code: "used", Field: "to",
				Detail: fmt.Sprintf("the limit %q of the key to move to has been used already: reset it first if that may be forgotten", to.name()),
			}
		case used > maxMoved:
			return nil, problem.Invalid("entries", fmt.Sprint(used, " units"), fmt.Sprintf("at most %d to move", int64(maxMoved)))
		}
		records = append(records, recordsOf(&to, used)...)
		resets = append(resets, newAct(acts.KindReset, weir.Charge{Key: from.key, HashTag: from.slot, Limit: from.limit}))
		answer.Keys = append(answer.Keys, changedKey{Name: from.name(), Key: to.key, Changed: used > 0})
	}
	for _, step := range [][]*weir.Act{records, resets} {
		if len(step) == 0 {
			continue
		}
		a.Taker.Take(ctx, step)
		for _, act := range step {
			if act.Err != nil {
				return nil, act.Err
			}
		}
	}
	return answer, nil
}

// used returns what a key has used of a limit, also beyond it.
func (a *api) used(ctx context.Context, t *target) (int64, error) {
	limit := wide(t)
	if limit.Algorithm == weir.FixedWindow && !limit.ChargeRefused {
		large := *limit
		large.Count = algo.MaxWindow
		if compiled, err := large.Compile(); err == nil {
			limit = compiled
		}
	}
	peek := newAct(acts.KindTake, weir.Charge{Key: t.key, HashTag: t.slot, Limit: limit})
	if a.Taker.Take(ctx, []*weir.Act{peek}); peek.Err != nil {
		return 0, peek.Err
	}
	return max(0, peek.LimitOf(0).Capacity()-peek.Decisions[0].Remaining), nil
}

// recordsOf returns acts that charge units to a key, however few it has left.
func recordsOf(t *target, units int64) (all []*weir.Act) {
	for units > 0 {
		var charges []weir.Charge
		for units > 0 && len(charges) < weir.MaxCharges {
			cost := min(units, weir.MaxCost)
			charges = append(charges, weir.Charge{Key: t.key, HashTag: t.slot, Limit: t.limit, Cost: cost})
			units -= cost
		}
		all = append(all, newAct(acts.KindRecord, charges...))
	}
	return all
}
