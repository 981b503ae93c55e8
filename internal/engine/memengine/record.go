package memengine

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A recordName stands for an ID and its owner: 128 bits of hashes with seeds that only the
// store knows. It also names a holder.
type recordName = algo.Holding

func (s *Store) nameRecord(c *call, a *weir.Act) recordName {
	c.text = append(acts.AppendOwner(c.text[:0], a), a.ID...)
	return recordName{maphash.Bytes(s.seeds[0], c.text), maphash.Bytes(s.seeds[1], c.text)}
}

// A state says what a record knows of the take with its ID.
type state uint8

const (
	// tombstone: no take is known. The record says that attempts were withdrawn before they
	// arrived, or that a take was ended before this store knew it.
	tombstone state = iota + 1
	refused
	open   // granted
	closed // settled, refunded or released
)

// A record is remembered for an ID. lua/record.lua has the same states and transitions.
type record struct {
	state state
	attempts
	early  *early   // an end that came before the take was known; nil: there was none
	lines  []uint64 // the names of the take's charges
	answer answer   // to the take
	// charged has what is charged for each line, if that differs from the answer: the take was
	// amended, charged although it was refused, or guaranteed more than its budget was charged.
	// Else nil.
	charged []algo.Grant
	kind    weir.Kind // of the act that closed it
	closing answer    // to that act, a decision for each line
	until   uint32    // seconds since 1970: forgotten from then on
	counted int64     // the bytes that the store has counted for it
}

// An early end is an act that settled, refunded or released a take before it was known.
type early struct {
	kind  weir.Kind
	what  uint64 // fingerprint of its content
	until int64  // µs; forgotten from then on
	lines []uint64
	costs []int64
}

// An answer is the result of one act.
type answer struct {
	what      uint64 // fingerprint of the content
	at        int64
	decisions []weir.Decision
}

// recordBytes is the memory of a record without its decisions, grants and lines.
const recordBytes, decisionBytes, grantBytes, lineBytes, earlyBytes = 312, 72, 32, 8, 96

func (r *record) bytes() int64 {
	bytes := recordBytes + grantBytes*int64(len(r.charged)) + decisionBytes*int64(len(r.answer.decisions)+len(r.closing.decisions))
	if bytes += r.attempts.bytes() + lineBytes*int64(len(r.lines)); r.early != nil {
		bytes += earlyBytes + 2*lineBytes*int64(len(r.early.lines))
	}
	return bytes
}

// ended returns how the take was ended before it was known, or nil.
func (r *record) ended(now int64) *early {
	if r == nil || r.early == nil || now >= r.early.until {
		return nil
	}
	return r.early
}

// leaves returns how many units of a line are left of a grant that was ended early.
func (e *early) leaves(line uint64, granted int64) int64 {
	i := slices.Index(e.lines, line)
	switch {
	case i < 0:
		return granted // an act leaves lines alone that it does not list
	case e.kind == acts.KindRelease || granted == 0:
		return 0
	case e.kind == acts.KindSettle:
		return e.costs[i]
	}
	return max(0, granted-e.costs[i])
}

// held returns what is charged for the j-th line.
func (r *record) held(j int) algo.Grant {
	if r.charged != nil {
		return r.charged[j]
	}
	d := &r.answer.decisions[j]
	return algo.Grant{Units: d.Granted, Whole: d.Granted, At: r.answer.at, Delay: d.Delay.Microseconds()}
}

// takes reports whether the record knows a take.
func (r *record) takes() bool { return r != nil && r.state != tombstone }

// recall looks up the act's ID, if it has one. It reports whether that answers the act, with an
// error or with the first answer.
func (c *call) recall(s *Store, a *weir.Act, now int64) (answered bool) {
	if a.ID == "" {
		return false
	}
	r := s.shards[c.recordAt].ids.find(s, c.record, now)
	if r != nil && r.state == tombstone && len(r.withdrawn) == 0 && r.ended(now) == nil {
		r = nil
	}
	c.known = r
	what, proposes := acts.Content(a), a.Kind == acts.KindTake || a.Kind == acts.KindAmend
	switch {
	case !r.takes():
	case proposes && r.answer.what != what:
		return c.fail(a, weir.ErrIDReused)
	case !c.match(r) && r.state == refused && proposes:
		// Other limits may grant it.
		c.replaced, c.matches = true, nil
	default:
		return c.recallTake(s, a, r, what, now)
	}
	switch a.Kind {
	case acts.KindTake:
		return r != nil && r.wasWithdrawn(a.Attempt) && c.fail(a, weir.ErrReleased)
	case acts.KindAmend:
		return false
	case acts.KindWithdraw:
		c.bury(s, a, now)
		return true
	}
	c.endEarly(s, a, now)
	return c.fail(a, weir.ErrUnknownID)
}

// recallTake is recall for a record that knows a take.
func (c *call) recallTake(s *Store, a *weir.Act, r *record, what uint64, now int64) (answered bool) {
	switch ids := s.shards[c.recordAt].ids; a.Kind {
	case acts.KindTake:
		if r.wasWithdrawn(a.Attempt) || r.state == closed && r.kind == acts.KindRelease {
			return c.fail(a, weir.ErrReleased)
		}
		if r.state != closed && !r.add(a.Attempt) {
			return c.fail(a, weir.ErrBusyID)
		}
		ids.resized(s, c.record, r)
		c.answerFrom(a, r.answer.decisions)
		return true
	case acts.KindWithdraw:
		clear(a.Decisions)
		if r.state == closed {
			return true
		}
		none := r.withdraw(a.Attempt)
		ids.resized(s, c.record, r)
		return !none
	case acts.KindAmend:
		if r.state == closed {
			c.answerFrom(a, r.answer.decisions)
		}
		return r.state == closed
	}
	switch {
	case r.state == refused:
		c.endEarly(s, a, now)
		return c.fail(a, weir.ErrUnknownID)
	case r.state == open:
		return false
	case r.kind == a.Kind && r.closing.what == what:
		c.answerFrom(a, r.closing.decisions)
		return true
	case r.kind == acts.KindRelease:
		return c.fail(a, weir.ErrReleased)
	}
	return c.fail(a, weir.ErrSettled)
}

// match finds the act's lines in a record, and reports whether both have the same, in one order.
func (c *call) match(r *record) bool {
	if slices.Equal(c.lines, r.lines) {
		return true
	}
	c.matches = make([]int, len(c.lines))
	for i, line := range c.lines {
		c.matches[i] = slices.Index(r.lines, line)
	}
	return false
}

// matchOf returns which line of the record the act's i-th one is: -1 if it is none.
func (c *call) matchOf(i int) int {
	if c.matches == nil {
		return i
	}
	return c.matches[i]
}

// earlier returns the record of the take that the act is about or repeats; nil if there is none.
func (c *call) earlier() *record {
	if c.replaced || !c.known.takes() {
		return nil
	}
	return c.known
}

// answerFrom sets the act's decisions to those of a record's lines. A line that the record does
// not have is not evaluated.
func (c *call) answerFrom(a *weir.Act, decisions []weir.Decision) {
	for i := range a.Decisions {
		if a.Decisions[i] = (weir.Decision{}); c.matchOf(i) >= 0 {
			a.Decisions[i] = decisions[c.matchOf(i)]
		}
	}
}

// byLine returns the act's decisions in the order of the record's lines.
func (c *call) byLine(decisions []weir.Decision) []weir.Decision {
	if c.matches == nil {
		return slices.Clone(decisions)
	}
	all := make([]weir.Decision, len(c.known.lines))
	for i, j := range c.matches {
		if j >= 0 {
			all[j] = decisions[i]
		}
	}
	return all
}

func (c *call) fail(a *weir.Act, err weir.IDError) bool {
	a.Err = fmt.Errorf("weir: %v: %w", a.Kind, err)
	return true
}

// bury leaves a tombstone for an attempt that is withdrawn before it arrives, or was the last.
func (c *call) bury(s *Store, a *weir.Act, now int64) {
	r := &record{state: tombstone}
	if c.known != nil {
		r.withdrawn, r.early, r.until = c.known.withdrawn, c.known.early, c.known.until
	}
	if c.known.takes() {
		r.until = 0
	}
	r.withdraw(a.Attempt)
	_, life := acts.Lives(a)
	r.until = max(r.until, seconds(now+life.Microseconds()))
	s.shards[c.recordAt].records().keep(s, c.record, r, now)
	clear(a.Decisions)
}

// endEarly notes the first end of a take that is not known, or was refused here: another
// instance may have granted it. Callers that invent IDs displace no hold.
func (c *call) endEarly(s *Store, a *weir.Act, now int64) {
	if a.Kind == acts.KindRenew || c.known.ended(now) != nil {
		return
	}
	r, life := &record{state: tombstone}, acts.EarlyEndLife.Microseconds()
	if c.known != nil {
		*r = *c.known
	}
	r.early = &early{a.Kind, acts.Content(a), now + life, slices.Clone(c.lines), make([]int64, len(a.Charges))}
	for i := range a.Charges {
		r.early.costs[i] = a.Charges[i].Cost
	}
	ids := s.shards[c.recordAt].records()
	if ids.kept[c.record] != nil {
		r.until = max(r.until, seconds(now+life))
		ids.keep(s, c.record, r, now)
		return
	}
	ids.refuse(s, c.record, r, now)
}

// remember notes the answer of an act, if it has an ID.
func (c *call) remember(s *Store, a *weir.Act, now int64) {
	if a.ID == "" {
		return
	}
	granted, refusedLife := acts.Lives(a)
	switch a.Kind {
	case acts.KindTake:
		c.rememberTake(s, a, granted.Microseconds(), refusedLife.Microseconds(), now)
	case acts.KindAmend:
		c.rememberAmend(s, a, granted.Microseconds(), refusedLife.Microseconds(), now)
	case acts.KindWithdraw:
		c.bury(s, a, now)
	default:
		ids, r := s.shards[c.recordAt].ids, c.known
		if a.Kind == acts.KindRenew {
			r.firm, r.standing, r.early = true, nil, nil
		} else {
			r.state, r.kind, r.closing = closed, a.Kind, answer{acts.Content(a), now, c.byLine(a.Decisions)}
		}
		// A hold outlives later acts on it.
		r.until = max(r.until, seconds(now+granted.Microseconds()))
		ids.resized(s, c.record, r)
	}
}

func (c *call) rememberTake(s *Store, a *weir.Act, life, refusedLife, now int64) {
	allowed := a.Allowed()
	if !allowed && (refusedLife == 0 || c.known != nil && c.known.state == tombstone) {
		return
	}
	r := &record{
		state: open, lines: slices.Clone(c.lines), charged: c.charged,
		answer: answer{acts.Content(a), now, slices.Clone(a.Decisions)},
	}
	if c.known != nil {
		r.withdrawn, r.early = c.known.withdrawn, c.known.early // an amendment may still obey it
	}
	r.add(a.Attempt)
	if !allowed {
		r.state = refused
		s.shards[c.recordAt].records().refuse(s, c.record, r, now)
		return
	}
	r.until = seconds(now + life)
	s.shards[c.recordAt].records().keep(s, c.record, r, now)
}

func (c *call) rememberAmend(s *Store, a *weir.Act, life, refusedLife, now int64) {
	r := &record{
		state: refused, attempts: attempts{firm: true}, lines: slices.Clone(c.lines), charged: c.charged,
		answer: answer{acts.Content(a), now, c.answered},
	}
	if known := c.earlier(); known != nil {
		r.answer.at, r.lines = known.answer.at, known.lines
		if c.matches != nil {
			r.answer.decisions, r.charged = slices.Clone(known.answer.decisions), make([]algo.Grant, len(known.lines))
			for j := range known.lines {
				r.charged[j] = known.held(j)
			}
			for i, j := range c.matches {
				if j >= 0 {
					r.answer.decisions[j], r.charged[j] = c.answered[i], c.charged[i]
				}
			}
		}
	}
	if c.known != nil {
		r.withdrawn, r.early = c.known.withdrawn, c.known.early
	}
	if r.until = seconds(now + refusedLife); c.granted {
		r.state, r.until = open, seconds(now+life)
		if e := r.ended(now); e != nil {
			r.state, r.early = closed, nil
			r.kind, r.closing = e.kind, answer{e.what, now, make([]weir.Decision, len(r.lines))}
			for i, d := range a.Decisions {
				if j := c.matchOf(i); j >= 0 {
					r.closing.decisions[j] = d
				}
			}
		}
	}
	s.shards[c.recordAt].records().keep(s, c.record, r, now)
}
