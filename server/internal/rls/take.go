package rls

import (
	"context"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// take has the plan decided. Limits that share an act are charged last, and only
// if no look and no other limit refuses the request.
func (s *Service) take(ctx context.Context, plan *rules.Plan, c *call) error {
	for i := range c.quota {
		c.quota[i] = s.options.quotaOf(nil)
	}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; !a.Rule.OnTrial {
			c.quota[a.Descriptor] = s.options.quotaOf(a.Rule)
		}
	}
	if len(plan.Acts) == 0 {
		return nil
	}
	// A caller who hangs up must not leave a charge half known; the wait is
	// bounded anyway, for callers who say when they leave by that.
	if leaves, said := ctx.Deadline(); said {
		ctx = s.clock.Before(ctx, leaves)
	} else {
		ctx = s.ends.Context(ctx)
	}
	if err := s.date(ctx, plan); err != nil {
		return s.report(ctx, err)
	}
	if sh := share(plan, c); sh != nil {
		return s.takeInSteps(ctx, sh)
	}
	return s.takeActs(ctx, plan, plan.Acts)
}

// takeActs has acts decided that elements of the plan's Applied point to.
func (s *Service) takeActs(ctx context.Context, plan *rules.Plan, acts []*weir.Act) error {
	plan.TakeActs(ctx, s.options.Taker, acts)
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act != nil && a.Act.Err != nil && !a.Rule.OnTrial {
			return s.report(ctx, a.Act.Err)
		}
	}
	return nil
}

// sharing is a shared act that one step cannot decide: it comes with looks or with
// limits that are decided by themselves, either of which may refuse the request,
// or with descriptors in quota mode, which a refused limit does not always refuse.
type sharing struct {
	plan *rules.Plan
	*call
	act *weir.Act
	// applied are whom the charges of act are for.
	applied []*rules.Applied
	// first says that the shared act is looked at before it is charged.
	first bool
	// made is the last act that was to charge, nil before the first one.
	made *weir.Act
}

// share returns how to decide the shared act; nil if all acts can be taken at once.
func share(plan *rules.Plan, c *call) *sharing {
	if plan.Shared == nil {
		return nil
	}
	charges, looked, others, quotas := false, false, false, false
	for i := range plan.Applied {
		switch a := &plan.Applied[i]; {
		case a.Act == nil:
		case a.Act == plan.Shared:
			cost := a.Act.Charges[a.Charge].Cost
			charges, looked = charges || cost > 0, looked || cost == 0
			quotas = quotas || c.quota[a.Descriptor] == together
		case a.Act.Kind == weir.KindTake && !a.Rule.Shadow:
			others = true
		}
	}
	if !charges || !looked && !others && !quotas {
		return nil
	}
	sh := &sharing{plan: plan, call: c, act: plan.Shared, first: looked || others}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; a.Act == sh.act {
			sh.applied = append(sh.applied, a)
		}
	}
	return sh
}

// takeInSteps decides every act but the shared one, which it looks at meanwhile.
// Then it charges the shared act. As long as only descriptors in quota mode refuse
// it, and others are left that may let the request pass, it does so again without
// those. A refused act charges nothing, so only what lets the request pass is charged.
func (s *Service) takeInSteps(ctx context.Context, sh *sharing) error {
	acts := slices.Clone(sh.plan.Acts)
	acts[slices.Index(acts, sh.act)] = sh.next()
	for acts != nil {
		if err := s.takeActs(ctx, sh.plan, acts); err != nil {
			return err
		}
		refused := s.note(sh)
		if sh.made != nil && sh.made.Allowed() || sh.refused() || sh.made != nil && !refused {
			return nil
		}
		acts = nil
		if act := sh.next(); act != nil {
			acts = []*weir.Act{act}
		}
	}
	return nil
}

// next returns the next act for the charges whose descriptors do not refuse, nil if
// there is none: a look at all of them first, where that is wanted, then a charge.
func (sh *sharing) next() *weir.Act {
	act := *sh.act
	act.Charges, act.Decisions = nil, nil
	for i, a := range sh.applied {
		charge := sh.act.Charges[i]
		if !sh.first && (charge.Cost == 0 || sh.over[a.Descriptor]) {
			continue
		}
		if sh.first {
			charge.Cost = 0
		}
		a.Act, a.Charge = &act, len(act.Charges)
		act.Charges = append(act.Charges, charge)
	}
	if len(act.Charges) == 0 {
		return nil
	}
	act.Decisions = make([]weir.Decision, len(act.Charges))
	if !sh.first {
		sh.made = &act
	}
	sh.first = false
	return &act
}

// note notes which descriptors refuse by now, and reports whether there are more of
// them. Charges that were only looked at so far have not refused yet.
func (s *Service) note(sh *sharing) (more bool) {
	for i := range sh.plan.Applied {
		a := &sh.plan.Applied[i]
		if a.Rule.OnTrial || sh.over[a.Descriptor] || sh.made == nil && sh.charges(a) {
			continue
		}
		r := s.rule(a, sh.asked.Each[a.Descriptor].Cost)
		sh.over[a.Descriptor] = r.over
		more = more || r.over
	}
	return more
}

// charges reports whether an applied limit is one that the shared act is to charge.
func (sh *sharing) charges(a *rules.Applied) bool {
	i := slices.Index(sh.applied, a)
	return i >= 0 && sh.act.Charges[i].Cost > 0
}
