package chaos

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

// What is promised of answers while a store is away.
const (
	worstOver  = 5 * time.Millisecond   // the deadline, for a single call
	openP99    = 200 * time.Microsecond // once it is known that the store is away
	backWithin = 2 * time.Second
	backPart   = 0.99
)

// failing are subjects by what they answer while the store is away.
var failing = []*subject{
	{"local", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 300, Period: decades}), spent},
	{"allow", limit(ledger), crowd},
	{"deny", limit(ledger), crowd},
	{"error", limit(ledger), crowd},
	{"book", limit(ledger), book},
}

var policies = map[string]remote.Policy{"allow": remote.Allow, "deny": remote.Deny, "error": remote.Error}

// An outage is a world whose store goes away once, under instances that answer by
// policy.
type outage struct {
	*world
	all    []*remote.Remote
	away   span
	late   time.Duration // how late this machine was
	opened time.Duration // until all instances knew
	rush   rush
	grown  int // goroutines
}

// unreachable reports whether a node of the store below is out.
func unreachable(f *remote.Remote) bool {
	return len(f.Outages()) > 0
}

// answeredWithin is when the first callers of an outage are answered.
const answeredWithin = 260 * time.Millisecond

// A rush is what comes upon Redis in the second of its return, and what its processor
// does then and later.
type rush struct {
	connections   int
	first, steady time.Duration
}

// A fleet says of what instances an outage has.
type fleet struct {
	believed int // how many there are, as each of them believes
}

func (f fleet) outage(t *testing.T, strike func(*world)) *outage {
	t.Helper()
	o := new(outage)
	o.world = newWorld(t, makeup{ask: failing, tail: back(), over: func(_, raw weir.Taker) weir.Taker {
		top := remote.New(raw.(remote.Store), remote.Options{
			Policy:    func(c *weir.Charge) remote.Policy { return policies[c.Key] },
			Instances: func() int { return f.believed },
		})
		o.all = append(o.all, top)
		return top
	}})
	o.world.settled = func() bool {
		return !slices.ContainsFunc(o.all, func(f *remote.Remote) bool { return unreachable(f) || f.Stats().Outstanding > 0 })
	}
	c, before := startControl(), runtime.NumGoroutine()
	var watching sync.WaitGroup
	o.load(1, func(w *world) {
		o.until(5*time.Second, func(f *remote.Remote) bool { return !unreachable(f) }) // a busy machine
		o.away.from = w.history.now()
		watching.Go(o.watch)
		strike(w)
		o.away.to = w.history.now()
		watching.Go(o.count)
	})
	watching.Wait()
	o.late = c.end()
	o.settle(t)
	o.grown = o.goroutines(before)
	return o
}

// watch waits until all instances know that the store is away.
func (o *outage) watch() {
	o.until(gone(), func(f *remote.Remote) bool { return unreachable(f) })
	o.opened = time.Duration(o.history.now() - o.away.from)
}

// until waits until something is so for all instances that are asked; the others are
// for chains.
func (o *outage) until(most time.Duration, so func(*remote.Remote) bool) {
	for end := time.Now().Add(most); !(so(o.all[0]) && so(o.all[2])) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// count is what a return is like for Redis.
func (o *outage) count() {
	if !*full {
		return
	}
	connected := func() int {
		info, _ := o.server.Do("INFO", "stats")
		_, rest, _ := strings.Cut(info, "total_connections_received:")
		n := 0
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	busy := func() time.Duration {
		d, err := loadtest.CPUOf(o.server.Pid())
		if err != nil {
			o.t.Error(err)
		}
		return d
	}
	conns, used := connected(), busy()
	time.Sleep(time.Second)
	o.rush.connections, o.rush.first = connected()-conns-1, busy()-used // but for the one that counts
	time.Sleep(back() - 2*time.Second)
	used = busy()
	time.Sleep(time.Second)
	o.rush.steady = busy() - used
}

// goroutines is how many more there are than before, once there is time to end.
func (o *outage) goroutines(before int) int {
	for deadline := time.Now().Add(o.recovery); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(lead / 10)
	}
	return max(0, runtime.NumGoroutine()-before)
}

// settle has the store told of what was granted meanwhile.
func (o *outage) settle(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, f := range o.all {
		if err := f.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

// How long the store is away, and how long callers ask once it is back.
func gone() time.Duration {
	if *full {
		return 3 * time.Second
	}
	return 700 * time.Millisecond
}

func back() time.Duration {
	if *full {
		return backWithin + time.Second
	}
	return tail
}

// TestFallback takes the store away from under instances that answer by policy.
func TestFallback(t *testing.T) {
	if !*full { // times want a machine to themselves
		t.Parallel()
	}
	for name, strike := range map[string]func(time.Duration) func(*world){
		"Redis black-holed":             stallFor,
		"Redis stopped":                 suspendFor,
		"Redis killed, restarted empty": loseFor,
	} {
		t.Run(name, func(t *testing.T) {
			if !*full {
				t.Parallel()
			}
			judgeOutage(t, name, strike(gone()))
		})
	}
}

// judgeOutage judges one outage, anew where this machine was too late itself.
func judgeOutage(t *testing.T, name string, strike func(*world)) {
	t.Helper()
	var rows []timed
	for range 3 {
		o := fleet{instances}.outage(t, strike)
		o.judge(t, name, "twice the limit, three times if it lost all", o.bound)
		o.judge(t, name, "each answer says who gave it", o.sources)
		o.judge(t, name, "what was granted meanwhile is charged", o.chargedBack)
		rows = append(o.times(name), o.returns(name)...)
		if !*full || o.late <= worstOver || !slices.ContainsFunc(rows, func(r timed) bool { return !r.kept }) {
			break
		}
	}
	for _, r := range rows {
		r.report(t)
	}
}

func loseFor(d time.Duration) func(*world) {
	return func(w *world) {
		w.history.lose()
		killFor(d)(w)
	}
}

func (o *outage) judge(t *testing.T, name, promise string, oracle func() (string, error)) {
	t.Helper()
	measured, err := oracle()
	r := row{fault: name, promise: promise, measured: measured}
	if err != nil {
		r.fail(t, "%v", err)
	}
	report(r)
}

// bound: while the store is away no instance grants more than its share, so that all
// together grant at most twice the limit; once more where the store forgot.
func (o *outage) bound() (string, error) {
	s := failing[0]
	sum, meanwhile, here := int64(0), int64(0), [instances]int64{}
	for i := range o.history.ops {
		if op := &o.history.ops[i]; op.subject == s && op.outcome == granted {
			if sum += op.Granted; op.Source == acts.SourceFallback {
				here[op.caller%instances] += op.Granted
				meanwhile += op.Granted
			}
		}
	}
	measured := fmt.Sprintf("%d granted of %d, %v of them meanwhile", sum, s.limit.Count, here)
	if share := s.limit.Count / instances; slices.Max(here[:]) > share {
		return measured, fmt.Errorf("an instance granted %d, its share is %d", slices.Max(here[:]), share)
	}
	if most := s.limit.Count * (2 + o.history.losses); sum > most {
		return measured, fmt.Errorf("%d granted, at most %d", sum, most)
	}
	if sum == meanwhile || slices.Min(here[:]) == 0 { // a busy machine asks less
		return measured, fmt.Errorf("%d granted, %v meanwhile: nothing was proved", sum, here)
	}
	return measured, nil
}

// sources: whatever was asked and answered while the store was away has the source
// of its policy.
func (o *outage) sources() (string, error) {
	want := map[string]weir.Source{
		"local": acts.SourceFallback, "book": acts.SourceFallback, "allow": acts.SourceFailOpen, "deny": acts.SourceFailClosed,
	}
	n := map[string]int{}
	away := o.history.away[len(o.history.away)-1] // from when the fault had begun
	for i := range o.history.ops {
		op := &o.history.ops[i]
		if op.call < away.from || op.call+int64(op.took) > away.to {
			continue
		}
		n[op.subject.name]++
		right := op.outcome <= refused && op.Source == want[op.subject.name]
		if op.subject.name == "error" {
			right = op.outcome == unapplied || op.outcome == unknown
		}
		if op.took >= patience && op.outcome > refused {
			// Its caller had left: nobody answers by policy then.
			continue
		}
		// The first ones may have been answered before the store was away.
		if !right && op.call > away.from+int64(lead) {
			return fmt.Sprint(n), fmt.Errorf("%v", op)
		}
	}
	if len(n) < len(failing) {
		return fmt.Sprint(n), fmt.Errorf("asked meanwhile: %v", n)
	}
	return fmt.Sprint(n, " meanwhile"), nil
}

// chargedBack: in the end the store counts what callers were granted, whoever
// granted it, and at most what it may have charged besides for calls of which it
// gave no answer.
func (o *outage) chargedBack() (string, error) {
	s := failing[slices.IndexFunc(failing, func(s *subject) bool { return s.how == book })]
	known, perhaps := o.history.charged(s.name)
	doubtful := int64(0)
	for _, f := range o.all {
		doubtful += f.Stats().Doubtful
	}
	used, err := o.used(o.t.Context(), s)
	measured := fmt.Sprintf("%d granted, %d charged", known, used)
	if err != nil || o.history.losses > 0 {
		return measured + ", what it lost aside", err
	}
	if used < known-doubtful || used > known+perhaps {
		return measured, fmt.Errorf("%d charged; callers were granted %d, perhaps %d more, %d in doubt", used, known, perhaps, doubtful)
	}
	return measured, nil
}

// A timed row is about time, which is judged in long runs only.
type timed struct {
	row
	kept bool
	late bool // this machine was so late itself that nothing follows from it
}

func (r *timed) report(t *testing.T) {
	t.Helper()
	if r.unjudged = !r.kept && r.late; *full && !r.kept && !r.late {
		r.fail(t, "%s: %s", r.promise, r.measured)
	}
	report(r.row)
}

// times are how long callers waited while the store was away, and how long it was not
// asked once it was back.
func (o *outage) times(name string) []timed {
	var meanwhile, open []time.Duration
	ours, all := 0, 0
	for i := range o.history.ops {
		op := &o.history.ops[i]
		if op.call > o.away.from && op.call < o.away.to {
			meanwhile = append(meanwhile, op.took)
		}
		if op.call > o.away.from+int64(gone()/2) && op.call < o.away.to {
			open = append(open, op.took)
		}
		if after := time.Duration(op.call - o.away.to); after > back()-time.Second && op.subject.name != "local" {
			if all++; op.stores() {
				ours++
			}
		}
	}
	slices.Sort(meanwhile)
	slices.Sort(open)
	worst, p99 := meanwhile[len(meanwhile)-1], open[len(open)*99/100]
	part := float64(ours) / float64(max(all, 1))
	limit := answeredWithin + worstOver
	late := fmt.Sprintf("; this machine was up to %v late", o.late.Round(10*time.Microsecond))
	return []timed{
		{row: row{fault: name, promise: fmt.Sprintf("worst call within %v", limit), measured: worst.Round(10*time.Microsecond).String() + late}, kept: worst-o.late <= limit},
		{row: row{fault: name, promise: fmt.Sprintf("p99 within %v once that is known", openP99), measured: p99.Round(time.Microsecond).String()}, kept: p99 <= openP99},
		{row: row{
			fault: name, promise: fmt.Sprintf("%.0f %% from the store %v after its return", 100*backPart, backWithin),
			measured: fmt.Sprintf("%.2f %% of %d", 100*part, all) + late,
		}, kept: part >= backPart, late: o.late > answeredWithin}, // calls that come too late are the machine's
	}
}

const (
	opensWithin = 250 * time.Millisecond
	poolSize    = 32
	mayRush     = 1.5                   // times the processor that Redis takes when all is well
	grain       = 10 * time.Millisecond // of that measure
)

// returns are how soon instances knew that the store was away, and what its return was
// like.
func (o *outage) returns(name string) []timed {
	late := o.late > answeredWithin
	opened := timed{row: row{
		fault: name, promise: fmt.Sprintf("known within %v", opensWithin), measured: o.opened.Round(time.Millisecond).String(),
	}, kept: o.opened-o.late <= opensWithin}
	if !*full {
		return []timed{opened}
	}
	most := instances * poolSize
	return []timed{
		opened,
		{row: row{
			fault: name, promise: "no goroutine more afterwards", measured: fmt.Sprint(o.grown),
		}, kept: o.grown == 0},
		{row: row{
			fault: name, promise: fmt.Sprintf("at most %d connections in the second of its return", most), measured: fmt.Sprint(o.rush.connections),
		}, kept: o.rush.connections <= most},
		{row: row{
			fault: name, promise: fmt.Sprintf("Redis's processor in that second at most %.1f times the third one", mayRush),
			measured: fmt.Sprintf("%v, then %v", o.rush.first.Round(time.Millisecond), o.rush.steady.Round(time.Millisecond)),
		}, kept: float64(o.rush.first-grain) <= mayRush*float64(o.rush.steady), late: late},
	}
}
