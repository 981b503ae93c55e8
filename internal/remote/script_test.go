package remote_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// A script is a world of K instances, one store, and a wire between them whose faults are drawn. It
// runs in virtual time. Its ledger has what callers were told.

// fates of one call.
const (
	fine = iota
	lateRequest
	lateReply
	notSent
	lostRequest
	lostReply
	ghost // the call fails, and the store gets it later
	fates
)

// moods of a wire.
const (
	calm     = iota
	faulty   // the fate of each call is drawn
	silent   // calls and probes hang
	refusing // calls and probes fail
	moods
)

type script struct {
	t     *testing.T
	mu    sync.Mutex // guards what follows
	rng   *rand.Rand
	store *cluster
	wires []*wire
	fleet []*remote.Remote
	limit *weir.Limit
	room  *weir.Limit
	lossy bool // calls may be lost
	pace  int  // ms between two acts of a caller, at most
	kinds kindsOf
	// per key
	lost    map[string]int64   // units that may be charged beside what was told, because a reply was lost
	under   map[string]int64   // units that may not be charged, because a request was lost
	level   map[string]int64   // what callers were told, less what they gave back
	over    map[string]int64   // the most that the level was above the count
	policy  map[string][]int64 // granted by policy, of each instance
	tickets []*stub
	unknown int // ends of granted takes that were answered 404
	errors  int
	told    int
	drawn   map[string]int
	faults  []string
	calm    int           // calls to nodes that were calm
	slowest time.Duration // of them
	began   time.Time
	events  map[string][]string // by key and ID, for messages
}

// happened notes an event of an act, for messages.
func (s *script) happened(a *weir.Act, format string, args ...any) {
	if !s.verbose() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%9.3f ", time.Since(s.began).Seconds()*1000) + fmt.Sprintf(format, args...)
	names := []string{a.ID}
	for i := range a.Charges {
		names = append(names, a.Charges[i].Key)
	}
	for _, n := range names {
		if n != "" {
			s.events[n] = append(s.events[n], text)
		}
	}
}

func (s *script) verbose() bool { return *trace }

func describe(a *weir.Act) string {
	text := fmt.Sprint(a.Kind, " ", a.ID)
	if a.Attempt != 0 {
		text += fmt.Sprintf("#%d", a.Attempt%1000)
	}
	for i := range a.Charges {
		text += fmt.Sprintf(" %s %d -> %v %d %v", a.Charges[i].Key, a.Charges[i].Cost, a.Decisions[i].Outcome, a.Decisions[i].Granted, a.Decisions[i].Source)
	}
	if a.Err != nil {
		text += " err " + a.Err.Error()
	}
	return text
}

// seen counts what scripts have drawn, so that none passes because nothing happens.
func (s *script) seen(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn[what]++
}

func (s *script) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// kindsOf says what a script has.
type kindsOf struct {
	plain, ids, slots, singles, outages, leave, elsewhere, lossy bool
	// lostIDs loses calls of acts with IDs only, whose withdrawals, amendments and ends are
	// repeated: the sums stay exact.
	lostIDs bool
	// unsent: the only fault is that calls are not sent.
	unsent bool
	// oneNode: only node b has moods, and long ones.
	oneNode bool
}

// A stub is what a caller knows of a take with an ID.
type stub struct {
	id        string
	ours      bool // made by the server
	charge    weir.Charge
	other     string // another key, under the same limit; empty: there is none
	granted   int64
	told      bool // an answer
	ended     bool
	defended  bool // released although no answer came
	at        int
	forgotten bool // whether it is held cannot be said
}

type wire struct {
	s     *script
	mu    sync.Mutex
	moods map[string]int
	since map[string]time.Time // each mood
}

// calmFor is how long a node has been calm.
func (w *wire) calmFor(node string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moods[node] != calm {
		return 0
	}
	return time.Since(w.since[node])
}

func (w *wire) mood(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moods[node]
}

func (w *wire) set(node string, mood int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moods[node] != mood || w.since[node].IsZero() {
		w.since[node] = time.Now()
	}
	w.moods[node] = mood
}

func (w *wire) Nodes(a *weir.Act) []string { return nodesOf(a) }

func (w *wire) Locate(a *weir.Act) (string, int, bool) {
	nodes := w.Nodes(a)
	return nodes[0], int(crc32.ChecksumIEEE([]byte(a.Charges[0].Key)) & 7), len(nodes) == 1
}

func (*wire) Keeps() bool { return false }

func (w *wire) Probe(ctx context.Context, node string) error {
	for {
		switch w.mood(node) {
		case silent:
			select {
			case <-time.After(3 * time.Millisecond):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		case refusing:
			return fmt.Errorf("refused: %w", weir.ErrNotApplied)
		}
		time.Sleep(300 * time.Microsecond)
		return nil
	}
}

func (s *script) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *script) ms(least, most int) time.Duration {
	return time.Duration(least*1000+s.n((most-least)*1000+1)) * time.Microsecond
}

func (w *wire) Take(ctx context.Context, all []*weir.Act) {
	s := w.s
	time.Sleep(s.ms(0, 1) + 100*time.Microsecond)
	fate, mood, mayLose := fine, calm, s.lossy
	if s.kinds.lostIDs {
		mayLose = !slices.ContainsFunc(all, func(a *weir.Act) bool { return a.ID == "" })
	}
	for {
		mood = calm
		for _, a := range all {
			for _, n := range w.Nodes(a) {
				mood = max(mood, w.mood(n))
			}
		}
		if mood != silent {
			break
		}
		fate = lateReply // what hung comes to an end, or was lost
		if mayLose && s.n(4) == 0 {
			fate = []int{lostRequest, ghost}[s.n(2)]
		}
		select {
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
			fate = lostRequest
			mood = calm
		}
		if fate == lostRequest && ctx.Err() != nil {
			break
		}
	}
	if mood == faulty && fate == fine {
		if f := s.n(2 * fates); f < fates && (mayLose || f < lostRequest) {
			fate = f
		}
		if s.kinds.unsent {
			fate = map[bool]int{true: notSent, false: fine}[s.n(8) == 0]
		}
	}
	if mood == refusing {
		fate = notSent
	}
	for _, a := range all {
		s.seen([]string{"fine ", "late request ", "late reply ", "not sent ", "lost request ", "lost reply ", "ghost "}[fate] + a.Kind.String())
		if a.ID != "" && len(w.Nodes(a)) > 1 {
			s.seen("both " + a.Kind.String())
		}
	}
	fail := func(class error) {
		for _, a := range all {
			s.happened(a, "%s: fails: %v", describe(a), class)
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, class)
			if class == weir.ErrNotApplied {
				continue
			}
			s.mu.Lock()
			for i := range a.Charges {
				c, applied := &a.Charges[i], fate == lostReply || fate == ghost
				switch takes := a.Kind == acts.KindTake; {
				case a.ID != "": // it is repeated, or withdrawn
				case takes && applied: // or refused
					s.lost[c.Key] += max(c.Cost, c.UpTo)
					s.under[c.Key] += max(c.Cost, c.UpTo)
				case (a.Kind == acts.KindRecord || takes) && !applied:
					s.under[c.Key] += max(c.Cost, c.UpTo)
				case a.Kind == acts.KindRefund && !applied:
					s.lost[c.Key] += max(c.Cost, c.UpTo)
				}
			}
			s.mu.Unlock()
		}
	}
	switch fate {
	case notSent:
		fail(weir.ErrNotApplied)
		return
	case lateRequest:
		time.Sleep(s.ms(5, 700))
	case lostRequest:
		fail(weir.ErrAmbiguous)
		return
	case lateReply:
		defer func() { time.Sleep(s.ms(1, 700)) }()
	case lostReply:
		defer fail(weir.ErrAmbiguous)
		defer func() { time.Sleep(s.ms(1, 300)) }()
	case ghost:
		copies := make([]*weir.Act, len(all))
		for i, a := range all {
			own := *a
			own.Charges, own.Decisions = slices.Clone(a.Charges), slices.Clone(a.Decisions)
			copies[i] = &own
		}
		go func() {
			time.Sleep(s.ms(1, 3000))
			s.ask(copies)
		}()
		time.Sleep(s.ms(1, 100))
		fail(weir.ErrAmbiguous)
		return
	}
	s.ask(all)
}

// ask asks the store.
func (s *script) ask(all []*weir.Act) {
	s.store.Take(context.Background(), all)
	for _, a := range all {
		s.happened(a, "store: %s", describe(a))
		switch {
		case a.Kind == acts.KindTake && errors.Is(a.Err, weir.ErrReleased) && a.ID != "":
			s.seen("overtaken take")
		case errors.Is(a.Err, weir.ErrUnknownID):
			s.seen("unknown " + a.Kind.String())
		}
	}
}

// counts notes what a caller was told of units.
func (s *script) counts(key string, units int64, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level[key] += units
	s.over[key] = max(s.over[key], s.level[key]-most)
}

func (s *script) most(c *weir.Charge) int64 {
	if c.Limit == s.room {
		return s.room.Count
	}
	return s.limit.Capacity()
}

func (s *script) note(at int, a *weir.Act) {
	s.mu.Lock()
	s.told++
	if a.Err != nil {
		s.errors++
	}
	s.mu.Unlock()
	if a.Err != nil || !a.Allowed() {
		return
	}
	for i := range a.Charges {
		c, d := &a.Charges[i], &a.Decisions[i]
		if d.Source == acts.SourceFallback {
			s.mu.Lock()
			if s.policy[c.Key] == nil {
				s.policy[c.Key] = make([]int64, len(s.fleet))
			}
			s.policy[c.Key][at] += d.Granted
			s.mu.Unlock()
		}
		s.counts(c.Key, d.Granted, s.most(c))
	}
}

func (s *script) unitKey() string {
	if s.n(2) == 0 {
		return "a:hot"
	}
	return fmt.Sprintf("%c:%d", 'a'+s.n(2), s.n(4))
}

// plain takes units without an ID.
func (s *script) plain(at int) {
	a := storetest.NewAct(weir.Charge{Key: s.unitKey(), Limit: s.limit, Cost: int64(1 + s.n(3))})
	if s.n(6) == 0 {
		if other := s.unitKey(); other != a.Charges[0].Key {
			a = storetest.NewAct(a.Charges[0], weir.Charge{Key: other, Limit: s.limit, Cost: a.Charges[0].Cost})
		}
	}
	ctx, cancel := s.caller()
	defer cancel()
	served := s.whileCalm(at, a)
	s.fleet[at].Take(ctx, []*weir.Act{a})
	served(ctx)
	s.happened(a, "told at %d: %s", at, describe(a))
	if ctx.Err() != nil && a.Err != nil && s.kinds.leave {
		s.mu.Lock() // nobody is told
		for i := range a.Charges {
			s.lost[a.Charges[i].Key] += a.Charges[i].Cost
		}
		s.mu.Unlock()
	}
	s.note(at, a)
}

// whileCalm returns a function that demands that the store has decided an act, if all of its nodes
// were calm all the time, and before it.
func (s *script) whileCalm(at int, a *weir.Act) func(context.Context) {
	w := s.wires[at]
	calmFor := func() time.Duration {
		least := time.Hour
		for _, n := range w.Nodes(a) {
			least = min(least, w.calmFor(n))
		}
		return least
	}
	before, began := calmFor(), time.Now()
	return func(ctx context.Context) {
		if before < 1500*time.Millisecond || calmFor() < before || ctx.Err() != nil {
			return
		}
		took := time.Since(began)
		s.served(took)
		undecided := a.Err != nil && !errors.Is(a.Err, weir.ErrInvalid) || a.Err == nil && a.Decisions[0].Source == acts.SourceFallback
		if undecided || took > calmWait {
			s.fault("calm for %v, and after %v: %s", before, time.Since(began), describe(a))
		}
	}
}

// calmWait is how long a call to a node that is calm may take: a round trip of at most 1.1 ms for
// what is owed before it, one for itself, and what is in flight in its lane before each.
const calmWait = 6 * time.Millisecond

// served notes how long a call to a calm node took.
func (s *script) served(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm, s.slowest = s.calm+1, max(s.slowest, took)
	s.drawn["calm"]++
}

// caller is the context of one: some leave early.
func (s *script) caller() (context.Context, context.CancelFunc) {
	if s.kinds.leave && s.n(12) == 0 {
		ctx, cancel := context.WithCancel(s.t.Context())
		d := s.ms(1, 20)
		go func() { time.Sleep(d); cancel() }()
		return ctx, cancel
	}
	return s.t.Context(), func() {}
}

func (s *script) do(at int, kind weir.Kind, u *stub, cost int64) *weir.Act {
	a := u.act(cost)
	a.Kind, a.ID, a.NewID, a.Scope.Owner = kind, u.id, u.ours && kind == acts.KindTake, a.Charges[0].Key
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if kind == acts.KindTake {
		ctx, cancel = s.caller()
	}
	defer cancel()
	served := s.whileCalm(at, a)
	s.fleet[at].Take(ctx, []*weir.Act{a})
	served(ctx)
	if a.Attempt != 0 {
		s.fault("%s: the number of an attempt was left in its caller's act", describe(a))
	}
	s.happened(a, "told at %d: %s", at, describe(a))
	return a
}

// keys are those that the stub's take is charged under.
func (u *stub) keys() []string {
	if u.other == "" {
		return []string{u.charge.Key}
	}
	return []string{u.charge.Key, u.other}
}

// act returns a take with the stub's charges.
func (u *stub) act(cost int64) *weir.Act {
	a := storetest.NewAct()
	for _, key := range u.keys() {
		c := u.charge
		c.Key, c.Cost = key, cost
		a.Charges = append(a.Charges, c)
	}
	a.Decisions = make([]weir.Decision, len(a.Charges))
	a.ID, a.Scope.Owner = u.id, a.Charges[0].Key
	return a
}

// twice sends a take at two instances at once. Its caller gets the better answer.
func (s *script) twice(u *stub) (a *weir.Act, at int) {
	var both [2]*weir.Act
	var work sync.WaitGroup
	for i := range both {
		at := (u.at + i) % len(s.fleet)
		work.Go(func() {
			time.Sleep(s.ms(0, 30))
			both[i] = s.do(at, acts.KindTake, u, u.charge.Cost)
		})
	}
	work.Wait()
	for i, a := range both {
		if a.Err == nil && a.Allowed() {
			return a, (u.at + i) % len(s.fleet)
		}
	}
	if both[0].Err == nil {
		return both[0], u.at
	}
	return both[1], u.at
}

// named takes with an ID, perhaps repeats it, and perhaps ends it.
func (s *script) named(at, number int, slot bool) {
	u := &stub{id: fmt.Sprint("id", at, "-", number), ours: s.n(2) == 0, at: at, charge: weir.Charge{Key: s.unitKey(), Limit: s.limit, Cost: int64(1 + s.n(3))}}
	if slot {
		u.charge = weir.Charge{Key: "a:room", Limit: s.room, Cost: 1}
	} else if other := s.unitKey(); other != u.charge.Key && s.n(4) == 0 {
		u.other = other
	}
	s.mu.Lock()
	s.tickets = append(s.tickets, u)
	s.mu.Unlock()
	var a *weir.Act
	by := at
	if s.kinds.elsewhere && !u.ours && len(s.fleet) > 1 && s.n(4) == 0 {
		a, by = s.twice(u)
	} else {
		a = s.do(at, acts.KindTake, u, u.charge.Cost)
	}
	for try := 0; a.Err != nil && !u.ours && try < 4 && s.n(2) == 0; try++ {
		time.Sleep(s.ms(0, 60))
		if s.kinds.elsewhere {
			u.at = s.n(len(s.fleet))
		}
		a, by = s.do(u.at, acts.KindTake, u, u.charge.Cost), u.at
	}
	s.note(by, a)
	if u.told = a.Err == nil; !u.told && !u.ours && s.n(4) == 0 {
		u.defended = true // to be safe, whatever the answer
		s.do(s.anywhere(u.at), acts.KindRelease, u, 0)
	}
	if !u.told || !a.Allowed() {
		return
	}
	u.granted = a.Decisions[0].Granted
	if !u.ours && s.n(5) == 0 { // a repeat of what its caller was told changes nothing, whatever becomes of it
		if again := s.do(u.at, acts.KindTake, u, u.charge.Cost); errors.Is(again.Err, weir.ErrInvalid) {
			s.fault("%s: a repeat of a take that is held: %v", u.id, again.Err)
		}
	}
	if s.n(5) == 0 {
		return // it keeps them
	}
	time.Sleep(s.ms(1, 200))
	by = s.anywhere(u.at)
	kind, cost := acts.KindRelease, int64(0)
	if !slot {
		kind = []weir.Kind{acts.KindRelease, acts.KindSettle, acts.KindRefund}[s.n(3)]
		cost = int64(s.n(int(u.granted) + 1))
	}
	gone := u.granted
	switch kind {
	case acts.KindSettle:
		gone -= cost
	case acts.KindRefund:
		gone = cost
	}
	for _, key := range u.keys() {
		s.counts(key, -gone, s.most(&u.charge))
	}
	for try := 0; try < 60; try++ {
		end := s.do(by, kind, u, cost)
		if errors.Is(end.Err, weir.ErrInvalid) && !errors.Is(end.Err, weir.ErrUnknownID) {
			s.fault("%s: its end: %v", u.id, end.Err)
		}
		if errors.Is(end.Err, weir.ErrUnknownID) {
			s.mu.Lock()
			s.unknown++
			s.mu.Unlock()
			u.ended = true
			return
		}
		if end.Err == nil || acts.Kept(end.Err) {
			u.ended = true
			return
		}
		time.Sleep(s.ms(50, 100))
	}
	u.forgotten = true
}

// anywhere is an instance: another one only in scripts that have that.
func (s *script) anywhere(at int) int {
	if s.kinds.elsewhere && s.n(2) == 0 {
		return s.n(len(s.fleet))
	}
	return at
}

func (s *script) run(seed uint64, instances int, length time.Duration) {
	s.rng = rand.New(rand.NewPCG(seed, 7))
	s.store = newCluster(time.Now)
	s.drawn, s.events, s.began = map[string]int{}, map[string][]string{}, time.Now()
	s.lost, s.under, s.level, s.over, s.policy = map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string][]int64{}
	for range instances {
		w := &wire{s: s, moods: map[string]int{}, since: map[string]time.Time{}}
		s.wires = append(s.wires, w)
		s.fleet = append(s.fleet, wrap(s.t, w, remote.Options{
			Now: time.Now, Instances: func() int { return instances }, Calls: calls.Options{Responsive: responsive},
		}))
	}
	var work sync.WaitGroup
	until := time.Now().Add(length)
	for i, w := range s.wires {
		for _, node := range []string{"a", "b"} {
			if w.set(node, calm); s.kinds.oneNode && node == "a" {
				continue
			}
			work.Go(func() {
				for time.Now().Before(until) {
					mood := calm
					switch s.n(4) {
					case 0:
						if s.kinds.singles {
							mood = faulty
						}
					case 1:
						if s.kinds.outages {
							mood = silent + s.n(2)
						}
					}
					w.set(node, mood)
					time.Sleep(s.ms(20, 600))
					if s.kinds.oneNode {
						time.Sleep(s.ms(0, 2000))
					}
				}
				w.set(node, calm)
			})
		}
		for c := range 4 {
			work.Go(func() {
				for number := 0; time.Now().Before(until); number++ {
					time.Sleep(s.ms(1, s.pace))
					switch k := s.n(3); {
					case k == 0 && s.kinds.plain:
						s.plain(i)
					case k == 1 && s.kinds.ids:
						s.named(i, c*10000+number, false)
					case k == 2 && s.kinds.slots:
						s.named(i, c*10000+number, true)
					}
				}
			})
		}
	}
	work.Wait()
	time.Sleep(25 * time.Second) // late replies, unknown IDs, everything
}

// check compares what the store holds with what callers were told.
func (s *script) check() (faults []string) {
	say := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, text := range s.faults {
		say("%s", text)
	}
	for i, r := range s.fleet {
		if n := r.Stats().Outstanding; n != 0 {
			say("instance %d owes %d", i, n)
		}
	}
	held := map[string]int64{}
	loose := map[string]int64{}
	for _, u := range s.tickets {
		for _, key := range u.keys() {
			if u.forgotten {
				loose[key] += u.granted
			} else if u.granted > 0 && !u.ended {
				held[key] += u.granted
			}
		}
	}
	keys := map[string]*weir.Limit{"a:hot": s.limit, "a:room": s.room}
	for i := range 4 {
		keys[fmt.Sprint("a:", i)], keys[fmt.Sprint("b:", i)] = s.limit, s.limit
	}
	for key, limit := range keys {
		want := s.level[key] + loose[key]
		if key == "a:room" {
			want = held[key]
		}

		a := storetest.NewAct(weir.Charge{Key: key, Limit: limit})
		s.store.Take(context.Background(), []*weir.Act{a})
		used := limit.Capacity() - a.Decisions[0].Remaining
		low, high := want-s.under[key]-loose[key], want+s.lost[key]+loose[key]
		// What was granted beyond a limit is recorded up to its debt only.
		low -= max(0, s.over[key])
		if limit == s.limit && limit.Algorithm == weir.GCRA {
			low, high = low-1, high+1 // a part of a unit drains, or returns with another one
		}
		if low, high = min(low, limit.Capacity()), min(high, limit.Capacity()); used < low || used > high {
			say("%s: %d charged, told %d (from %d to %d)", key, used, want, low, high)
			if s.verbose() {
				s.explain(key)
			}
		}
	}
	for _, u := range s.tickets { // what was undone is decided anew
		if c := u.charge; s.limit.Capacity() > 1000 && c.Limit == s.limit && !u.told && !u.ours && !u.defended {
			a := u.act(c.Cost)
			if s.store.Take(context.Background(), []*weir.Act{a}); a.Err != nil || !a.Allowed() {
				say("%s: repeated: %+v, %v", u.id, a.Decisions, a.Err)
				break
			}
		}
	}
	return append(faults, s.serves()...)
}

// serves demands that everybody is served when all is over: by the store, and by each instance
// for itself in another outage, with its part of the slots.
func (s *script) serves() (faults []string) {
	for at, r := range s.fleet {
		for _, key := range []string{"a:hot", "b:3", "a:new"} {
			a := storetest.NewAct(weir.Charge{Key: key, Limit: s.limit})
			began := time.Now()
			r.Take(context.Background(), []*weir.Act{a})
			if a.Err != nil || a.Decisions[0].Source != acts.SourceStore || time.Since(began) > 50*time.Millisecond {
				faults = append(faults, fmt.Sprintf("instance %d does not ask: %s after %v", at, describe(a), time.Since(began)))
			}
		}
	}
	for _, u := range s.tickets {
		if u.charge.Limit == s.room {
			a := storetest.NewAct(u.charge)
			a.Kind, a.ID, a.Charges[0].Cost, a.Scope.Owner = acts.KindRelease, u.id, 0, a.Charges[0].Key
			s.store.Take(context.Background(), []*weir.Act{a})
		}
	}
	share := max(1, s.room.Count/int64(len(s.fleet)))
	for at, r := range s.fleet {
		take := func(id string) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "a:room", Limit: s.room, Cost: 1})
			a.ID, a.Scope.Owner = id, a.Charges[0].Key
			r.Take(context.Background(), []*weir.Act{a})
			return a
		}
		end := func(id string) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "a:room", Limit: s.room})
			a.Kind, a.ID, a.Scope.Owner = acts.KindRelease, id, a.Charges[0].Key
			r.Take(context.Background(), []*weir.Act{a})
			return a
		}
		if !s.kinds.slots {
			continue
		}
		if a := take(fmt.Sprint("fresh ", at)); a.Err != nil || !a.Allowed() || a.Decisions[0].Remaining != s.room.Count-1 {
			faults = append(faults, fmt.Sprintf("instance %d: slots are taken: %s", at, describe(a)))
		}
		if a := end(fmt.Sprint("fresh ", at)); a.Err != nil {
			faults = append(faults, fmt.Sprintf("instance %d: %s", at, describe(a)))
		}
		s.wires[at].set("a", refusing)
		for range 20 { // until the outage is known
			a := storetest.NewAct(weir.Charge{Key: "a:hot", Limit: s.limit})
			r.Take(context.Background(), []*weir.Act{a})
			time.Sleep(100 * time.Millisecond)
		}
		for i := range share {
			if a := take(fmt.Sprint("out ", at, " ", i)); a.Err != nil || !a.Allowed() {
				faults = append(faults, fmt.Sprintf("instance %d: slot %d of %d is not granted in an outage: %s", at, i, share, describe(a)))
			}
		}
		for i := range share {
			end(fmt.Sprint("out ", at, " ", i))
		}
		s.wires[at].set("a", calm)
		time.Sleep(2 * time.Second)
		if n := r.Stats().Outstanding; n != 0 {
			faults = append(faults, fmt.Sprintf("instance %d owes %d at last", at, n))
		}
	}
	return faults
}

// explain prints the events of a key, and of IDs whose state is not what was told.
func (s *script) explain(key string) {
	for _, u := range s.tickets {
		if !slices.Contains(u.keys(), key) {
			continue
		}
		fmt.Printf("TRACE %s: granted %d told %v ended %v defended %v\n", u.id, u.granted, u.told, u.ended, u.defended)
		for _, e := range s.events[u.id] {
			fmt.Println("   ", e)
		}
	}
	fmt.Println("TRACE of key", key, "lost", s.lost[key], "under", s.under[key], "over", s.over[key])
	for _, e := range s.events[key] {
		fmt.Println("   ", e)
	}
}

func scriptLimit(algorithm weir.Algorithm, count int64) *weir.Limit {
	l := weir.Limit{Algorithm: algorithm, Count: count, Period: 360 * 24 * time.Hour}
	switch algorithm {
	case weir.FixedWindow:
		l.Anchor = weir.AnchorFirst
	case weir.LeakyBucket:
		l.Burst = count
	case weir.RollingWindow:
		l.Buckets = 4
	}
	return l.MustCompile()
}

var (
	firstSeed = flag.Int("script.seed", 0, "the first seed of the scripts; -effort says how many")
	trace     = flag.Bool("script.trace", false, "print the events of keys whose sums are wrong")
)

// scriptKinds are the kinds of scripts.
var scriptKinds = map[string]kindsOf{
	"units":          {plain: true, singles: true, outages: true},
	"units, outages": {plain: true, outages: true},
	"units, singles": {plain: true, singles: true},
	"all":            {plain: true, ids: true, slots: true, singles: true, outages: true},
	"ids":            {ids: true, slots: true, singles: true, outages: true},
	"leaving":        {plain: true, ids: true, slots: true, singles: true, outages: true, leave: true},
	"elsewhere":      {ids: true, slots: true, singles: true, outages: true, elsewhere: true},
	"lossy":          {plain: true, ids: true, slots: true, singles: true, outages: true, lossy: true},
	"lost":           {ids: true, slots: true, singles: true, outages: true, elsewhere: true, lostIDs: true},
	"unsent":         {plain: true, ids: true, slots: true, singles: true, unsent: true},
	"one node":       {plain: true, ids: true, slots: true, outages: true, oneNode: true},
}

// drawn is what scripts have to draw: none passes because nothing happens.
var drawn = []string{
	"fine take", "late request take", "late reply take", "not sent take", "lost request take", "lost reply take", "ghost take",
	"late request record", "late reply record", "not sent record", "late request amend", "late reply amend", "not sent amend",
	"lost reply amend", "ghost amend", "late reply release", "not sent settle", "ghost refund", "late request withdraw",
	"late reply withdraw", "not sent withdraw", "lost reply withdraw", "overtaken take", "unknown release", "both take",
	"both release", "calm",
}

// TestScripts draws scripts and checks *charged = told*, the bound of what is granted too much, and
// that the keys of a node that is well are decided by it.
func TestScripts(t *testing.T) {
	algorithms := []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingLog, weir.TokenBucket, weir.SlidingCounter}
	var mu sync.Mutex
	seen, ran := map[string]int{}, 0
	for name, kinds := range scriptKinds {
		for _, algorithm := range algorithms {
			for instances := 1; instances <= 4; instances++ {
				t.Run(fmt.Sprintf("%s/%v/%d", name, algorithm, instances), func(t *testing.T) {
					t.Parallel()
					var all totals
					// The parity of a seed chooses the kind of limit and the pace, see newScript. Each
					// algorithm has one with some numbers of instances, and the other with the rest.
					for seed := *firstSeed; seed < *firstSeed+2*storetest.Length(1); seed++ {
						if (seed+instances+int(algorithm))%2 == 0 {
							continue
						}
						synctest.Test(t, func(t *testing.T) {
							s := newScript(t, algorithm, kinds, seed)
							s.run(uint64(seed), instances, 4*time.Second)
							s.judge(seed, &all)
							mu.Lock()
							defer mu.Unlock()
							for what, n := range s.drawn {
								seen[what] += n
							}
						})
					}
					if kinds.unsent && all.failed*50 > all.told {
						t.Errorf("%d of %d acts that were not sent once failed", all.failed, all.told)
					}
					t.Logf("%+v", all)
					mu.Lock()
					defer mu.Unlock()
					ran++
				})
			}
		}
	}
	t.Cleanup(func() {
		if ran < len(scriptKinds)*len(algorithms)*4 {
			return // some were selected
		}
		for _, what := range drawn {
			if seen[what] < 10 {
				t.Errorf("only %d times: %s", seen[what], what)
			}
		}
		t.Logf("%d calls to calm nodes", seen["calm"])
	})
}

// newScript returns a script. Those with an even seed are refused nothing, so that all sums are exact.
func newScript(t *testing.T, algorithm weir.Algorithm, kinds kindsOf, seed int) *script {
	count := int64(3000)
	if seed%2 == 1 {
		count = 30
	}
	s := &script{t: t, limit: scriptLimit(algorithm, count), room: scriptLimit(weir.Concurrency, 8), lossy: kinds.lossy, kinds: kinds, pace: 40}
	if seed%4 == 3 {
		s.pace = 5
	}
	return s
}

// totals are those of some scripts.
type totals struct {
	told, failed, unknown int
	over, worst, policy   int64 // units granted too much in all and of one key, and by policy
	calm                  int   // calls to calm nodes
	slowest               time.Duration
}

// judge checks a script that has run.
func (s *script) judge(seed int, all *totals) {
	for _, text := range s.check() {
		s.t.Errorf("seed %d: %s", seed, text)
	}
	all.told, all.failed, all.unknown = all.told+s.told, all.failed+s.errors, all.unknown+s.unknown
	all.calm, all.slowest = all.calm+s.calm, max(all.slowest, s.slowest)
	for key, over := range s.over {
		limit := s.limit
		if key == "a:room" {
			limit = s.room
		} else if s.limit.Capacity() > 30 {
			continue
		}
		most, granted := int64(0), int64(0)
		for _, units := range s.policy[key] {
			granted += units
			most += min(units, s.bound(limit))
		}
		all.over, all.worst, all.policy = all.over+over, max(all.worst, over), all.policy+granted
		if over > most {
			s.t.Errorf("seed %d: %s: %d too many, %d by policy, want at most %d", seed, key, over, granted, most)
		}
	}
}

// bound is how many units each instance may grant too much, see docs/operations.md: limits drain
// nothing while a script runs.
func (s *script) bound(limit *weir.Limit) int64 {
	k := int64(len(s.fleet))
	inFlight := int64(4 * 3) // of four callers
	switch {
	case limit == s.room:
		inFlight = 0
	case !s.kinds.singles:
		inFlight = 3
	}
	switch {
	case s.lossy || s.kinds.leave:
		return limit.Capacity() // what is lost may be granted again
	case k == 1:
		return inFlight
	}
	return (limit.Capacity()+k-1)/k + 1 + inFlight
}
