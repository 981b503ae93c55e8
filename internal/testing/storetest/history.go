package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A history has the acts so far.
type history struct {
	Twins
	rng    *rand.Rand
	limits []*weir.Limit // one for each algorithm
	start  time.Time
	last   weir.Decision    // the last refusal
	grants []weir.Charge    // what was granted without an id, to be refunded
	named  []named          // takes with an id
	lives  map[string]*life // of ids with their keys
	ids    int
	done   int
}

// life is how long an id is remembered, since when.
type life struct {
	born, span int64
	over       bool
}

// named is a take with an id, and the last act that was about it.
type named struct {
	take, last *weir.Act
}

func newHistory(w Twins) *history {
	h := &history{Twins: w, rng: rand.New(rand.NewPCG(w.Seed, 1)), start: w.Clock.Now(), lives: make(map[string]*life)}
	if len(h.Algorithms) == 0 {
		for id := range algo.Steps {
			h.Algorithms = append(h.Algorithms, weir.Algorithm(id))
		}
	}
	h.limits = make([]*weir.Limit, len(h.Algorithms))
	h.change()
	return h
}

// change gives every algorithm another limit, often a near relation.
func (h *history) change() {
	if h.Huge {
		h.changeHuge()
		return
	}
	for i, algorithm := range h.Algorithms {
		h.limits[i] = RandomLimit(h.rng, algorithm)
		if h.Blocks {
			h.limits[i] = h.blocking(h.limits[i])
		}
	}
}

// blocking returns a limit that blocks keys, often one that blocked them before, with another
// duration; it is the limit itself if it cannot.
func (h *history) blocking(l *weir.Limit) *weir.Limit {
	own := *l
	own.Block = time.Duration(1+h.rng.Int64N(3*int64(min(own.Period, time.Hour)/time.Millisecond))) * time.Millisecond
	if h.rng.IntN(5) == 0 {
		own.Block = 0
	}
	if compiled, err := own.Compile(); err == nil {
		return compiled
	}
	return l
}

// changeHuge gives the history limits with the windows of one length. Those that charge refused
// requests accept costs that fill the others.
func (h *history) changeHuge() {
	h.limits = h.limits[:0]
	windows := weir.Limit{Algorithm: weir.FixedWindow, Period: 720 * time.Hour}
	if h.rng.IntN(2) == 0 {
		windows.TimeZone = "Europe/Berlin"
	}
	for _, count := range []int64{algo.MaxWindow, algo.MaxWindow - h.rng.Int64N(2*weir.MaxCost), weir.MaxCost * (1 + h.rng.Int64N(1_000_000)), 1 + h.rng.Int64N(20)} {
		windows.Count = count
		h.limits = append(h.limits, windows.MustCompile())
	}
	windows.Count, windows.ChargeRefused = 1+h.rng.Int64N(1<<32-1), true
	h.limits = append(h.limits, windows.MustCompile())
}

// first is one grant for each key, so that both know all keys from then on.
func (h *history) first() []*weir.Act {
	var all []*weir.Act
	for _, limit := range h.limits {
		for k := range 2 * twinKeys {
			c := weir.Charge{Key: fmt.Sprint("key ", k), Limit: limit, Cost: 1}
			if k >= twinKeys {
				c.Key, c.HashTag = fmt.Sprint("alt ", k-twinKeys), "alt"
			}
			a := NewAct(c)
			if algo.TraitsOf(limit.Algorithm).HoldsSlots {
				a.ID, a.Scope.Owner = h.newID(), "owner"
			}
			all = append(all, a)
			if known := *limit; h.Blocks && !algo.TraitsOf(limit.Algorithm).HoldsSlots {
				known.ChargeRefused, known.Block = false, time.Millisecond
				c.Limit, c.Cost, c.Block = known.MustCompile(), 0, known.Block
				a = NewAct(c)
				a.Kind = acts.KindRecord
				all = append(all, a)
			}
		}
	}
	return all
}

func (h *history) newID() string {
	h.ids++
	return fmt.Sprint("id ", h.ids)
}

// life is that of an act's id, which begins now if it was not heard of.
func (h *history) life(a *weir.Act) *life {
	name := a.ID + string(acts.AppendOwner(nil, a))
	if h.lives[name] == nil {
		h.lives[name] = &life{born: h.Clock.Micros(), span: acts.IDLife.Microseconds()}
	}
	return h.lives[name]
}

// tick moves the clock: not at all, a little, to where something happens, far
// ahead or back; never so far that instants are no longer exact.
func (h *history) tick() {
	// Two weeks are enough to cross any border of a month, and few enough to
	// stay in this century.
	period := min(h.limits[h.rng.IntN(len(h.limits))].Period, 14*24*time.Hour)
	before := h.Clock.Now()
	defer func() {
		if h.Forward && h.Clock.Now().Before(before) {
			h.Clock.Set(before)
		}
	}()
	switch h.rng.IntN(12) {
	case 0, 1, 2:
		return
	case 3:
		h.Clock.Advance(time.Microsecond)
	case 4, 5:
		if h.last.RetryAfter != weir.Never && h.last.RetryAfter > 0 {
			h.Clock.Set(h.last.At.Add(h.last.RetryAfter - time.Duration(h.rng.IntN(2))*time.Microsecond))
		}
	case 6:
		h.Clock.Advance(period)
	case 7:
		h.Clock.Advance(-time.Duration(h.rng.Int64N(int64(2 * period))))
	case 8:
		h.Clock.Advance(time.Duration(h.rng.Int64N(int64(3 * period))))
	default:
		h.Clock.Advance(time.Duration(h.rng.Int64N(int64(period)/4 + 1000)))
	}
	if away := h.Clock.Now().Sub(h.start); away > 20*365*24*time.Hour || away < -365*24*time.Hour {
		h.Clock.Set(h.start)
	}
	// Stores keep ids by clocks of their own.
	now := h.Clock.Micros()
	h.named = slices.DeleteFunc(h.named, func(n named) bool {
		l := h.life(n.take)
		if l.span < acts.IDLife.Microseconds() {
			// It may end with the clock that went back.
			l.born = min(l.born, now)
		}
		l.over = l.over || now >= l.born+l.span
		return l.over
	})
}

// note remembers acts that later acts can refer to.
func (h *history) note(a *weir.Act) {
	for _, d := range a.Decisions {
		if d.Outcome == weir.Refused {
			h.last = d
		}
	}
	if takes := a.Kind == acts.KindTake || a.Kind == acts.KindAmend; takes && a.Err == nil && a.ID != "" {
		l := h.life(a)
		// Its keys may have been heard of by a clock that went back since.
		if l.born = min(l.born, h.Clock.Micros()); !a.Allowed() {
			_, refused := acts.Lives(a)
			l.span = min(l.span, refused.Microseconds())
		}
	}
	if unknown := errors.Is(a.Err, weir.ErrUnknownID); a.ID != "" && (unknown || a.Kind == acts.KindWithdraw) {
		// A tombstone may be left.
		l, span := h.life(a), time.Minute
		if unknown {
			span = acts.EarlyEndLife
		}
		l.born, l.span = min(l.born, h.Clock.Micros()), min(l.span, span.Microseconds())
	}
	if a.Err != nil || a.Kind != acts.KindTake || a.Dry {
		return
	}
	if _, refused := acts.Lives(a); h.Forgetful && a.ID != "" && refused == 0 && !a.Allowed() {
		h.named = slices.DeleteFunc(h.named, func(n named) bool { return n.take.ID == a.ID })
		return
	}
	if a.ID != "" {
		h.named = append(h.named, named{take: a, last: a})
		h.named = h.named[max(0, len(h.named)-twinGrants):]
		return
	}
	for i, c := range a.Charges {
		if d := a.Decisions[i]; d.Granted > 0 {
			c.Cost, c.UpTo, c.Keep, c.Guaranteed, c.Group, c.Alt, c.At, c.Delay = d.Granted, 0, 0, false, 0, 0, d.At.UnixMicro(), d.Delay
			h.grants = append(h.grants, c)
		}
	}
	h.grants = h.grants[max(0, len(h.grants)-twinGrants):]
}

func (h *history) acts() []*weir.Act {
	if h.rng.IntN(4) == 0 {
		return h.rush()
	}
	acts := make([]*weir.Act, 1+h.rng.IntN(twinActs))
	for i := range acts {
		acts[i] = h.act()
	}
	if h.Forgetful {
		return takenLast(acts)
	}
	return acts
}

// takenLast leaves acts out that are about a take of the same call that asked for slots.
func takenLast(list []*weir.Act) []*weir.Act {
	taken := make(map[string]bool)
	return slices.DeleteFunc(list, func(a *weir.Act) bool {
		later := taken[a.ID]
		if a.Kind == acts.KindTake && a.ID != "" && holds(a) {
			taken[a.ID] = true
		}
		return later
	})
}

// rush makes equal takes by many callers of few keys, and sometimes a different one among
// them.
func (h *history) rush() []*weir.Act {
	kinds := make([]*weir.Act, 1+h.rng.IntN(3))
	for i := range kinds {
		kinds[i] = h.plain()
	}
	acts := make([]*weir.Act, 1+h.rng.IntN(twinActs))
	for i := range acts {
		acts[i] = again(kinds[h.rng.IntN(len(kinds))])
	}
	if h.rng.IntN(3) == 0 {
		acts[h.rng.IntN(len(acts))] = h.act()
	}
	return acts
}

// plain is a take of one charge without an id or a time to wait.
func (h *history) plain() *weir.Act {
	a := NewAct(h.charges()[:1]...)
	if c := &a.Charges[0]; algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
		c.Cost, c.UpTo = 0, 0
	}
	a.Immediate = h.rng.IntN(5) == 0
	h.keep(a)
	return a
}

// keep has some charges of a take keep units free.
func (h *history) keep(a *weir.Act) {
	if a.MaxWait > 0 || h.rng.IntN(4) > 0 {
		return
	}
	for i := range a.Charges {
		if l := a.Charges[i].Limit; !l.ChargeRefused && h.rng.IntN(3) > 0 {
			a.Charges[i].Keep = 1 + h.rng.Int64N(min(l.Capacity()+1, 1+h.rng.Int64N(30)))
			if h.Huge && h.rng.IntN(2) == 0 {
				a.Charges[i].Keep = max(1, min(algo.MaxWindow, l.Capacity()+1-h.rng.Int64N(2*weir.MaxCost)))
			}
		}
	}
}

func (h *history) act() *weir.Act {
	switch n := h.rng.IntN(50); {
	case n >= 48:
		return h.end()
	case n >= 44:
		return h.withdraw()
	case n >= 40:
		return h.amend()
	case n < 6 && len(h.named) > 0:
		return h.closing()
	case n < 8 && len(h.named) > 0:
		return h.repeat()
	case n < 12 && len(h.grants) > 0:
		return h.refund()
	case n > 35:
		return h.anonymous()
	case n == 12:
		return h.other(acts.KindRecord)
	case n == 13 && h.rng.IntN(4) == 0:
		return h.other(acts.KindReset)
	}
	return h.take()
}

// anonymous takes, refunds or records one charge anonymously.
func (h *history) anonymous() *weir.Act {
	a := NewAct(h.charges()[0])
	a.Anonymous = true
	a.Kind = []weir.Kind{acts.KindTake, acts.KindTake, acts.KindTake, acts.KindRefund, acts.KindRefund, acts.KindRecord}[h.rng.IntN(6)]
	c := &a.Charges[0]
	c.UpTo = 0
	if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots {
		c.Cost = h.rng.Int64N(min(c.Limit.Count, 4) + 2)
	} else if h.rng.IntN(4) == 0 {
		c.Cost = h.rng.Int64N(min(weir.MaxCost, 2*c.Limit.Capacity()) + 1)
	}
	return a
}

func (h *history) charges() []weir.Charge {
	charges := make([]weir.Charge, 1)
	if h.rng.IntN(3) == 0 {
		charges = make([]weir.Charge, 1+h.rng.IntN(4))
	}
	upTo := h.rng.IntN(6) == 0
	for i := range charges {
		limit := h.limits[h.rng.IntN(len(h.limits))]
		charges[i] = weir.Charge{Key: fmt.Sprint("key ", h.rng.IntN(twinKeys)), Limit: limit, Cost: h.cost(limit)}
		if upTo {
			charges[i].Cost, charges[i].UpTo = 1, 5
		}
	}
	return charges
}

func (h *history) cost(l *weir.Limit) int64 {
	switch n := h.rng.IntN(30); {
	case algo.TraitsOf(l.Algorithm).HoldsSlots:
		return int64(min(n, 1))
	case n < 3:
		return 0
	case n < 6:
		return h.rng.Int64N(min(l.Capacity(), weir.MaxCost) + 3)
	case n < 9:
		return min(weir.MaxCost, max(1, l.Capacity()/2))
	case h.Huge && l.ChargeRefused && n < 20:
		return algo.MaxWindow - h.rng.Int64N(2*weir.MaxCost)
	case h.Huge && !l.ChargeRefused && n < 20:
		return min(weir.MaxCost, l.Count) - h.rng.Int64N(2)
	case n == 9 && l.ChargeRefused && algo.TraitsOf(l.Algorithm).Reports:
		return algo.MaxCount - h.rng.Int64N(2)
	}
	return 1 + h.rng.Int64N(2)
}

// alternatives are the charges of an act with alternatives. Their keys have one hash tag.
func (h *history) alternatives() []weir.Charge {
	var charges []weir.Charge
	if h.rng.IntN(2) == 0 {
		charges = h.charges()
	}
	var limits []*weir.Limit
	for _, l := range h.limits {
		if !l.ChargeRefused {
			limits = append(limits, l)
		}
	}
	if len(limits) == 0 {
		return h.charges()
	}
	for group := range 1 + h.rng.IntN(3) {
		for alt := range 1 + h.rng.IntN(3) {
			for range 1 + h.rng.IntN(2) {
				limit := limits[h.rng.IntN(len(limits))]
				c := weir.Charge{Key: fmt.Sprint("alt ", h.rng.IntN(twinKeys)), HashTag: "alt", Limit: limit, Cost: h.cost(limit), Group: uint8(group + 1), Alt: uint8(alt)}
				if len(charges) > 0 && charges[0].UpTo > 0 {
					c.Cost, c.UpTo = charges[0].Cost, charges[0].UpTo
				}
				charges = append(charges, c)
			}
		}
	}
	if h.rng.IntN(8) == 0 {
		for i := range charges {
			charges[i].Cost, charges[i].UpTo = 0, 0
		}
	}
	return charges
}

// take is a take with any of the options that its limits allow.
func (h *history) take() *weir.Act {
	a := NewAct(h.charges()...)
	if h.rng.IntN(4) == 0 {
		a = NewAct(h.alternatives()...)
	}
	bursts, holds := true, false
	for _, c := range a.Charges {
		bursts = bursts && algo.TraitsOf(c.Limit.Algorithm).Books && c.Limit.Block == 0
		holds = holds || algo.TraitsOf(c.Limit.Algorithm).HoldsSlots
	}
	if holds || h.rng.IntN(4) == 0 {
		a.ID, a.NewID, a.Hold = h.newID(), h.rng.IntN(4) == 0, time.Duration(h.rng.IntN(3))*time.Minute
		a.Attempt = uint64(h.rng.IntN(4))
		a.Scope.Owner = "owner"
		if h.rng.IntN(3) == 0 {
			a.Scope.Asks = "a take"
		}
	}
	a.Immediate = h.rng.IntN(5) == 0
	if bursts && a.Charges[0].UpTo == 0 && !a.Alternatives() && h.rng.IntN(2) == 0 {
		limit := a.Charges[0].Limit
		a.MaxWait = min(weir.MaxWait, time.Duration(h.rng.Int64N(3*int64(limit.Period))).Truncate(time.Microsecond))
	}
	h.keep(a)
	h.guarantee(a)
	h.waive(a)
	return a
}

// waive leaves some limits out of a take with an ID, or has it cost nothing.
func (h *history) waive(a *weir.Act) {
	if !h.Waives || a.ID == "" || a.Charges[0].UpTo > 0 || h.rng.IntN(3) > 0 {
		return
	}
	free := h.rng.IntN(2) == 0
	for i := range a.Charges {
		c := &a.Charges[i]
		if c.Waived = h.rng.IntN(2) == 0; c.Waived || free {
			c.Cost = 0
		}
	}
}

// guarantee leaves some decisions to the charges before in their alternative.
func (h *history) guarantee(a *weir.Act) {
	if a.MaxWait > 0 || h.rng.IntN(2) == 0 {
		return
	}
	for i := range a.Charges {
		c := &a.Charges[i]
		if i == 0 || c.HashTag != a.Charges[i-1].HashTag || c.HashTag == "" && c.Key != a.Charges[i-1].Key {
			continue
		}
		if acts.AltEnd(a, i-1) > i && c.Limit.Algorithm == weir.GCRA && !c.Limit.ChargeRefused && h.rng.IntN(2) == 0 {
			c.Keep, c.Guaranteed = 0, true
		}
	}
}

// other returns an act of another kind, which records or resets.
func (h *history) other(kind weir.Kind) *weir.Act {
	a := NewAct(h.charges()...)
	a.Kind = kind
	for i := range a.Charges {
		c := &a.Charges[i]
		if c.UpTo = 0; h.Blocks && kind == acts.KindRecord && c.Limit.Block > 0 {
			c.Block = time.Duration(h.rng.Int64N(int64(c.Limit.Block) + 1))
		}
	}
	return a
}

// refund undoes takes without an id, more or less of them.
func (h *history) refund() *weir.Act {
	a := NewAct()
	a.Kind = acts.KindRefund
	for range 1 + h.rng.IntN(2) {
		c := h.grants[len(h.grants)-1-min(h.rng.IntN(len(h.grants)), h.rng.IntN(len(h.grants)))]
		c.Limit = h.current(c.Limit)
		if h.rng.IntN(3) == 0 {
			c.Cost = h.rng.Int64N(c.Cost + 2)
		}
		a.Charges = append(a.Charges, c)
	}
	return again(a)
}

// current is the limit in force of another's algorithm.
func (h *history) current(l *weir.Limit) *weir.Limit {
	return h.limits[slices.IndexFunc(h.limits, func(m *weir.Limit) bool { return m.Algorithm == l.Algorithm })]
}

// about is an act with the id and the keys of another.
func (h *history) about(a *weir.Act) *weir.Act {
	// Closing an id by a clock that went back ends its life then.
	l := h.life(a)
	l.born = min(l.born, h.Clock.Micros())
	b := again(a)
	b.Charges = slices.Clone(a.Charges)
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Limit = h.current(c.Limit); c.Limit.ChargeRefused {
			c.Keep, c.Guaranteed = 0, false
		}
	}
	return b
}

// repeat does an act with an id again, now and then with other content.
func (h *history) repeat() *weir.Act {
	n := &h.named[h.rng.IntN(len(h.named))]
	a := h.about([]*weir.Act{n.take, n.last}[h.rng.IntN(2)])
	switch h.rng.IntN(8) {
	case 0:
		a.Charges[0].Cost, a.Charges[0].Waived = h.cost(a.Charges[0].Limit), false
	case 1:
		last := &a.Charges[len(a.Charges)-1]
		key := last.Key
		if last.Key = "key 0"; last.HashTag != "" {
			last.Key = "alt 0"
		}
		if h.Listed {
			last.Key = key
		}
	case 2:
		a.Immediate = !a.Immediate
	case 3:
		if a.Scope.Asks != "" {
			a.Scope.Asks += "!"
		}
	default:
		h.reload(a)
	}
	if a.Kind == acts.KindTake {
		a.Attempt = uint64(h.rng.IntN(12))
	}
	return a
}

// reload changes the list of limits of an act whose ID has a scope, now and then.
func (h *history) reload(a *weir.Act) {
	if h.Listed || a.Scope.Asks == "" || a.Kind == acts.KindAmend || a.Kind == acts.KindWithdraw || h.rng.IntN(2) == 0 {
		return
	}
	i := h.rng.IntN(len(a.Charges))
	switch c := a.Charges[i]; {
	case len(a.Charges) > 1 && h.rng.IntN(2) == 0:
		a.Charges = slices.Delete(a.Charges, i, i+1)
	case !a.Alternatives() && !algo.TraitsOf(c.Limit.Algorithm).HoldsSlots && len(a.Charges) < 8:
		// Its hash tag goes with its key: Redis knows one key by one tag.
		c.Key, c.HashTag = fmt.Sprint("key ", h.rng.IntN(twinKeys)), ""
		a.Charges = slices.Insert(a.Charges, i, c)
	}
	a.Decisions = make([]weir.Decision, len(a.Charges))
}

// knownOrNew returns a take with an ID: one that is new, with a probability of 1 in odds, or one
// before.
func (h *history) knownOrNew(odds int) *weir.Act {
	if len(h.named) > 0 && h.rng.IntN(odds) > 0 {
		return h.named[h.rng.IntN(len(h.named))].take
	}
	return h.unknown()
}

// unknown returns a take with an ID that the store does not know.
func (h *history) unknown() *weir.Act {
	take := h.take()
	if take.ID == "" {
		take.ID, take.Scope.Owner = h.newID(), "owner"
	}
	h.named = append(h.named, named{take: take, last: take})
	return take
}

// amend amends a take: one that was decided, one that was already amended, or one that
// arrives only later.
func (h *history) amend() *weir.Act {
	take := h.knownOrNew(3)
	a := h.about(take)
	a.Kind, a.Decisions = acts.KindAmend, slices.Clone(take.Decisions)
	granted := h.rng.IntN(2) == 0
	for i := range a.Decisions {
		a.Decisions[i] = h.answerOf(&a.Charges[i], granted)
	}
	if granted && h.rng.IntN(4) > 0 {
		h.chooseOne(a)
	}
	if h.rng.IntN(4) == 0 {
		i := h.rng.IntN(len(a.Decisions))
		a.Decisions[i] = h.answerOf(&a.Charges[i], !granted)
	}
	return a
}

// withdraw withdraws an attempt of a take, which may not have come yet.
func (h *history) withdraw() *weir.Act {
	a := h.about(h.knownOrNew(4))
	a.Kind, a.Attempt, a.Decisions = acts.KindWithdraw, uint64(1+h.rng.IntN(3)), make([]weir.Decision, len(a.Charges))
	return a
}

// end ends a take that is not known, and may be amended, withdrawn or decided later.
func (h *history) end() *weir.Act {
	h.unknown()
	return h.closingOf(&h.named[len(h.named)-1])
}

// chooseOne makes the answers of an act those of one alternative of each group.
func (h *history) chooseOne(a *weir.Act) {
	for i := 0; i < len(a.Charges); i = acts.GroupEnd(a, i) {
		chosen := a.Charges[i+h.rng.IntN(acts.GroupEnd(a, i)-i)].Alt
		for j := i; j < acts.GroupEnd(a, i); j++ {
			if a.Charges[j].Alt != chosen {
				a.Decisions[j] = weir.Decision{}
			}
		}
	}
}

// answerOf returns a possible answer to a charge of a take.
func (h *history) answerOf(c *weir.Charge, granted bool) weir.Decision {
	if granted {
		d := weir.Decision{Outcome: weir.Granted, Granted: max(c.Cost, c.UpTo), Delay: time.Duration(h.rng.IntN(2)) * time.Second}
		if h.rng.IntN(4) == 0 {
			d.Granted = h.rng.Int64N(d.Granted + 1)
		}
		return d
	}
	waits := []time.Duration{0, time.Minute, weir.Never}
	return weir.Decision{
		Outcome:    []weir.Outcome{weir.Refused, weir.NotCharged, weir.NotEvaluated}[h.rng.IntN(3)],
		RetryAfter: waits[h.rng.IntN(len(waits))],
	}
}

// closing refunds, settles, releases or renews a take with an id.
func (h *history) closing() *weir.Act { return h.closingOf(&h.named[h.rng.IntN(len(h.named))]) }

func (h *history) closingOf(n *named) *weir.Act {
	a := h.about(n.take)
	a.Kind = []weir.Kind{acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew}[h.rng.IntN(4)]
	a.Hold, a.MaxWait, a.Immediate = 0, 0, false
	if a.Kind == acts.KindRenew {
		a.Hold = time.Duration(h.rng.Int64N(1000)) * a.Charges[0].Limit.Period.Truncate(500*time.Millisecond) / 500
		a.Hold = min(weir.MaxWait, a.Hold)
	}
	for i := range a.Charges {
		c := &a.Charges[i]
		c.UpTo, c.Keep, c.Waived = 0, 0, false
		if !algo.TraitsOf(c.Limit.Algorithm).HoldsSlots && a.Kind != acts.KindRelease {
			c.Cost = h.rng.Int64N(n.take.Decisions[i].Granted + 2 + int64(h.rng.IntN(4)))
		}
	}
	if a.Scope.Asks != "" {
		a.Scope.Asks = fmt.Sprint(a.Kind, h.rng.IntN(20))
	}
	if h.reload(a); h.rng.IntN(20) == 0 {
		a.ID = "nobody's"
	}
	n.last = a
	return a
}
