package weir

import (
	"context"
	"fmt"
	"time"
)

// Bounds of an act. An act outside of them fails with an [InvalidError] and charges
// nothing.
const (
	// MaxCharges is how many charges one act may hold.
	MaxCharges = 64
	// MaxBuckets is how many buckets the rolling_window limits of one act may have
	// together, each charge counted. Redis is busy for a few milliseconds while it
	// reads that many.
	MaxBuckets = 8192
	// MaxCost is the largest cost of a charge.
	MaxCost = 1_000_000_000
	// MaxKeyBytes is the length of the longest key.
	MaxKeyBytes = 64 << 10
	// MaxSlots is how many slots an anonymous act takes or returns at most.
	MaxSlots = 1000
	// MaxIDBytes is the length of the longest id.
	MaxIDBytes = 128
	// MaxWait is how far ahead a charge can be booked, and how long a hold can
	// last.
	MaxWait = 24 * time.Hour
	// MaxCount is the largest value of a counter: what a limit that charges
	// refused requests saturates at, and the largest cost it takes.
	MaxCount = 1<<53 - 1
	// IDLife is how long the id of a granted take is remembered, at least.
	IDLife = 10 * time.Minute
	// RefusedIDLife is how long the id of a refused take is remembered, at least: a
	// repeat that comes later is decided anew.
	RefusedIDLife = 10 * time.Second
)

// Kind is what an act does.
type Kind uint8

const (
	// KindTake decides the charges and makes them if all of them fit. The zero
	// value.
	KindTake Kind = iota
	// KindRefund gives Cost units back to each key: of the take that has the act's
	// ID, or else of the decision that was made at the charge's At. Only what
	// still counts there is given back, never beyond full; Granted says how
	// much.
	KindRefund
	// KindSettle replaces what the take with the act's ID was granted by Cost: gives
	// back the difference, or charges what is missing, even if it does not fit.
	KindSettle
	// KindRelease gives back all that the take with the act's ID was granted.
	KindRelease
	// KindRenew extends the lease of a holder of a concurrency limit, and the life
	// of the hold, to Hold from now.
	KindRenew
	// KindReset forgets the keys.
	KindReset
	// KindRecord charges Cost units even if they do not fit, up to a debt of one
	// full drain.
	KindRecord
	// KindAmend corrects a take to the answer that its caller got while the store was late
	// or unreachable. The act is the take itself, with its ID, and KindAmend as its Kind.
	// Before the call its Decisions hold that answer: the Outcome and Granted of each
	// charge, and the RetryAfter and Delay for a repeat of the take. The store charges
	// missing units even if they do not fit, up to a debt of one full drain, and gives
	// surplus units back as far as they still count. The holder of a concurrency limit
	// gets a slot even above the Count, because it is running already; a holder that
	// was refused loses its slot. A limit with ChargeRefused keeps the cost of a
	// refusal.
	//
	// Afterwards the store gives the same answer to a repeat of the take, and to the
	// take itself if it arrives only then, and charges neither. KindAmend is idempotent: it
	// may come before or after the take, more than once, and from any server. The take
	// is granted if every charge was; otherwise only limits with ChargeRefused charge
	// anything. A take that was settled, released or refunded meanwhile stays as it is,
	// and the decisions then hold the store's answer to it. Otherwise they hold what is
	// charged now: Granted is 0 where the caller was refused.
	//
	// KindAmend is for stores and layers. Front ends never accept it from a client.
	KindAmend
	kinds
)

var kindNames = [kinds]string{"take", "refund", "settle", "release", "renew", "reset", "record", "amend"}

// String returns the kind as it stands in messages.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// An Act is one caller's request at one instant: all its charges are made, or none
// is; of charges with alternatives, see [Charge], one alternative of each group. It is
// the caller's memory: Take changes only its Decisions and Err, and a caller may reuse
// it, with its slices, once Take has returned.
type Act struct {
	Kind Kind
	// ID makes a take happen once, and so whatever refunds, settles or releases
	// it: a repeat with the same content gets the first answer and charges
	// nothing. An ID belongs to the keys of its act: under other keys it is
	// another one. It names the holder of a concurrency limit. At most
	// [MaxIDBytes]; remembered for [IDLife], or as long as the hold or lease if
	// that is longer, and for [RefusedIDLife] if the take is refused. Empty: none.
	ID string
	// NewID says that the ID was made for this very act, so that nobody repeats
	// the take: the store does not remember it if it is refused. If such a take is
	// amended, what a limit has charged for refusing it counts besides.
	NewID bool
	// ForgetRefused has the store not remember the ID if it refuses the take, though
	// somebody may repeat that: it is decided anew then.
	ForgetRefused bool
	// Anonymous is for callers that cannot name the take that they refund, such as Envoy,
	// which reports the end of a request by negative hits. It is for acts without an ID
	// that take, refund or record one charge.
	//
	// An anonymous refund has no At: it gives back the newest units of its key. Under a
	// concurrency limit an anonymous take takes Cost slots, whose leases end after the
	// Period, and an anonymous refund returns the Cost oldest slots. Every anonymous take
	// under a concurrency limit has to be refunded, even if it was refused: the store
	// remembers for a Period how many were, and refunds that many without returning slots.
	// So a refund never returns the slot of a caller that is still running. An anonymous
	// record takes slots even above the Count.
	Anonymous bool
	// Hold is how long the take, whose cost is an estimate, waits to be settled
	// or released; it needs an ID. For Renew: the new lease, zero for the
	// limit's Period. At most [MaxWait].
	Hold time.Duration
	// MaxWait, if set, books ahead what does not fit now but will within that
	// time; the decision's Delay says when. Only where all limits are gcra,
	// token_bucket or leaky_bucket. At most the constant [MaxWait].
	MaxWait time.Duration
	// Immediate refuses what a leaky_bucket would let out later than now: for
	// callers that cannot wait.
	Immediate bool
	Charges   []Charge
	// Decisions receives the answers; the caller provides len(Charges) of them. An Amend
	// reads from them which answer the caller of the take got.
	Decisions []Decision
	// Err is set where no decision was reached for this act; the decisions mean
	// nothing then.
	Err error

	// checked acts are valid: a Limiter or TakeValid has checked them.
	checked bool
}

// A Charge asks to spend Cost units of the budget that Key has under Limit.
// Later charges of an act see what its earlier ones take from the same key.
type Charge struct {
	// Key says whose budget; any bytes. Keys with different limits are
	// different budgets only if the keys differ, so give each limit keys of its
	// own, as [Limiter] does.
	Key string
	// HashTag places the state in a Redis Cluster: charges with one HashTag share a
	// slot and can be decided together. Empty: the Key places it.
	HashTag string
	// Owner is the key of all that one rule charges for a caller, if its charges have
	// alternatives or are of a budget that others share: by it, a layer blocks the caller
	// and nobody else. Nothing is counted under it. Empty: the Key stands for the caller.
	// For layers.
	Owner string
	// Limit comes from [Limit.Compile].
	Limit *Limit
	// Cost is how many units to charge; 0 looks: nothing is charged, and the
	// decision says what remains.
	Cost int64
	// UpTo, if set, makes the charge best effort: at least Cost units, at most
	// UpTo, as many as fit. All charges of such an act have one Cost and one
	// UpTo, and each is granted what fits all of them.
	UpTo int64
	// Keep leaves room for others: the charge is granted only if so many units are still
	// free after it. It charges its Cost and no more, and the decision's Remaining and
	// RetryAfter take the Keep into account. With it, classes of different priority share
	// one budget: a batch job that keeps 300 of 1000 never takes the last 300. At most
	// [MaxCost]; only for a take that does not book ahead, and only for limits without
	// ChargeRefused.
	Keep int64
	// Group and Alt give an act alternatives. The charges of a Group that have one Alt are
	// an alternative: all of them are made, or none. Of each Group, in order, the first
	// alternative is made that fits beside what earlier groups take; the act is refused if
	// a Group has none. The charges of an act stand in the order of Group and Alt.
	//
	// The decisions on the charges of other alternatives are [NotEvaluated]. If no
	// alternative of a Group fits, all of them have decisions, and the one with the
	// shortest wait speaks for the Group. A Group whose charges cost nothing has all its
	// alternatives evaluated.
	//
	// A Group with several alternatives needs one HashTag for all its charges, or one Key,
	// and no limit with ChargeRefused. Its act cannot be booked ahead. An act about the ID
	// of a take touches only what the take was granted.
	Group, Alt uint8
	// At and Delay are those of the decision that a Refund without an ID undoes.
	At    int64
	Delay time.Duration
}

// String returns the charge for logs and tests, such as `3 of "alice" under 100/min`.
func (c Charge) String() string {
	limit := "no limit"
	if c.Limit != nil {
		limit = c.Limit.String()
	}
	text := fmt.Sprintf("%d of %q under %s", c.Cost, c.Key, limit)
	if c.UpTo > 0 {
		text = fmt.Sprintf("%d to %d of %q under %s", c.Cost, c.UpTo, c.Key, limit)
	}
	if c.Keep > 0 {
		text += fmt.Sprintf(", keeping %d", c.Keep)
	}
	return text
}

// Buckets is how many buckets the limits of the act's charges have together. For
// stores.
func (a *Act) Buckets() int {
	buckets := 0
	for i := range a.Charges {
		buckets += int(a.Charges[i].Limit.rule.Buckets)
	}
	return buckets
}

// Prepare checks the act and answers it where no store is needed: an act outside
// the contract gets its Err, one that a limit with a count of 0 refuses its
// decisions. It reports whether the act is done. Stores call it first.
func (a *Act) Prepare() bool {
	if a.Err = nil; !a.checked {
		a.Err = a.check()
	}
	return a.Err != nil || a.Kind == KindTake && a.denied()
}

// TakeValid has t decide the acts that are valid, and gives the others their Err. Nothing
// below t validates them again. It is for the top of layers.
func TakeValid(ctx context.Context, t Taker, acts []*Act) {
	valid := acts
	for i, a := range acts {
		if a.checked {
			continue
		}
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
		t.Take(ctx, valid)
	}
	for _, a := range valid {
		a.checked = false // the caller may change it
	}
}

// denied refuses the act if it charges a limit whose count is 0.
func (a *Act) denied() bool {
	for i := range a.Charges {
		if a.Charges[i].denied() {
			return a.deny()
		}
	}
	return false
}

// deny refuses the act, unless it has alternatives without such a limit.
func (a *Act) deny() bool {
	if a.Alternatives() && !a.deniedAlternatives() {
		return false
	}
	for i := range a.Charges {
		a.Decisions[i] = Decision{}
		if a.Charges[i].denied() {
			a.Decisions[i] = Decision{Outcome: Refused, Source: SourceLimit, RetryAfter: Never}
		}
	}
	return true
}

func (c *Charge) denied() bool { return c.Limit.Count == 0 && c.Cost > 0 }

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
