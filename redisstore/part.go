package redisstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// undoable is how long a part without an id of its caller's can be undone: much
// longer than any call lasts.
const undoable = time.Minute

// A job is an act whose keys lie in one slot or in several: in the order of its
// charges, each slot is asked for its part. Once one has refused, the later ones
// are only asked what they would have said, and the takes of the earlier ones are
// amended. An Amend asks all slots at once.
type job struct {
	*weir.Act
	identity
	parts   []*part
	next    int // the part whose turn it is
	refused bool
	undoing bool
	failed  []*part // what could not be undone
}

// A part is what an act asks of one slot.
type part struct {
	*weir.Act
	whole *job // nil: the part is all there is
	place uint32
	from  []int // where its charges stand in the whole act
	// spare: another part was refused already, or is told so.
	spare bool
	// own: an Amend of the store's, which changes nothing where a caller's came first.
	own bool
	// brief is how long its refusal is remembered.
	brief    time.Duration
	answered bool
	granted  bool
	told     bool // granted by a caller's Amend
	tries    int
	outside  bool // it was asked about again for its calendar windows
}

// newJob sorts the charges of an act by where they are.
func (s *Store) newJob(a *weir.Act) *job {
	j := &job{Act: a}
	for i := range a.Charges {
		p := j.at(s.place(&a.Charges[i]))
		p.from = append(p.from, i)
	}
	if len(j.parts) < 2 {
		j.parts[0].Act = a
		return j
	}
	id := a.ID
	if id == "" && a.Kind == weir.KindTake {
		id = rand.Text()
	}
	if j.identity = s.keys.identify(a, id); a.ID == "" {
		j.life, j.brief = undoable, 0
	}
	for n, p := range j.parts {
		p.whole = j
		p.Act = p.cut(a)
		if p.ID = a.ID; n < len(j.parts)-1 && p.costs() {
			// What the last slot refuses needs no undoing.
			p.ID = id
		}
		if a.Kind == weir.KindAmend {
			p.spare = !a.Allowed()
			for i, n := range p.from {
				p.Decisions[i] = a.Decisions[n]
			}
		}
	}
	return j
}

// identity is what the id of the part is in its slot.
func (p *part) identity() identity {
	i := p.whole.identity
	if p.own {
		i.brief = p.brief
	}
	return i
}

// at returns the part for a place.
func (j *job) at(place uint32) *part {
	for _, p := range j.parts {
		if p.place == place {
			return p
		}
	}
	p := &part{place: place}
	j.parts = append(j.parts, p)
	return p
}

// cut returns an act with the part's charges.
func (p *part) cut(a *weir.Act) *weir.Act {
	act := &weir.Act{
		Kind: a.Kind, Hold: a.Hold, MaxWait: a.MaxWait, Immediate: a.Immediate,
		Charges: make([]weir.Charge, len(p.from)), Decisions: make([]weir.Decision, len(p.from)),
	}
	for i, n := range p.from {
		act.Charges[i] = a.Charges[n]
	}
	return act
}

// stage is the parts that can be asked at the same time.
func (j *job) stage() []*part {
	if j.atOnce() {
		return j.parts[j.next:]
	}
	return j.parts[j.next : j.next+1]
}

// atOnce reports whether no part waits for another.
func (j *job) atOnce() bool {
	return j.undoing || j.Kind == weir.KindAmend || j.next == len(j.parts)
}

// ahead is the parts that later acts must not overtake.
func (j *job) ahead() []*part {
	if j.atOnce() {
		return nil
	}
	return j.parts[j.next+1:]
}

// advance takes in what became of the parts that were due.
func (j *job) advance() {
	stage := j.stage()
	if len(stage) == 0 || slices.ContainsFunc(stage, func(p *part) bool { return !p.answered }) {
		return
	}
	switch p := j.parts[j.next]; {
	case p.whole == nil:
		j.next++
	case j.undoing:
		j.undone()
	case j.Kind == weir.KindAmend:
		j.amended()
	case p.Err != nil && (j.Kind != weir.KindRelease || j.next == len(j.parts)-1):
		j.abort(p)
	default:
		j.collect(p)
	}
}

// collect takes an answer over and makes the next part ready.
func (j *job) collect(p *part) {
	j.Err = errors.Join(j.Err, p.Err)
	for i, n := range p.from {
		j.Decisions[n] = p.Decisions[i]
	}
	p.granted = p.Err == nil && p.Allowed()
	j.refused = j.refused || j.Kind == weir.KindTake && p.Err == nil && !p.granted
	if j.next++; j.next == len(j.parts) {
		j.settle()
		return
	}
	next := j.parts[j.next]
	next.spare = j.refused
	for i := range next.Charges {
		if c := &next.Charges[i]; c.UpTo > 0 && p.granted {
			c.UpTo = p.Decisions[0].Granted
		}
	}
}

// settle ends an act of which every part is known.
func (j *job) settle() {
	keep := int64(0)
	if !j.refused {
		keep = j.Decisions[len(j.Decisions)-1].Granted
		for i := range j.Decisions {
			keep = min(keep, j.Decisions[i].Granted)
		}
	}
	var more []*part
	for _, p := range j.parts {
		if p.granted && (j.refused || p.Charges[0].UpTo > 0 && p.Decisions[0].Granted > keep) && !p.told {
			more = append(more, p)
		}
	}
	if j.Kind == weir.KindTake {
		j.undo(more, keep)
	}
}

// abort ends an act of which a part came to an error. What a caller who has an id
// can ask for again stays as it is, and a repeat goes on from there.
func (j *job) abort(p *part) {
	resumes := j.Kind != weir.KindTake || j.Act.ID != "" && !j.refused && !errors.Is(p.Err, weir.ErrInvalid)
	j.Err = p.Err
	var back []*part
	for _, q := range j.parts[:j.next] {
		if q.granted {
			back = append(back, q)
		}
	}
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

// doubt says that some of the charges are made.
func (j *job) doubt() {
	if !errors.Is(j.Err, weir.ErrAmbiguous) {
		j.Err = fmt.Errorf("weir: %v: %w: one slot did it, another did not: %v", j.Kind, weir.ErrAmbiguous, j.Err)
	}
}

// amended ends an Amend of which every part is known. One that another repeats
// does no harm, so that parts which fail keep nothing back.
func (j *job) amended() {
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

// undo makes parts ready that leave no more than keep units charged.
func (j *job) undo(parts []*part, keep int64) {
	j.parts, j.next, j.undoing = nil, 0, true
	for _, p := range parts {
		if keep == 0 && j.Err == nil {
			j.spare(p)
		}
		if p.ID == "" {
			continue
		}
		back := &part{whole: j, own: true, brief: j.brief, place: p.place, from: p.from, Act: p.cut(j.Act)}
		if !p.granted {
			// It may come later.
			back.brief = undoable
		}
		back.Kind, back.ID = weir.KindAmend, p.ID
		for i, n := range p.from {
			back.Decisions[i] = weir.Decision{Outcome: weir.NotCharged}
			if keep > 0 {
				back.Decisions[i] = weir.Decision{Outcome: weir.Granted, Granted: keep, Delay: j.Decisions[n].Delay}
			}
		}
		j.parts = append(j.parts, back)
	}
}

// spare makes what a part was granted what it could have been, as long as the store
// does not say it better.
func (j *job) spare(p *part) {
	for _, n := range p.from {
		d := &j.Decisions[n]
		d.Outcome, d.Granted, d.Remaining, d.Delay = weir.NotCharged, 0, d.Remaining+d.Granted, 0
	}
}

// costs reports whether the part charges anything.
func (p *part) costs() bool {
	for i := range p.Charges {
		if p.Charges[i].Cost > 0 {
			return true
		}
	}
	return false
}

// undone takes in what became of undoing.
func (j *job) undone() {
	for _, p := range j.parts {
		if p.Err != nil {
			if !errors.Is(p.Err, weir.ErrInvalid) {
				j.failed = append(j.failed, p)
			}
			continue
		}
		for i, n := range p.from {
			if d := p.Decisions[i]; j.Err == nil {
				if d.Granted > 0 {
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
