package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
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
		if err := h.ask(h.acts()); err != nil {
			return fmt.Errorf("seed %d, act %d: %w", w.Seed, h.done, err)
		}
	}
	return nil
}

// NewAct returns an act with room for its answers.
func NewAct(charges ...weir.Charge) *weir.Act {
	return &weir.Act{Charges: charges, Decisions: make([]weir.Decision, len(charges))}
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
			return fmt.Errorf("%v %q, immediate %v, hold %v, max wait %v: charge %d of %d, key %q, limit %+v, cost %d, up to %d, keep %d, of %d + %v (-a +b):\n%s",
				a.Kind, a.ID, a.Immediate, a.Hold, a.MaxWait, i, len(a.Charges), c.Key, c.Limit, c.Cost, c.UpTo, c.Keep, c.At, c.Delay, diff)
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
