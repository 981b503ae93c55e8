package redisengine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// undoable is how long a part of an act without an id can be undone: much longer than any
// call lasts.
const undoable = time.Minute

// A job is an act whose keys lie in one hash slot or in several. The slots are asked for
// their parts in the order of the charges, those with leases first to renew them. If one refuses, the later ones only report
// their decisions without a charge, and the takes of the earlier ones are amended. A
// KindAmend asks all slots at once. Renewals and refunds are preceded by dry runs in the slots whose
// turn comes later, so that nothing is done if one of them cannot do its part.
type job struct {
	*weir.Act
	identity
	dryRuns []*part // to be answered before any part is sent
	parts   []*part
	next    int // the part whose turn it is
	refused bool
	undoing bool
	keep    int64   // the units that are left when it is undone
	failed  []*part // what could not be undone
	// unknown is the error of a slot that does not know the ID. Another one may know it.
	unknown error
	some    bool // a slot has done its part
	fills   bool // see [acts.Fills]
}

// A part is the charges of an act in one hash slot.
type part struct {
	*weir.Act
	whole *job // nil: the part is all there is
	slot  uint32
	from  []int // where its charges stand in the whole act
	// elsewhere: another part is refused, so that this one charges nothing.
	elsewhere bool
	// byStore: an amendment of the store's, which changes nothing where a caller's came
	// first.
	byStore bool
	// refusedLife is how long its refusal is remembered.
	refusedLife time.Duration
	answered    bool
	granted     bool
	amended     bool // it was decided as a caller amended it
	lost        bool // the lease to renew has ended
	tries       int
	outside     bool // it was sent again for its calendar windows
}

// newJob sorts the charges of an act by their hash slots.
func (s *Store) newJob(a *weir.Act) *job {
	j := &job{Act: a, fills: acts.Fills(a)}
	for i := range a.Charges {
		j.assign(s.slot(&a.Charges[i]), i)
	}
	if len(j.parts) < 2 {
		j.parts[0].Act = a
		return j
	}
	if a.Kind == acts.KindRenew {
		slices.SortStableFunc(j.parts, func(p, q *part) int { return q.leases(a) - p.leases(a) })
	}
	id := a.ID
	if id == "" && a.Kind == acts.KindTake {
		id = rand.Text()
	}
	j.identity = s.keys.identify(a, id)
	switch {
	case a.ID == "":
		j.life, j.refusedLife = undoable, 0
	case a.Kind == acts.KindTake && !a.NewID && !a.ForgetRefused:
		// A part that comes once it was undone charges nothing, not even a slot.
		j.refusedLife = acts.RefusedIDLife
	}
	for n, p := range j.parts {
		p.whole = j
		p.Act = p.cut(a)
		if p.ID = a.ID; n < len(j.parts)-1 && p.costs() {
			// The last slot is the last to charge: it is never undone.
			p.ID = id
		}
		if a.Kind == acts.KindAmend {
			p.elsewhere = !a.Allowed()
			for i, n := range p.from {
				p.Decisions[i] = a.Decisions[n]
			}
		}
		if n > 0 && p.mayFail(a) {
			dry := &part{whole: j, slot: p.slot, from: p.from, Act: p.cut(a)}
			dry.ID, dry.Dry = a.ID, true
			j.dryRuns = append(j.dryRuns, dry)
		}
	}
	return j
}

// identity returns the identity of the part's id in its slot.
func (p *part) identity() identity {
	i := p.whole.identity
	if p.byStore {
		i.refusedLife = p.refusedLife
	}
	return i
}

// assign adds a charge to the part for a slot, which it adds if need be.
func (j *job) assign(slot uint32, charge int) {
	for _, p := range j.parts {
		if p.slot == slot {
			p.from = append(p.from, charge)
			return
		}
	}
	j.parts = append(j.parts, &part{slot: slot, from: []int{charge}})
}

// leases is how many charges of the part hold slots, which are leased.
func (p *part) leases(a *weir.Act) (n int) {
	for _, i := range p.from {
		if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots {
			n++
		}
	}
	return n
}

// mayFail reports whether the part of an act about a take can be impossible where others are not:
// the lease to renew has ended, or a refund asks for more than was granted.
func (p *part) mayFail(a *weir.Act) bool {
	return a.Kind == acts.KindRenew && p.leases(a) > 0 || a.Kind == acts.KindRefund && a.ID != ""
}

// cut returns an act with the part's charges.
func (p *part) cut(a *weir.Act) *weir.Act {
	act := &weir.Act{
		Kind: a.Kind, Scope: a.Scope, Hold: a.Hold, MaxWait: a.MaxWait, Immediate: a.Immediate, Dry: a.Dry, Attempt: a.Attempt,
		Charges: make([]weir.Charge, len(p.from)), Decisions: make([]weir.Decision, len(p.from)),
	}
	for i, n := range p.from {
		act.Charges[i] = a.Charges[n]
	}
	return act
}

// due returns the parts that can be sent at the same time.
func (j *job) due() []*part {
	if len(j.dryRuns) > 0 {
		return j.dryRuns
	}
	if j.atOnce() {
		return j.parts[j.next:]
	}
	return j.parts[j.next : j.next+1]
}

// atOnce reports whether no part waits for another.
func (j *job) atOnce() bool {
	return j.undoing || j.Kind == acts.KindAmend || j.Kind == acts.KindWithdraw || j.next == len(j.parts)
}

// later returns the parts that are not due yet, which later acts must not overtake.
func (j *job) later() []*part {
	if len(j.dryRuns) > 0 {
		return j.parts
	}
	if j.atOnce() {
		return nil
	}
	return j.parts[j.next+1:]
}

// advance takes the answers to the parts that were due, once all of them are there.
func (j *job) advance() {
	due := j.due()
	if len(due) == 0 || slices.ContainsFunc(due, func(p *part) bool { return !p.answered }) {
		return
	}
	switch p := j.parts[j.next]; {
	case len(j.dryRuns) > 0:
		j.finishDryRuns()
	case p.whole == nil:
		j.next++
	case j.undoing:
		j.finishUndo()
	case j.Kind == acts.KindAmend || j.Kind == acts.KindWithdraw:
		j.finishAmend()
	case p.Err != nil && !j.mayGoOn(p):
		j.abort(p)
	default:
		j.collect(p)
	}
}

// finishDryRuns takes the answers to the dry runs. If one fails, no part is sent.
func (j *job) finishDryRuns() {
	runs := j.dryRuns
	j.dryRuns = nil
	for _, p := range runs {
		if p.Err != nil && !j.unknownTo(p) {
			j.Err, j.next = p.Err, len(j.parts)
			return
		}
	}
}

// granted returns the parts before the one whose turn it is that were granted.
func (j *job) granted() (all []*part) {
	for _, p := range j.parts[:j.next] {
		if p.granted {
			all = append(all, p)
		}
	}
	return all
}

// mayGoOn reports whether the job asks the next slots although a part failed: another slot may
// know the ID, and each takes note of the end of a take that it does not know.
func (j *job) mayGoOn(p *part) bool {
	return j.unknownTo(p) || j.Kind == acts.KindRelease && j.next < len(j.parts)-1
}

// unknownTo reports whether the part's slot does not know the take that the act is about.
func (j *job) unknownTo(p *part) bool {
	return j.Kind != acts.KindTake && errors.Is(p.Err, weir.ErrUnknownID) && !p.lost
}

// collect takes the answer to a part and makes the next part ready.
func (j *job) collect(p *part) {
	if j.unknownTo(p) {
		j.unknown, p.Err = p.Err, nil
	} else {
		j.Err = errors.Join(j.Err, p.Err)
		j.some = j.some || p.Err == nil
	}
	for i, n := range p.from {
		j.Decisions[n] = p.Decisions[i]
	}
	p.granted = p.Err == nil && p.Allowed()
	j.refused = j.refused || j.Kind == acts.KindTake && p.Err == nil && !p.granted
	if j.next++; j.next == len(j.parts) {
		j.settle()
		return
	}
	next := j.parts[j.next]
	next.elsewhere = j.refused
	for i := range next.Charges {
		if c := &next.Charges[i]; c.UpTo > 0 && p.granted {
			c.UpTo = units(p.Decisions)
		}
	}
}

// units is the least that a charge of a granted act was granted.
func units(decisions []weir.Decision) int64 {
	least := int64(math.MaxInt64)
	for i := range decisions {
		if decisions[i].Outcome == weir.Granted {
			least = min(least, decisions[i].Granted)
		}
	}
	return least
}

// settle ends an act whose parts are all answered.
func (j *job) settle() {
	if j.unknown != nil && !j.some {
		j.Err = errors.Join(j.Err, j.unknown)
	}
	keep := int64(0)
	if !j.refused {
		keep = units(j.Decisions)
	}
	var more []*part
	for _, p := range j.parts {
		if p.granted && (j.refused || p.Charges[0].UpTo > 0 && units(p.Decisions) > keep) && !p.amended {
			more = append(more, p)
		}
	}
	if j.Kind == acts.KindTake {
		j.undo(more, keep)
	}
}

// abort ends an act of which a part failed. A take whose caller has an id for it stays as
// it is, so that a retry goes on from there.
func (j *job) abort(p *part) {
	resumes := j.Kind != acts.KindTake || j.Act.ID != "" && !j.refused && !errors.Is(p.Err, weir.ErrInvalid)
	j.Err = p.Err
	back := j.granted()
	j.next = len(j.parts)
	if resumes {
		if len(back) > 0 && !errors.Is(p.Err, weir.ErrInvalid) {
			j.doubt()
		}
		return
	}
	if p.ID != "" && !errors.Is(p.Err, weir.ErrNotApplied) && !errors.Is(p.Err, weir.ErrInvalid) {
		// It may still arrive.
		back = append(back, p)
	}
	j.undo(back, 0)
}

// doubt makes the error say that some of the charges were made.
func (j *job) doubt() {
	if !errors.Is(j.Err, weir.ErrAmbiguous) {
		j.Err = fmt.Errorf("weir: %v: %w: one hash slot applied it, another did not: %v", j.Kind, weir.ErrAmbiguous, j.Err)
	}
}

// finishAmend ends an amendment whose parts are all answered.
func (j *job) finishAmend() {
	some := false
	for _, p := range j.parts {
		if p.Err != nil {
			j.Err = p.Err
			continue
		}
		some = true
		for i, n := range p.from {
			j.Decisions[n] = p.Decisions[i]
		}
	}
	if j.next = len(j.parts); some && j.Err != nil && !errors.Is(j.Err, weir.ErrInvalid) {
		j.doubt()
	}
}

// undo replaces the parts by amendments that leave no more than keep units charged.
func (j *job) undo(parts []*part, keep int64) {
	j.parts, j.next, j.undoing, j.keep = nil, 0, true, keep
	for _, p := range parts {
		if keep == 0 && j.Err == nil {
			j.notCharged(p)
		}
		if p.ID == "" {
			continue
		}
		amend := &part{whole: j, byStore: true, refusedLife: j.refusedLife, slot: p.slot, from: p.from, Act: p.cut(j.Act)}
		if !p.granted {
			// It may come later.
			amend.refusedLife = undoable
		}
		amend.Kind, amend.ID = acts.KindAmend, p.ID
		for i, n := range p.from {
			amend.Decisions[i] = weir.Decision{Outcome: weir.NotCharged}
			if p.answered && j.Decisions[n].Outcome == weir.NotEvaluated {
				amend.Decisions[i] = weir.Decision{}
			} else if keep > 0 {
				amend.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: keep, Delay: j.Decisions[n].Delay}
			}
		}
		j.parts = append(j.parts, amend)
	}
}

// notCharged turns the decisions of a granted part into those of one that is not charged,
// until the amendment returns better ones.
func (j *job) notCharged(p *part) {
	for _, n := range p.from {
		d := &j.Decisions[n]
		if d.Outcome == weir.NotEvaluated {
			continue
		}
		d.Outcome, d.Granted, d.Remaining, d.Delay, d.Blocked = weir.NotCharged, 0, d.Remaining+d.Granted, 0, false
	}
}

// costs reports whether the part charges anything.
func (p *part) costs() bool {
	return !p.Dry && slices.ContainsFunc(p.Charges, func(c weir.Charge) bool { return c.Cost > 0 })
}

// finishUndo takes the answers to the amendments.
func (j *job) finishUndo() {
	for _, p := range j.parts {
		if p.Err != nil {
			if !errors.Is(p.Err, weir.ErrInvalid) {
				j.failed = append(j.failed, p)
			}
			continue
		}
		for i, n := range p.from {
			if d := p.Decisions[i]; j.Err == nil {
				switch {
				case d.Outcome == weir.Granted && !p.amended:
					// A guaranteed charge may have been charged less.
					d.At, d.Granted = j.Decisions[n].At, j.keep
				case d.Granted > 0:
					d.At = j.Decisions[n].At
				}
				j.Decisions[n] = d
			}
		}
	}
	if j.next = len(j.parts); len(j.failed) > 0 && j.Err != nil {
		j.doubt()
	}
}
