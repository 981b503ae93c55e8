package rls

import (
	"context"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// date gives refunds their instant, which is now by the store's clock: no other
// one tells for certain which window that is. A look tells the store's clock.
func (s *Service) date(ctx context.Context, plan *rules.Plan) error {
	var refunds, clocks []*weir.Act
	for _, act := range plan.Acts {
		if act.Kind != weir.KindRefund {
			continue
		}
		charge := act.Charges[0]
		charge.Cost = 0
		refunds = append(refunds, act)
		clocks = append(clocks, &weir.Act{Charges: []weir.Charge{charge}, Decisions: make([]weir.Decision, 1)})
	}
	if len(refunds) == 0 {
		return nil
	}
	s.options.Taker.Take(ctx, clocks)
	for i, act := range refunds {
		if clocks[i].Err != nil {
			return clocks[i].Err
		}
		act.Charges[0].At = clocks[i].Decisions[0].At
	}
	return nil
}
