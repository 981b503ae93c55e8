package rls

import (
	"context"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// take decides the plan. Limits that share an act are charged last, and only if no peek
// and no other limit refuses the request.
func (s *Service) take(ctx context.Context, c *call) error {
	if len(c.plan.Acts) == 0 {
		return nil
	}
	ctx = s.within(ctx)
	if sh := stepsFor(c.plan, c); sh != nil {
		return s.takeInSteps(ctx, sh)
	}
	return s.takeActs(ctx, c.plan, c.plan.Acts)
}

// within returns the context of decisions. They do not depend on the client's connection, so
// that no charge stays half known. Their deadline, if there is one, is when the client stops
// waiting.
func (s *Service) within(ctx context.Context) context.Context {
	if end, ok := ctx.Deadline(); ok {
		return s.clock.Before(ctx, end)
	}
	return s.ends.Context(ctx)
}

// takeActs decides acts that elements of the plan's Applied refer to.
func (s *Service) takeActs(ctx context.Context, plan *rules.Plan, acts []*weir.Act) error {
	plan.TakeActs(ctx, s.options.Taker, acts)
	return s.failed(ctx, plan)
}

// failed returns why the store did not decide the acts of a plan; nil if it did.
func (s *Service) failed(ctx context.Context, plan *rules.Plan) error {
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act != nil && a.Act.Err != nil && !a.Rule.OnTrial && !acts.Kept(a.Act.Err) {
			return s.report(ctx, a.Act.Err)
		}
	}
	return nil
}

// steps decide a shared act that one call cannot decide: it has peeks, or comes with
// limits that are decided alone, either of which may refuse the request, or it has
// descriptors in quota mode, whose refusal does not always refuse the request.
type steps struct {
	plan *rules.Plan
	*call
	act *weir.Act
	// applied are the owners of act's charges.
	applied []*rules.Applied
	// first says that the next act peeks at all charges.
	first bool
	// made is the last act that charged, nil before the first one.
	made *weir.Act
}

// stepsFor returns how to decide the shared act; nil if one call can take all acts.
func stepsFor(plan *rules.Plan, c *call) *steps {
	if plan.Shared == nil {
		return nil
	}
	charges, peeked, alone, quotas := false, false, false, false
	for i := range plan.Applied {
		switch a := &plan.Applied[i]; {
		case a.Act == nil:
		case a.Act == plan.Shared:
			cost := a.Act.Charges[a.Charge].Cost
			charges, peeked = charges || cost > 0, peeked || cost == 0
			quotas = quotas || c.quota[a.Descriptor] == together
		case a.Act.Kind == acts.KindTake && !a.Rule.Shadow:
			alone = true
		}
	}
	if !charges || !peeked && !alone && !quotas {
		return nil
	}
	sh := &steps{plan: plan, call: c, act: plan.Shared, first: peeked || alone}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; a.Act == sh.act {
			sh.applied = append(sh.applied, a)
		}
	}
	return sh
}

// takeInSteps decides every act but the shared one, at which it peeks. Then it charges
// the shared act. If only descriptors in quota mode refuse it, and others remain that may
// let the request pass, it charges it again without those. A refused act charges nothing,
// so only the act that lets the request pass is charged.
func (s *Service) takeInSteps(ctx context.Context, sh *steps) error {
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

// next returns the next act for the charges whose descriptors do not refuse, nil if there
// is none: first a peek at all of them, if needed, then charges.
func (sh *steps) next() *weir.Act {
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

// note records which descriptors refuse by now, and reports whether there are more of
// them. Charges that were only peeked at have not refused yet.
func (s *Service) note(sh *steps) (more bool) {
	for i := range sh.plan.Applied {
		a := &sh.plan.Applied[i]
		if a.Rule.OnTrial || !a.Chosen() || sh.over[a.Descriptor] || sh.made == nil && sh.charges(a) {
			continue
		}
		r := s.rule(a, sh.asked.Each[a.Descriptor].Cost)
		sh.over[a.Descriptor] = r.over
		more = more || r.over
	}
	return more
}

// charges reports whether the shared act is to charge an applied limit.
func (sh *steps) charges(a *rules.Applied) bool {
	i := slices.Index(sh.applied, a)
	return i >= 0 && sh.act.Charges[i].Cost > 0
}
