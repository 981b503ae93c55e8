package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// Twins are two Takers on one clock that must give equal answers to any history.
type Twins struct {
	A, B  weir.Taker
	Clock *Clock
	// Seed makes a history repeatable.
	Seed uint64
	// Algorithms are the algorithms that the history uses. Empty: all.
	Algorithms []weir.Algorithm
	// Forward: the clock never goes back.
	Forward bool
	// Lasting: the limits never change.
	Lasting bool
	// Listed: acts about a take list its own limits. Otherwise those that have a scope may
	// list others, and a Taker must then decide the acts of a call strictly in order.
	Listed bool
	// Waives: some charges of takes with an ID are waived, and some takes with an ID cost
	// nothing.
	Waives bool
	// Forgetful: no act is about a refused take that asked for slots, or about any such take of its
	// own call. If it is refused, it is forgotten at once, but not by several hash slots.
	Forgetful bool
	// Huge: the limits are fixed_windows of up to 10¹⁵−1 units and of few units, whose windows
	// are the same, so that large counts are charged, exceeded, settled and refunded.
	Huge bool
	// Blocks: most limits block the keys that they refuse.
	Blocks bool
}

const (
	twinKeys   = 4  // keys an algorithm
	twinActs   = 24 // most acts a call
	twinEpochs = 50 // calls before the limits change
	twinGrants = 32 // takes that are remembered, with an id and without
)

// Compare gives both the same random history of that many acts, with limits that change
// and a clock that also goes back, and returns the first difference.
func (w Twins) Compare(acts int) error {
	h := newHistory(w)
	if err := h.ask(h.first()); err != nil {
		return err
	}
	for calls := 0; h.done < acts; calls++ {
		if calls == 0 || calls%twinEpochs == 0 && !w.Lasting {
			h.change()
		}
		h.tick()
		if err := h.ask(withDryRuns(h.acts())); err != nil {
			return fmt.Errorf("seed %d, act %d: %w", w.Seed, h.done, err)
		}
	}
	return nil
}

// NewAct returns an act with room for its answers.
func NewAct(charges ...weir.Charge) *weir.Act {
	return &weir.Act{Charges: charges, Decisions: make([]weir.Decision, len(charges))}
}

// withDryRuns puts a dry run before some takes, which changes nothing about them.
func withDryRuns(list []*weir.Act) []*weir.Act {
	var all []*weir.Act
	for i, a := range list {
		if a.Kind == acts.KindTake && a.MaxWait == 0 && a.Charges[0].UpTo == 0 && !a.Anonymous && i%3 == 0 {
			dry := again(a)
			dry.Dry, dry.ID, dry.NewID, dry.ForgetRefused, dry.Hold, dry.Scope = true, "", false, false, 0, algo.Scope{}
			dry.Charges = slices.Clone(a.Charges)
			for j := range dry.Charges {
				dry.Charges[j].Waived = false
			}
			all = append(all, dry)
		}
		all = append(all, a)
	}
	return all
}

// foretold compares a dry run with the plain take that follows it at the same instant.
func foretold(dry, take *weir.Act) error {
	if !dry.Dry || dry.Err != nil || take.Err != nil || take.ID != "" {
		return nil
	}
	// A refusal that is charged, or begins a block, makes the next wait longer.
	grows := slices.ContainsFunc(take.Charges, func(c weir.Charge) bool { return c.Limit.ChargeRefused || c.Limit.Block > 0 })
	for i := range dry.Decisions {
		d, t := dry.Decisions[i], take.Decisions[i]
		if d.Granted != 0 || d.Outcome != t.Outcome || d.RetryAfter != t.RetryAfter && !grows || d.Delay != t.Delay {
			return fmt.Errorf("charge %d of %+v: a dry run says %+v, the take %+v", i, take.Charges, d, t)
		}
	}
	return nil
}

// again is an act that asks the same.
func again(a *weir.Act) *weir.Act {
	twin := *a
	twin.Err, twin.Decisions = nil, make([]weir.Decision, len(a.Charges))
	if a.Kind == acts.KindAmend {
		copy(twin.Decisions, a.Decisions)
	}
	return &twin
}

// ask puts one call to both and compares the answers.
func (h *history) ask(acts []*weir.Act) error {
	twins := make([]*weir.Act, len(acts))
	for i, a := range acts {
		twins[i] = again(a)
	}
	h.A.Take(context.Background(), acts)
	h.B.Take(context.Background(), twins)
	for i, a := range acts {
		if err := compare(a, twins[i]); err != nil {
			return err
		}
		if i+1 < len(acts) {
			if err := foretold(a, acts[i+1]); err != nil {
				return err
			}
		}
		h.note(a)
	}
	h.done += len(acts)
	return nil
}

func compare(a, b *weir.Act) error {
	if a.Err != nil || b.Err != nil {
		return compareErrors(a, b)
	}
	for i := range a.Charges {
		if diff := cmp.Diff(a.Decisions[i], b.Decisions[i], alike); diff != "" {
			c := a.Charges[i]
			for j := range a.Charges {
				diff += fmt.Sprintf("\ncharge %d: %v, group %d, alternative %d, (a) %v, (b) %v", j, a.Charges[j], a.Charges[j].Group, a.Charges[j].Alt, a.Decisions[j], b.Decisions[j])
			}
			return fmt.Errorf("%v %q, dry %v, immediate %v, hold %v, max wait %v: charge %d of %d, key %q, limit %+v, cost %d, up to %d, keep %d, of %d + %v (-a +b):\n%s",
				a.Kind, a.ID, a.Dry, a.Immediate, a.Hold, a.MaxWait, i, len(a.Charges), c.Key, c.Limit, c.Cost, c.UpTo, c.Keep, c.At, c.Delay, diff)
		}
	}
	return nil
}

// alike compares limits by what they decide. A store may know the limit of a decision by its
// text only.
var alike = cmp.Comparer(func(a, b *weir.Limit) bool { return a == b || a != nil && b != nil && a.String() == b.String() })

// compareErrors demands the same class, and the same error of an id.
func compareErrors(a, b *weir.Act) error {
	var first, second weir.IDError
	if errors.As(a.Err, &first) != errors.As(b.Err, &second) || first != second ||
		!errors.Is(a.Err, weir.ErrInvalid) || !errors.Is(b.Err, weir.ErrInvalid) {
		return fmt.Errorf("%v %q %+v: errors %v and %v", a.Kind, a.ID, a.Charges, a.Err, b.Err)
	}
	return nil
}
