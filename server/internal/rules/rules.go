// Package rules turns requests, each a domain and descriptors, into the acts that decide
// them. A [Set] is immutable: a reload builds another and swaps one pointer.
package rules

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/config"
)

// An Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// A Request is a request of a front end, in any protocol.
type Request struct {
	// Kind is the operation on every limit that matches. The zero value takes.
	Kind        weir.Kind
	Domain      string
	Descriptors [][]Entry
	// Calls are limits that come with the request. They are charged together with the limits
	// that match the descriptors.
	Calls []Call
	// Bounds are how large the request may be.
	Bounds Bounds
	// Budget, if not empty, asks for the budget of that name in place of the rules: one
	// that the domain or a descriptor on the path of the entries declares.
	Budget string
	// Cost is the units of each charge; 0 peeks. A concurrency limit has slots instead: a
	// request takes one slot, independent of its cost, and settling it releases the slot,
	// because work whose cost is known is finished.
	Cost int64
	// Costs, if not nil, are the units of several meters in place of Cost: each limit is
	// charged the number that its Meter names. Requests are 1 unless the costs say
	// otherwise. A number that a limit needs and the costs lack is an error.
	Costs map[string]int64
	// Least, if not nil, has for each meter the part of the Costs that was not guessed. A
	// limit that has no room for all of its number, even if nothing is used, is charged what
	// it has room for, and at least that part.
	Least map[string]int64
	// LeavesPart, if not nil, reports whether the request leaves the Part of a limit.
	LeavesPart func(*Limit) bool
	UpTo       int64 // best effort up to so many units; 0: all or nothing
	// ID makes a take happen once. It names the take for refunds, settlements, releases
	// and renewals, and it names a holder. At most [weir.MaxIDBytes]. Empty: none, or one
	// that is made if a take needs it, see [Plan].
	ID string
	// Hold is how long a take waits to be settled or released, or for how long
	// a holder is renewed.
	Hold time.Duration
	// MaxWait books charges ahead that do not fit now.
	MaxWait time.Duration
	// Immediate refuses requests that would have to wait.
	Immediate bool
	// Dry asks what a take would be answered, and charges nothing.
	Dry bool
	// Each, if not nil, has the costs of each descriptor in place of Cost.
	Each []Ask
}

// A Rule is one entry of the rules file with limits.
type Rule struct {
	// At is where the rule stands in its file.
	At config.Position
	// Domain is the rule's domain.
	Domain string
	// Path is the path of the rule: "shop/user=premium-*", or "shop/user,path=/login" for
	// one that is nested. Separators in keys and values are escaped as in a URL.
	Path string
	// Entries are the keys and values on the way to the rule, as in the file.
	Entries []Entry
	// Name is the rule's name in the file; empty if it has none or several
	// limits.
	Name string
	// Limits are the rule's limits; none for an unlimited rule.
	Limits []*Limit
	// Alternatives is how many alternatives the limits belong to; 0 for a rule without.
	Alternatives int
	// Unit is the unit of a rule that names no algorithm, in lower case. For
	// others it is the first limit's, or empty where that has a period.
	Unit string
	// Replaces are the names of the limits that do not apply to a request that
	// this rule applies to.
	Replaces []string
	// Grouped rules name an algorithm: the limits of all grouped rules that a
	// request matches are one act. Others are decided one by one.
	Grouped bool
	config.Settings
	// OnTrial rules are those of a trial: they are Shadow, and clients do not see them.
	OnTrial bool
	// ForUnenforced is the rule, as a Shadow, for the Unenforced keys; nil if there are none such.
	ForUnenforced *Rule
	// Trial is the rule on trial beside this one; nil for none.
	Trial *Rule
	// Unlimited rules grant everything without asking the store.
	Unlimited bool
	// RLQS rules have limits whose units Envoys may lease, see [Set.Quota].
	RLQS bool
	// Levels have, for each of the Entries, the settings of its descriptor for metrics.
	Levels []Level
	// Overlay is the position of the overlay's line that changed the rule; zero if none
	// did. Sent is the limit without that line.
	Overlay config.Position
	Sent    string

	all     []*Limit // the Limits, or the one without numbers of an unlimited rule
	owned   bool     // the charges have an owner
	hashTag []bool   // the levels that choose the hash slot; nil for all
	counter *weir.Limit
}

// A Limit is one limit of a rule.
type Limit struct {
	// Limit is compiled; it has a Name of its own: the file's, which is any printable text,
	// not only ASCII, or the rule's path without its domain and, where the rule has several
	// limits, "#" and its place from 1 on.
	*weir.Limit
	// OnStoreFailure is the policy during a store outage.
	OnStoreFailure config.StoreFailure
	// Lease says whether instances may spend leased units from memory.
	Lease bool
	// Show says whether everybody whom the limit applies to may see what is used of it.
	Show bool
	// Alerts are the percents of the limit at which an alert is due; nil: none.
	Alerts []int
	// MaxKeys is the number of keys that an instance tracks; 0: any number.
	MaxKeys int
	// Keep is how many units a take leaves to others.
	Keep int64
	// Instead is the model that takes the place of a dearer one when the limit refuses; empty:
	// none. Part is how many units a request to a dearer one leaves.
	Instead string
	Part    int64
	// Alternative is the place of the limit's alternative, from 1 on; 0 if the rule has no
	// alternatives.
	Alternative int
	// Budget is the budget that the limit charges; nil for one of its own.
	Budget *Budget

	name   string // in the file
	suffix string // what its keys end in
}

// A Level has the settings of one descriptor on the path to a rule.
type Level struct{ ValueToMetric, ShareThreshold bool }

// alone reports whether each of the rule's limits is an act of its own.
func (r *Rule) alone() bool { return !r.Grouped || r.Shadow || r.ForUnenforced != nil }

// An Applied limit is one limit that a request matched, and the place of its decision.
type Applied struct {
	// Descriptor is an index into Request.Descriptors or, for a limit in the call, into
	// Request.Calls.
	Descriptor int
	Call       *Call // nil for the limit of a rule
	Rule       *Rule
	// Of is the rule's limit; it has no numbers if the rule is unlimited.
	Of *Limit
	// Limit is that of Of or, after the plan was taken, the key's override; nil if the rule
	// is unlimited.
	Limit *weir.Limit
	// Overridden says that the key had another limit than its rule's.
	Overridden bool
	Act        *weir.Act // nil where the rule is unlimited
	Charge     int       // index into Act.Charges and Act.Decisions
}

// Decision returns the answer, once the acts of the plan were taken: a refusal
// of a shadow rule has become a grant with the source shadow, and an unlimited
// rule, or a trial that could not be decided, grants without a source. An error that the
// plan's Err passes over is a decision without an outcome.
func (a *Applied) Decision() weir.Decision {
	if a.Act == nil {
		return weir.Decision{Outcome: weir.Granted}
	}
	d := a.Act.Decisions[a.Charge]
	switch {
	case a.Act.Err != nil && a.Rule.OnTrial:
		return weir.Decision{Outcome: weir.Granted}
	case a.Act.Err != nil:
		d = weir.Decision{}
	}
	if a.Rule.Shadow && d.Outcome != weir.Granted && (a.Of.Alternative == 0 || d.Outcome != weir.NotEvaluated) {
		d.Outcome, d.Source, d.RetryAfter = weir.Granted, acts.SourceShadow, 0
	}
	return d
}

// Chosen reports, once the acts of the plan were taken, whether the limit speaks for its
// rule: of a rule with alternatives those of the alternative that was granted do, or else
// of the one that would be granted soonest.
func (a *Applied) Chosen() bool {
	if a.Of.Alternative == 0 || a.Act == nil || a.Act.Err != nil {
		return true
	}
	group := a.Act.Charges[a.Charge].Group
	from, end := a.Charge, a.Charge+1
	for from > 0 && a.Act.Charges[from-1].Group == group {
		from--
	}
	for end < len(a.Act.Charges) && a.Act.Charges[end].Group == group {
		end++
	}
	alternatives := weir.Act{Charges: a.Act.Charges[from:end], Decisions: a.Act.Decisions[from:end]}
	best, _ := alternatives.Verdict()
	return alternatives.Charges[best].Alt == a.Act.Charges[a.Charge].Alt
}

// Enforced reports whether the limit may refuse: it is not in shadow, and the rule has limits.
func (a *Applied) Enforced() bool { return a.Act != nil && !a.Rule.Shadow }

// few is the number of limits that most requests have at most.
const few = 4

// Decisive returns, once the acts of the plan were taken, the limit that answers for all that
// have a say, as for one act, see [weir.Act.Verdict]; nil if none has. Limits without an act are
// not for it.
func (p *Plan) Decisive(hasSay func(*Applied) bool) *Applied {
	var fewCharges [few]weir.Charge
	var fewDecisions [few]weir.Decision
	var fewOf [few]*Applied
	all, of := weir.Act{Charges: fewCharges[:0], Decisions: fewDecisions[:0]}, fewOf[:0]
	group := uint8(0)
	for i := range p.Applied {
		a := &p.Applied[i]
		if a.Act == nil || !hasSay(a) {
			continue
		}
		charge := a.Act.Charges[a.Charge]
		if n := len(of); n > 0 && (of[n-1].Act != a.Act || a.Act.Charges[of[n-1].Charge].Group != charge.Group) {
			group++ // groups of different acts are different
		}
		charge.Group = group
		all.Charges, all.Decisions, of = append(all.Charges, charge), append(all.Decisions, a.Decision()), append(of, a)
	}
	if i, _ := all.Verdict(); i >= 0 {
		return of[i]
	}
	return nil
}

// A Plan is a request turned into acts.
type Plan struct {
	// ID is the request's, or one that was made because a hold or a slot needs one;
	// empty if there is none. The IDs of the acts are derived from it.
	ID string
	// Acts are to be taken together, in this order.
	Acts []*weir.Act
	// Shared is the act of the limits that are charged together or not at all:
	// those of the [Rule.Grouped] rules that can refuse. It is one of the Acts,
	// nil if the request matched no such limit.
	Shared *weir.Act
	// Applied has one element for each limit that matched, in the order of the
	// descriptors and, within one, of the rule's limits, its trial last.
	Applied []Applied

	// Unmatched says why the request matched no rule; empty if it did.
	Unmatched Unmatched

	builder *builder // nil for a plan that was made by hand
}

// Unmatched is a reason for which no rule applies to a request.
type Unmatched string

// The reasons.
const (
	UnmatchedDomain Unmatched = "domain" // no rules file has the domain
	UnmatchedRule   Unmatched = "rule"   // no rule of the domain is for the descriptors
)

// Take has the acts decided, records where a key had another limit than its rule's, and
// returns [Plan.Err]. If that is an error, it releases the takes that were granted under an ID
// that was made here, because the caller does not know the ID.
func (p *Plan) Take(ctx context.Context, taker weir.Taker) error {
	if len(p.Acts) == 0 {
		return nil
	}
	p.TakeActs(ctx, taker, p.Acts)
	err := p.Err()
	if err != nil {
		p.release(ctx, taker)
	}
	return err
}

// release releases what was granted under an ID that was made for this plan.
func (p *Plan) release(ctx context.Context, taker weir.Taker) {
	var granted []*weir.Act
	for _, a := range p.Acts {
		if a.Kind == acts.KindTake && a.ID != "" && a.NewID && a.Allowed() {
			granted = append(granted, &weir.Act{
				Kind: acts.KindRelease, ID: a.ID, Scope: a.Scope, Charges: slices.Clone(a.Charges), Decisions: make([]weir.Decision, len(a.Charges)),
			})
		}
	}
	if len(granted) > 0 {
		taker.Take(ctx, granted)
	}
}

// TakeActs is like Take, for a caller that decides the plan in several steps. The acts
// are the plan's, or others that elements of Applied were made to point to.
func (p *Plan) TakeActs(ctx context.Context, taker weir.Taker, acts []*weir.Act) {
	taker.Take(ctx, acts)
	p.Taken()
}

// Taken records where a key had another limit than its rule's, for a caller that takes the
// acts of several plans together.
func (p *Plan) Taken() {
	for i := range p.Applied {
		a := &p.Applied[i]
		if a.Act == nil {
			continue
		}
		if l := a.Act.Decisions[a.Charge].Limit; l != nil {
			a.Limit, a.Overridden = l, true
		}
	}
}

// Err returns, once the acts were taken, why the request was not carried out;
// nil if it was. It passes over an unknown id where another act knew it: of a
// take whose acts were decided one by one, the refused ones have nothing to refund. An
// unknown id of a shadow rule is not an error, and neither is any error of a trial.
func (p *Plan) Err() error {
	var unknown, kept error
	done := false
	for i := range p.Applied {
		a := &p.Applied[i]
		if a.Act == nil || a.Rule.OnTrial {
			continue
		}
		err := a.Act.Err
		if err == nil {
			done = done || !a.Rule.Shadow
			continue
		}
		id := weir.IDError(0)
		switch {
		case errors.As(err, &id) && a.Rule.Shadow:
		case id == weir.ErrUnknownID:
			unknown = err
		case acts.Kept(err):
			kept = err
		default:
			return err
		}
	}
	if done || kept != nil {
		return kept
	}
	return unknown
}
