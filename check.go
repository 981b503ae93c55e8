package weir

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

func (a *Act) check() error {
	if a.Kind >= kinds {
		return invalid("kind", uint8(a.Kind), "take, refund, settle, release, renew, reset, record, amend or withdraw")
	}
	if len(a.Charges) == 0 || len(a.Charges) > MaxCharges {
		return invalid("charges", len(a.Charges), fmt.Sprintf("1 … %d charges", MaxCharges))
	}
	if a.Anonymous && (len(a.Charges) > 1 || a.ID != "" || a.Kind != kindTake && a.Kind != kindRefund && a.Kind != kindRecord) {
		return invalid("anonymous", true, "an act without an id that takes, refunds or records one charge")
	}
	if len(a.Decisions) != len(a.Charges) {
		return invalid("decisions", len(a.Decisions), "room for one answer a charge")
	}
	if err := a.checkOptions(); err != nil {
		return err
	}
	buckets := 0
	for i := range a.Charges {
		if err := a.checkCharge(i); err != nil {
			return err
		}
		buckets += int(a.Charges[i].Limit.rule.Buckets)
	}
	if len(a.Charges) == 1 {
		return nil
	}
	if err := a.checkKeys(); err != nil {
		return err
	}
	if err := a.checkAlternatives(); err != nil {
		return err
	}
	if buckets > algo.MaxBuckets {
		return invalid("charges", fmt.Sprintf("%d buckets of rolling windows", buckets), fmt.Sprintf("at most %d in all", algo.MaxBuckets))
	}
	return nil
}

func (a *Act) checkOptions() error {
	switch {
	case len(a.ID) > MaxIDBytes:
		return invalid("id", fmt.Sprintf("%d bytes", len(a.ID)), fmt.Sprintf("at most %d bytes", MaxIDBytes))
	case a.ID != "" && a.Scope.Owner == "":
		return invalid("scope.owner", "missing", "the owner of the id")
	case a.ID == "" && (a.Kind == kindSettle || a.Kind == kindRelease || a.Kind == kindRenew || a.Kind == kindAmend || a.Kind == kindWithdraw):
		return invalid("id", "missing", "the id of the take to "+a.Kind.String())
	case a.Attempt == 0 && a.Kind == kindWithdraw:
		return invalid("attempt", 0, "the number of the attempt to withdraw")
	case a.ID != "" && (a.Kind == kindReset || a.Kind == kindRecord):
		return invalid("id", quoted(a.ID), "none: "+a.Kind.String()+" has no id")
	case a.Hold < 0 || a.Hold > MaxWait || a.Hold%time.Millisecond != 0:
		return invalid("hold", a.Hold, "0 … 24h in whole milliseconds")
	case a.Hold > 0 && !a.takes() && a.Kind != kindRenew:
		return invalid("hold", a.Hold, "none: only take and renew hold")
	case a.Hold > 0 && a.ID == "":
		return invalid("id", "missing", "an id by which to settle or release the hold")
	case a.Dry && (a.Kind != kindTake || a.ID != "" || a.Anonymous || a.MaxWait != 0):
		return invalid("dry", true, "false: only a take without an id or a max_wait can be tried")
	case a.MaxWait < 0 || a.MaxWait > MaxWait || a.MaxWait > 0 && a.MaxWait < time.Microsecond:
		return invalid("max_wait", a.MaxWait, "0, or 1µs … 24h")
	case a.MaxWait > 0 && !a.takes():
		return invalid("max_wait", a.MaxWait, "none: only a take books ahead")
	}
	return nil
}

func (a *Act) checkCharge(i int) error {
	c := &a.Charges[i]
	switch {
	case c.Limit == nil || !c.Limit.compiled:
		return invalidIn("charges", i, "limit", "not compiled", "a limit that Compile returned")
	case len(c.Key) > MaxKeyBytes:
		return invalidIn("charges", i, "key", fmt.Sprintf("%d bytes", len(c.Key)), fmt.Sprintf("at most %d bytes", MaxKeyBytes))
	case c.Cost < 0 || c.Cost > c.Limit.maxCost():
		return invalidIn("charges", i, "cost", c.Cost, fmt.Sprintf("0 … %d", c.Limit.maxCost()))
	case c.Waived && (a.ID == "" || !a.takes() || c.Cost > 0 || c.UpTo > 0):
		return invalidIn("charges", i, "waived", true, "false: only charges without a cost of a take with an id are waived")
	case c.Block != 0 && (a.Kind != kindRecord || c.Block < 0 || c.Block > c.Limit.Block):
		return invalidIn("charges", i, "block", c.Block, fmt.Sprintf("0 … %v, the block of the limit, and only to record", c.Limit.Block))
	case a.MaxWait > 0 && c.Limit.Block > 0:
		return invalid("max_wait", a.MaxWait, "none: a limit with a block cannot be booked ahead")
	case a.MaxWait > 0 && !algo.TraitsOf(c.Limit.Algorithm).Books:
		return invalid("max_wait", a.MaxWait, "none: "+c.Limit.Algorithm.String()+" cannot be booked ahead")
	case a.Kind == kindRefund && a.ID == "" && c.At <= 0 && !a.Anonymous:
		return invalidIn("charges", i, "at", c.At, "the at of the decision to undo, or the id of its take")
	case c.Limit.rule.HoldsSlots():
		if err := a.checkHolder(i); err != nil {
			return err
		}
	}
	if c.UpTo != 0 || a.Charges[0].UpTo != 0 {
		if err := a.checkUpTo(i); err != nil {
			return err
		}
	}
	if c.Keep != 0 {
		if err := a.checkKeep(i); err != nil {
			return err
		}
	}
	if c.Guaranteed {
		if err := a.checkGuaranteed(i); err != nil {
			return err
		}
	}
	if a.Kind == kindAmend {
		if err := a.checkAnswer(i); err != nil {
			return err
		}
	}
	if i == 0 {
		return nil
	}
	return nil
}

// checkAnswer checks the answer that an Amend holds for a charge.
func (a *Act) checkAnswer(i int) error {
	d, c := &a.Decisions[i], &a.Charges[i]
	// More than the cost was granted if it was settled at more meanwhile.
	switch most := max(c.Cost, c.UpTo, MaxCost); {
	case d.Outcome > NotCharged:
		return invalidIn("decisions", i, "outcome", uint8(d.Outcome), "not_evaluated, granted, refused or not_charged")
	case d.Outcome == Granted && (d.Granted < 0 || d.Granted > most):
		return invalidIn("decisions", i, "granted", d.Granted, fmt.Sprintf("0 … %d", most))
	case d.RetryAfter < 0:
		return invalidIn("decisions", i, "retry_after", d.RetryAfter, "no negative duration")
	case d.Delay < 0:
		return invalidIn("decisions", i, "delay", d.Delay, "no negative duration")
	}
	return nil
}

// takes reports whether the act has the content of a take.
func (a *Act) takes() bool {
	return a.Kind == kindTake || a.Kind == kindAmend || a.Kind == kindWithdraw
}

// checkHolder checks a charge of a concurrency limit, which has holders and no
// units.
func (a *Act) checkHolder(i int) error {
	c := &a.Charges[i]
	switch {
	case a.Anonymous && (c.Cost > algo.MaxSlots || c.UpTo > 0):
		return invalidIn("charges", i, "cost", max(c.Cost, c.UpTo), fmt.Sprintf("0 … %d slots, all or none", algo.MaxSlots))
	case a.Anonymous:
	case a.Kind == kindRecord || a.Kind == kindRefund && a.ID == "":
		return invalid("kind", a.Kind, "take, settle, release, renew or reset: concurrency has holders, not units")
	case (a.takes() || a.Kind == kindSettle) && c.Cost > 1:
		return invalidIn("charges", i, "cost", c.Cost, "0 or 1: a holder takes one slot")
	case c.UpTo > 1:
		return invalidIn("charges", i, "up_to", c.UpTo, "0 or 1: a holder takes one slot")
	case a.Kind == kindTake && c.Cost == 1 && a.ID == "" && !a.Dry:
		return invalid("id", "missing", "an id that names the holder")
	}
	return nil
}

func (a *Act) checkUpTo(i int) error {
	c, first := &a.Charges[i], &a.Charges[0]
	switch {
	case c.UpTo != 0 && (!a.takes() || a.MaxWait > 0 || a.Dry):
		return invalidIn("charges", i, "up_to", c.UpTo, "none: only a take that does not book ahead and is no dry run is best effort")
	case c.UpTo != 0 && (c.Cost == 0 || c.UpTo < c.Cost || c.UpTo > MaxCost):
		return invalidIn("charges", i, "up_to", c.UpTo, fmt.Sprintf("the cost … %d, with a cost of at least 1", MaxCost))
	case c.UpTo != first.UpTo || c.UpTo != 0 && c.Cost != first.Cost:
		return invalidIn("charges", i, "up_to", c.UpTo, "one cost and one up_to for all charges of a best-effort act")
	}
	return nil
}

func (a *Act) checkKeep(i int) error {
	c, want := &a.Charges[i], ""
	switch {
	case c.Keep < 0 || c.Keep > algo.MaxWindow:
		want = fmt.Sprintf("0 … %d", int64(algo.MaxWindow))
	case a.Kind == kindRecord || a.Kind == kindReset:
		want = "none: " + a.Kind.String() + " charges what it says"
	case a.MaxWait > 0:
		want = "none: a charge that is booked ahead keeps nothing free until it is due"
	case c.Limit.ChargeRefused:
		want = "none: a limit that charges refused requests keeps nothing free"
	default:
		return nil
	}
	return invalidIn("charges", i, "keep", c.Keep, want)
}

// checkGuaranteed checks a charge that others decide.
func (a *Act) checkGuaranteed(i int) error {
	c, want := &a.Charges[i], ""
	switch {
	case c.Keep > 0:
		want = "false: the charge keeps units free"
	case a.MaxWait > 0:
		want = "false: a charge that is booked ahead has to fit"
	case c.Limit.Algorithm != GCRA || c.Limit.ChargeRefused:
		want = "false: only gcra without charge_refused is charged beyond its burst"
	case a.takes() && (i == 0 || a.Charges[i-1].Group != c.Group || a.Charges[i-1].Alt != c.Alt):
		want = "false: no charge before it decides the alternative"
	case a.takes() && a.Charges[i-1].tag() != c.tag():
		want = "false: the charge before it may be in another hash slot"
	default:
		return nil
	}
	return invalidIn("charges", i, "guaranteed", true, want)
}

// checkAlternatives checks the order of the charges, and groups with alternatives.
func (a *Act) checkAlternatives() error {
	for i := 1; i < len(a.Charges); i++ {
		switch p, c := &a.Charges[i-1], &a.Charges[i]; {
		case c.Group < p.Group:
			return invalidIn("charges", i, "group", c.Group, fmt.Sprintf("%d or more: charges stand in the order of their groups", p.Group))
		case c.Group == p.Group && c.Alt < p.Alt:
			return invalidIn("charges", i, "alt", c.Alt, fmt.Sprintf("%d or more: charges stand in the order of their alternatives", p.Alt))
		}
	}
	for i := 0; i < len(a.Charges); {
		end := groupEnd(a.Charges, i)
		if altEnd(a.Charges, i) < end {
			if err := a.checkGroup(i, end); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}

// checkGroup checks a group with alternatives.
func (a *Act) checkGroup(from, end int) error {
	tag := a.Charges[from].tag()
	for i := from; i < end; i++ {
		switch c := &a.Charges[i]; {
		case !a.takes() && a.ID == "":
			return invalidIn("charges", i, "alt", c.Alt, "no alternatives: "+a.Kind.String()+" without an id charges what it names")
		case a.MaxWait > 0:
			return invalid("max_wait", a.MaxWait, "none: an act with alternatives cannot be booked ahead")
		case c.Limit.ChargeRefused:
			return invalidIn("charges", i, "limit", c.Limit, "a limit without charge_refused: a refused alternative is not charged")
		case c.tag() != tag:
			return invalidIn("charges", i, "hash_tag", quoted(c.tag()), quoted(tag)+", one for all alternatives of a group")
		}
	}
	return nil
}

// tag is what places the charge's state in a Redis Cluster.
func (c *Charge) tag() string {
	if c.HashTag != "" {
		return c.HashTag
	}
	return c.Key
}

// checkKeys refuses keys that come under two limits in one act. Only charges whose key an earlier
// one has are compared with others.
func (a *Act) checkKeys() error {
	var keys keySet
	for i := range a.Charges {
		if len(a.Charges) > fewCharges && !keys.add(a.Charges, i) {
			continue
		}
		if err := a.checkKey(i); err != nil {
			return err
		}
	}
	return nil
}

// fewCharges are compared with one another faster than their keys are hashed.
const fewCharges = 8

// A keySet is the keys of an act's charges: a hash table of the first charge of each key, from 1.
type keySet [256]uint8

var keySeed = maphash.MakeSeed()

// add adds the key of the i-th charge, and reports whether it was there.
func (s *keySet) add(charges []Charge, i int) bool {
	key := charges[i].Key
	for at := uint8(maphash.String(keySeed, key)); ; at++ {
		switch first := s[at]; {
		case first == 0:
			s[at] = uint8(i + 1)
			return false
		case charges[first-1].Key == key:
			return true
		}
	}
}

// checkKey refuses a key that comes under two limits in one act.
func (a *Act) checkKey(i int) error {
	c := &a.Charges[i]
	for j := range i {
		other := &a.Charges[j]
		if other.Key == c.Key && other.Limit.rule.ID == c.Limit.rule.ID && other.Limit.rule != c.Limit.rule {
			return invalidIn("charges", i, "limit", c.Limit, "one limit for a key in an act; give each limit a key of its own")
		}
		if other.Group == c.Group && other.Alt != c.Alt {
			continue // one of the two at most is made
		}
		if other.Key == c.Key && c.Limit.rule.HoldsSlots() && other.Limit.rule.HoldsSlots() && c.Cost > 0 && other.Cost > 0 && a.takes() {
			return invalidIn("charges", i, "key", quoted(c.Key), "each key once: a holder takes one slot")
		}
	}
	return nil
}
