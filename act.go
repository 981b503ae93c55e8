package weir

import (
	"fmt"
	"math"
	"time"
)

// Bounds of an act. Whatever lies outside is answered with an [InvalidError] and
// charges nothing.
const (
	// MaxCharges is how many charges one act may hold.
	MaxCharges = 64
	// MaxCost is the largest cost of a charge.
	MaxCost = 1_000_000_000
	// MaxKeyBytes is the length of the longest key.
	MaxKeyBytes = 64 << 10
	// MaxCount is the largest value of a counter: what a limit that charges
	// refused requests saturates at, and the largest cost it takes.
	MaxCount = 1<<53 - 1
)

// Kind is what an act does.
type Kind uint8

// Take decides the charges and makes them if all of them fit. The zero value.
const Take Kind = iota

// An Act is what one caller asks at one instant: all its charges are made, or
// none is. It is the caller's memory: a caller may reuse it, with its slices,
// once the Take that decides it has returned.
type Act struct {
	Kind    Kind
	Charges []Charge
	// Decisions receives the answers; the caller brings len(Charges) of them.
	Decisions []Decision
	// Err is set where no decision was reached for this act; the decisions mean
	// nothing then.
	Err error
}

// A Charge asks to spend Cost units of the budget that Key has under Limit.
// Later charges of an act see what its earlier ones take from the same key.
type Charge struct {
	// Key says whose budget; any bytes. Keys with different limits are
	// different budgets only if the keys differ, so give each limit keys of its
	// own, as [Limiter] does.
	Key string
	// Slot places the state in a Redis Cluster: charges with one Slot share a
	// slot and can be decided together. Empty: the Key places it.
	Slot string
	// Limit comes from [Limit.Compile].
	Limit *Limit
	// Cost is how many units to charge; 0 looks: nothing is charged, and the
	// decision says what remains.
	Cost int64
	// UpTo, if set, makes the charge best effort: at least Cost units, at most
	// UpTo, as many as fit. All charges of such an act have one Cost and one
	// UpTo, and each is granted what fits all of them.
	UpTo int64
}

// Prepare checks the act and answers it where no store is needed: an act outside
// the contract gets its Err, one that a limit with a count of 0 refuses its
// decisions. It reports whether the act is done. Stores call it first.
func (a *Act) Prepare() bool {
	a.Err = a.check()
	if a.Err != nil {
		return true
	}
	return a.denied()
}

func (a *Act) check() error {
	if a.Kind != Take {
		return invalid("kind", a.Kind, "take")
	}
	if len(a.Charges) == 0 || len(a.Charges) > MaxCharges {
		return invalid("charges", len(a.Charges), fmt.Sprintf("1 … %d charges", MaxCharges))
	}
	if len(a.Decisions) != len(a.Charges) {
		return invalid("decisions", len(a.Decisions), "room for one answer a charge")
	}
	for i := range a.Charges {
		if err := a.checkCharge(i); err != nil {
			return err
		}
	}
	return nil
}

func (a *Act) checkCharge(i int) error {
	c := &a.Charges[i]
	field := func(name string) string { return fmt.Sprintf("charges[%d].%s", i, name) }
	switch {
	case c.Limit == nil || !c.Limit.compiled:
		return invalid(field("limit"), "not compiled", "a limit that Compile returned")
	case len(c.Key) > MaxKeyBytes:
		return invalid(field("key"), fmt.Sprintf("%d bytes", len(c.Key)), fmt.Sprintf("at most %d bytes", MaxKeyBytes))
	case c.Cost < 0 || c.Cost > c.Limit.maxCost():
		return invalid(field("cost"), c.Cost, fmt.Sprintf("0 … %d", c.Limit.maxCost()))
	case c.UpTo != 0 && (c.Cost == 0 || c.UpTo < c.Cost || c.UpTo > MaxCost):
		return invalid(field("up_to"), c.UpTo, fmt.Sprintf("the cost … %d, with a cost of at least 1", MaxCost))
	case c.UpTo != a.Charges[0].UpTo || c.UpTo != 0 && c.Cost != a.Charges[0].Cost:
		return invalid(field("up_to"), c.UpTo, "one cost and one up_to for all charges of a best-effort act")
	}
	for j := range i {
		if a.Charges[j].Key == c.Key && a.Charges[j].Limit.rule.ID == c.Limit.rule.ID && a.Charges[j].Limit.rule != c.Limit.rule {
			return invalid(field("limit"), c.Limit, "one limit for a key in an act; give each limit a key of its own")
		}
	}
	return nil
}

// denied refuses the act if it charges a limit whose count is 0.
func (a *Act) denied() bool {
	denied := false
	for i := range a.Charges {
		if a.Charges[i].Limit.Count == 0 && a.Charges[i].Cost > 0 {
			denied = true
		}
	}
	if !denied {
		return false
	}
	for i := range a.Charges {
		a.Decisions[i] = Decision{}
		if a.Charges[i].Limit.Count == 0 && a.Charges[i].Cost > 0 {
			a.Decisions[i] = Decision{Outcome: Refused, Source: SourceLimit, RetryAfter: Never}
		}
	}
	return true
}

// Allowed reports whether every charge of a decided act was granted.
func (a *Act) Allowed() bool {
	for i := range a.Decisions {
		if !a.Decisions[i].Allowed() {
			return false
		}
	}
	return a.Err == nil
}

// DurationOf returns a number of microseconds as a duration, [Never] where it
// does not fit one.
func DurationOf(micros int64) time.Duration {
	if micros > math.MaxInt64/1000 {
		return Never
	}
	return time.Duration(micros) * time.Microsecond
}
