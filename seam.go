package weir

import (
	"context"
	"math/bits"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// Bounds of an act. An act outside of them fails with an [InvalidError] and charges
// nothing.
const (
	// MaxCharges is the largest number of charges of an act.
	MaxCharges = 64
	// MaxCost is the largest cost of a charge.
	MaxCost = 1_000_000_000
	// MaxKeyBytes is the greatest length of a key.
	MaxKeyBytes = 64 << 10
	// MaxIDBytes is the greatest length of an ID.
	MaxIDBytes = 128
	// MaxWait is the longest time by which a charge can be booked ahead, and the longest
	// duration of a hold.
	MaxWait = 24 * time.Hour
)

// For stores and layers: programs that only limit requests need nothing of this file. A
// [Taker] decides acts, and an [Act] is one caller's request with all its charges. The stores
// are Weir's own; layers may be yours.

// A Taker decides acts. Stores implement it, layers wrap it, and a [Limiter] or a
// server uses it.
//
// Take decides every act of the slice, in order, each separately. When it
// returns, each act has either an Err or a Decision for every charge, in the
// order of its charges; nothing else in the act has changed. No other goroutine may use
// the acts until then.
//
// An error never means that a charge was refused. It means that no decision was
// reached, and its class (see [ErrInvalid] and those after it) says what is
// known. Cancelling ctx ends the wait, but not necessarily the charge.
//
// Implementations are safe for concurrent use.
//
// A Taker that decides from memory may also have the method
//
//	TakeOne(prefix, key string, limit *Limit, cost int64) (d Decision, decided bool)
//
// It decides a take of one valid charge, whose Key is the prefix and the key, as Take would,
// without an Act, and sets the decision's Limit. If decided is false, nothing was charged,
// and the caller calls Take instead. A [Limiter] with one limit uses it, which is faster.
//
// A Taker that never waits for longer than a certain time, whatever its context, may also have
// the method
//
//	Patience() time.Duration
//
// which returns that time. Calls that outlive their callers, such as [Hold.Settle], are then
// left to it, which is faster.
type Taker interface {
	Take(ctx context.Context, acts []*Act)
}

type oneTaker interface {
	TakeOne(prefix, key string, limit *Limit, cost int64) (d Decision, decided bool)
}

type patientTaker interface {
	Patience() time.Duration
}

// scope is what belongs to an ID.
type scope = algo.Scope

// A Kind says what an act does; its String is its name.
//
//   - take, the zero value, decides the charges and makes them if all of them fit.
//   - refund refunds Cost units to each key: those of the take with the act's ID, or else
//     of the decision that was made at the charge's At. It refunds only units that still
//     count, and never more than a full budget; Granted is their number.
//   - settle replaces the units that the take with the act's ID was granted by Cost. It
//     refunds the difference, or charges it even if it does not fit.
//   - release refunds all units that the take with the act's ID was granted.
//   - renew extends the lease of a holder of a concurrency limit, and the life of the hold,
//     to Hold from now.
//   - reset makes the keys fresh.
//   - record charges Cost units even if they do not fit, up to one full drain beyond the
//     limit.
//   - amend corrects a take to the answer that its caller got while the store was late or
//     unreachable.
//   - withdraw withdraws one attempt of a take, because its caller got an error. Once
//     none is left, the take's units are refunded, and it is forgotten.
//
// An amend is the take itself, with its ID and another Kind. Before the call its Decisions
// hold the caller's answer: the Outcome and Granted of each charge, and the RetryAfter and
// Delay for a repeat of the take. The store charges missing units even if they do not fit,
// up to one full drain beyond the limit, and refunds surplus units as far as they still
// count. The holder of a concurrency limit gets a slot even above the Count, because it is
// running already; a holder that was refused loses its slot. A limit with ChargeRefused
// keeps the cost of a refusal.
//
// Afterwards the store gives the same answer to a repeat of the take, and to the take
// itself if it arrives only then, and charges neither. An amend is idempotent: it may come
// before or after the take, more than once, and from any server. The take is granted if
// every charge was; otherwise only limits with ChargeRefused charge anything. A take that
// was settled, released or refunded in between does not change, and the decisions then hold
// the store's answer to it. Otherwise they hold the units that are charged now: Granted is 0
// if the caller was refused. Front ends never accept an amend from a client.
type Kind uint8

// Package acts exports these to stores and layers.
const (
	kindTake Kind = iota
	kindRefund
	kindSettle
	kindRelease
	kindRenew
	kindReset
	kindRecord
	kindAmend
	kindWithdraw
	kinds
)

var kindNames = [kinds]string{
	kindTake: "take", kindRefund: "refund", kindSettle: "settle", kindRelease: "release",
	kindRenew: "renew", kindReset: "reset", kindRecord: "record", kindAmend: "amend",
	kindWithdraw: "withdraw",
}

// String returns the kind's name in messages.
func (k Kind) String() string { return nameOf(kindNames[:], uint8(k)) }

// An Act is one caller's request at one instant: all its charges are made, or none
// is. If charges have alternatives, see [Charge], one alternative of each group is made.
// The act belongs to its caller: Take changes only its Decisions and Err, and the caller
// may reuse it, with its slices, once Take has returned.
type Act struct {
	Kind Kind
	// ID makes a take happen once: a repeat with the same content gets the first
	// answer and charges nothing. The same applies to an act that refunds, settles or
	// releases it. An ID belongs to the Owner of the Scope: the same ID of another owner is
	// another ID. It names the holder of a concurrency limit. It has at most
	// [MaxIDBytes] bytes and is remembered for ten minutes, or as long as the hold or lease
	// if that is longer, or for ten seconds if the take is refused. A refused take with a
	// slot of a concurrency limit is not remembered: its repeat is decided again.
	ID string
	// Scope has the Owner of the ID, a text, and what the act Asks for, in any text: another
	// one is other content. If it has no Asks, the costs of the charges are the content.
	Scope scope
	// NewID says that the ID was made for this one act, so that no caller repeats
	// the take: the store does not remember the ID if it refuses the take. If such a
	// take is amended, units that a limit charged for refusing it count in addition.
	NewID bool
	// Attempt numbers the calls of a take with an ID, so that one of them can be withdrawn: each
	// call has a random number. 0: the call is never withdrawn. A withdraw is the take itself,
	// with another Kind. It may arrive before or after the take, and more than once. A take
	// whose attempt was withdrawn charges nothing; other attempts are not affected.
	Attempt uint64
	// ForgetRefused keeps the store from remembering the ID if it refuses the take,
	// although a caller may repeat the take: the repeat is then decided again.
	ForgetRefused bool
	// Anonymous is for callers that cannot name the take that they refund, such as Envoy,
	// which reports the end of a request by negative hits. It is for acts without an ID
	// that take, refund or record one charge.
	//
	// An anonymous refund has no At: it refunds the newest units of its key. Under a
	// concurrency limit an anonymous take takes Cost slots, whose leases end after the
	// Period, and an anonymous refund returns the Cost oldest slots. Every anonymous take
	// under a concurrency limit has to be refunded, even if it was refused: the store
	// remembers the number of refused takes for a Period, and that many refunds return
	// no slot. So a refund never returns the slot of a caller that is still running. An
	// anonymous record takes slots even above the Count.
	Anonymous bool
	// Hold is the time in which a take whose cost is an estimate can be settled
	// or released; it needs an ID. For a renewal it is the new lease; zero is the
	// limit's Period. At most [MaxWait].
	Hold time.Duration
	// MaxWait, if set, books charges ahead that do not fit now but will within that
	// time; the decision's Delay is the wait. All limits must be gcra, token_bucket or
	// leaky_bucket. At most the constant [MaxWait].
	MaxWait time.Duration
	// Immediate refuses charges that a leaky_bucket would grant with a delay, for
	// callers that cannot wait.
	Immediate bool
	// Dry asks whether a take would be granted, and when: its decisions are those of the
	// take, but nothing is charged, and no units are Granted. It is for takes without an ID,
	// UpTo or MaxWait. Units that a layer has leased do not count: it asks the store.
	Dry     bool
	Charges []Charge
	// Decisions receives the answers; the caller provides len(Charges) of them. An Amend
	// reads from them which answer the caller of the take got.
	Decisions []Decision
	// Err is set if no decision was reached for this act; the decisions then have no
	// meaning.
	Err error

	// checked acts are valid: a Limiter or TakeValid has checked them.
	checked bool
}

// A Charge asks to spend Cost units of the budget that Key has under Limit.
// Later charges of an act see the units that its earlier ones take from the same key.
type Charge struct {
	// Key names the budget; any bytes. Two limits have different budgets only if
	// their keys differ, so give each limit its own keys, as [Limiter] does.
	Key string
	// HashTag chooses the hash slot of a Redis Cluster: charges with the same HashTag
	// share a hash slot and can be decided together. Empty: the Key chooses it.
	HashTag string
	// Owner is the key of all charges that one rule makes for a caller, if the charges
	// have alternatives or belong to a shared budget. With it, a layer can block only
	// this caller. Nothing is counted under it. Empty: the Key stands for the caller.
	Owner string
	// Limit is a compiled limit, see [Limit.Compile].
	Limit *Limit
	// Cost is the number of units to charge. 0 is a peek: nothing is charged, and the
	// decision says how many units remain.
	Cost int64
	// UpTo, if set, makes the charge best effort: at least Cost units, at most
	// UpTo, as many as fit. All charges of such an act have the same Cost and the same
	// UpTo, and each is granted the units that fit all of them.
	UpTo int64
	// Keep leaves room for other callers: the charge is granted only if that many units are
	// still free after it. It charges its Cost and no more, and the decision's Remaining and
	// RetryAfter take the Keep into account. With it, classes of different priority share
	// one budget: a batch job that keeps 300 of 1000 never takes the last 300. At most
	// 999 999 999 999 999, the largest Count; not for a take that books ahead, and only for
	// limits without ChargeRefused. In an act that is no take, it only lowers Remaining.
	Keep int64
	// Guaranteed leaves the decision to the charges before it in the same alternative: if
	// they fit, it is made even if it does not, up to one full drain beyond the limit. Its
	// decision is never a refusal, and its Remaining is at least that of the charge before
	// it. It is for the budget of [Shares], beside the limit of a class with the same HashTag
	// or Key, and for gcra limits without ChargeRefused.
	Guaranteed bool
	// Block is for an act that records: the key is blocked for that long at least, as by the
	// Block of its Limit, and no longer than that Block.
	Block time.Duration
	// Waived is for a layer that grants a charge of a take with an ID although its limit does
	// not apply now. The charge has a Cost of 0, and the store remembers that the take does
	// not have it: its decision is [NotEvaluated] by the store, and later acts about the take
	// leave it alone, whatever limit applies then.
	Waived bool
	// Group and Alt give an act alternatives. The charges of a Group with the same Alt are
	// one alternative: all of them are made, or none. In each Group, in order, the first
	// alternative is made that fits beside the charges of earlier groups; the act is
	// refused if a Group has none. The charges of an act are in the order of Group and Alt.
	//
	// The decisions on the charges of other alternatives are [NotEvaluated], and have only
	// the Remaining units. If no alternative of a Group fits, all of them have decisions, and
	// the one with the shortest wait is the Group's answer. If the charges of a Group cost
	// nothing, all its alternatives are evaluated; but a take with an ID makes the one with
	// most room, and a settlement charges that one. With UpTo, the alternative is made that is
	// granted most, and the first of several.
	//
	// A Group with several alternatives needs one HashTag for all its charges, or one Key,
	// and no limit with ChargeRefused. Its act cannot be booked ahead. An act about the ID
	// of a take changes only the charges that the take was granted.
	Group, Alt uint8
	// At and Delay are those of the decision that a refund without an ID undoes.
	At    int64
	Delay time.Duration
}

// TakeValid sets the Err of invalid acts and has take decide the valid ones, unless they were
// checked already above. For stores, and for the top of layers.
func TakeValid(ctx context.Context, acts []*Act, take func(ctx context.Context, acts []*Act)) {
	valid, marked := acts, false
	for i, a := range acts {
		if a.checked {
			continue
		}
		marked = true
		if a.Err = a.check(); a.Err == nil {
			a.checked = true
			continue
		}
		valid = make([]*Act, i, len(acts))
		copy(valid, acts)
		for _, b := range acts[i+1:] {
			if b.Err = b.check(); b.Err == nil {
				valid, b.checked = append(valid, b), true
			}
		}
		break
	}
	if len(valid) > 0 {
		take(ctx, valid)
	}
	for i := 0; marked && i < len(valid); i++ {
		valid[i].checked = false // the caller may change it
	}
}

// LimitOf returns the limit that decided the i-th charge of a decided act.
func (a *Act) LimitOf(i int) *Limit { return decidedBy(a.Charges, a.Decisions, i) }

// Allowed reports whether a decided act was granted: every charge, or one alternative of
// each Group.
func (a *Act) Allowed() bool {
	if !granted(a.Decisions, 0, len(a.Decisions)) && (!a.Alternatives() || !a.allowed()) {
		return false
	}
	return a.Err == nil
}

// Verdict returns what the decisions on a decided act say together: the index of the one that
// answers for all of them, and that decision, with its Limit, its Alternative if the act has
// some, and the longest Delay of all. It is allowed if the act is. Without decisions, the
// index is -1.
//
// The one that answers is the refusal with the longest RetryAfter or, without a refusal,
// the decision with the least Remaining in proportion to the limit's Count. The first
// wins a tie. For a Group with alternatives, the granted alternative counts, or else the
// one with the shortest RetryAfter; after a peek, the one with most remaining. Within it,
// without a refusal, the least Remaining counts: one charge could take that many units.
func (a *Act) Verdict() (int, Decision) {
	var d Decision
	i := a.verdict(&d)
	return i, d
}

// verdict is [Act.Verdict] in place: a decision is large, and each copy costs a refusal from memory
// some percent.
func (a *Act) verdict(d *Decision) int {
	i := decisive(a.Charges, a.Decisions)
	if i < 0 {
		*d = Decision{}
		return i
	}
	*d = a.Decisions[i]
	d.Limit = a.LimitOf(i)
	if len(a.Decisions) == 1 {
		return i
	}
	if a.Alternatives() {
		d.Alternative = a.Charges[i].Alt + 1
	}
	for j := range a.Decisions {
		d.Delay = max(d.Delay, a.Decisions[j].Delay)
	}
	return i
}

// decisive returns the index of the decision that answers for all of them, or -1.
func decisive(charges []Charge, decisions []Decision) int {
	if len(decisions) == 1 {
		return 0
	}
	best := -1
	for i := 0; i < len(decisions); {
		// Nearly all acts have one group with one alternative.
		end := min(altEnd(charges, i), len(decisions))
		next := strictest(charges, decisions, i, end)
		if end < len(decisions) && charges[end].Group == charges[i].Group {
			next, end = easiest(charges, decisions, i)
		}
		if best < 0 || decisions[next].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || stricter(charges, decisions, next, best)) {
			best = next
		}
		i = end
	}
	return best
}

// strictest returns the strictest decision of an alternative, of those that were made.
func strictest(charges []Charge, decisions []Decision, i, end int) int {
	best := i
	for i++; i < end; i++ {
		if decisions[i].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || stricter(charges, decisions, i, best)) {
			best = i
		}
	}
	return best
}

// easiest returns the scarcest decision of the alternative of a group whose scarcest decision
// is the least scarce, and the end of the group.
func easiest(charges []Charge, decisions []Decision, i int) (best, end int) {
	best = -1
	for end = groupEnd(charges, i); i < end; {
		next := altEnd(charges, i)
		s := scarcest(decisions, i, next)
		switch {
		case best < 0:
			best = s
		case decisions[s].Outcome == NotEvaluated:
			// The alternative of a take that was granted without it answers if no other does.
			if decisions[s].Allowed() && !decisions[best].Allowed() && decisions[best].Outcome == NotEvaluated {
				best = s
			}
		case decisions[best].Outcome == NotEvaluated || scarcer(&decisions[best], &decisions[s]):
			best = s
		}
		i = next
	}
	return best, end
}

// scarcest returns the scarcest decision of an alternative, of those that were made.
func scarcest(decisions []Decision, i, end int) int {
	best := i
	for i++; i < end; i++ {
		if decisions[i].Outcome != NotEvaluated && (decisions[best].Outcome == NotEvaluated || scarcer(&decisions[i], &decisions[best])) {
			best = i
		}
	}
	return best
}

func stricter(charges []Charge, decisions []Decision, i, j int) bool {
	a, b := &decisions[i], &decisions[j]
	if a.Outcome == Refused || b.Outcome == Refused {
		return scarcer(a, b)
	}
	// Counts go up to 10¹⁵, so the products have up to 100 bits.
	high, low := bits.Mul64(uint64(a.Remaining), uint64(decidedBy(charges, decisions, j).Count))
	otherHigh, otherLow := bits.Mul64(uint64(b.Remaining), uint64(decidedBy(charges, decisions, i).Count))
	return high < otherHigh || high == otherHigh && low < otherLow
}

// scarcer compares the waits of refusals, and units of different limits one by one.
func scarcer(a, b *Decision) bool {
	if a.Outcome == Refused || b.Outcome == Refused {
		return a.Outcome == Refused && (b.Outcome != Refused || a.RetryAfter > b.RetryAfter)
	}
	return a.Remaining < b.Remaining
}

func decidedBy(charges []Charge, decisions []Decision, i int) *Limit {
	if l := decisions[i].Limit; l != nil {
		return l
	}
	return charges[i].Limit
}
