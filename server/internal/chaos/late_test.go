package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
	storeurl "github.com/weirlimit/weir/server/internal/store"
)

// A lateness is something that delays answers, of the store, of the network or of
// Weir's own process, and what is promised for it. Its measure runs it once.
type lateness struct {
	name    string
	promise string
	measure func(t *testing.T) verdict
}

// A verdict is what came of it. What counts is never excused; times are, where this
// machine was later itself.
type verdict struct {
	measured string
	wrong    error         // something was counted
	slow     error         // something took too long, or too little was granted by policy
	late     time.Duration // how late this machine was
	most     time.Duration // how late it may be where times are to be judged
}

// latenesses are all of them.
var latenesses = slices.Concat(lateStores, lateProcesses)

var lateStores = []lateness{
	{
		"Redis stopped for 80 ms, at random", "no outage; no decision by policy 5 ms after it runs again; charged is what was granted",
		func(t *testing.T) verdict { return frozenRedis(t, 80*time.Millisecond) },
	},
	{
		"Redis stopped for 110 ms, at random", "no outage; no decision by policy 5 ms after it runs again; charged is what was granted",
		func(t *testing.T) verdict { return frozenRedis(t, 110*time.Millisecond) },
	},
	{
		"Redis stopped for 80 ms, at random, under limits that are used up", "neither more nor less than each limit, by one server",
		usedUp,
	},
	{
		"Redis stopped under 64 callers", vanishedPromise,
		func(t *testing.T) verdict { return vanished(t, redisStops) },
	},
	{
		"Redis pauses for 25 ms every 400 ms, --store-timeout 10ms, 10 slots taken and released 1500 times a second", "10 of 10 slots left, never more than 10 holders",
		slotsInStalls,
	},
	{
		"1 % of replies 20 ms late, --store-timeout 10ms, each id asked three times at two servers", "charged is what was granted",
		func(t *testing.T) verdict { return retriedIDs(t, 0.01) },
	},
	{
		"3 % of replies 20 ms late, --store-timeout 10ms, each id asked three times at two servers", "charged is what was granted",
		func(t *testing.T) verdict { return retriedIDs(t, 0.03) },
	},
	{
		"Redis stopped for 20 ms under 1000 calls a second", "no decision by policy after it; charged is what was granted",
		oneStall,
	},
}

const vanishedPromise = "first answers within 260 ms, later ones 1 ms at p99, by policy; from Redis 1 s after its return; charged is what was granted"

// poll adds grants beyond a limit, and units of it that were not granted. A decision by
// policy leaves room for charges in flight, so that units left after one count as lateness.
func (v *verdict) poll(beyond, left error, byPolicy int) {
	v.wrong = errors.Join(v.wrong, beyond)
	if byPolicy > 0 {
		v.slow = errors.Join(v.slow, left)
	} else {
		v.wrong = errors.Join(v.wrong, left)
	}
}

// TestLateness judges each of them.
func TestLateness(t *testing.T) {
	if !*full { // times want a machine to themselves
		t.Parallel()
	}
	for _, l := range latenesses {
		t.Run(l.name, func(t *testing.T) {
			if !*full {
				t.Parallel()
			}
			l.judge(t)
		})
	}
}

// judge judges it, and its times anew where this machine was late.
func (l *lateness) judge(t *testing.T) {
	t.Helper()
	var v verdict
	for range 3 {
		if v = l.measure(t); v.wrong != nil || v.slow == nil || !*full {
			break
		}
	}
	r := row{fault: l.name, promise: l.promise, measured: v.measured}
	if v.wrong != nil {
		r.fail(t, "%v", v.wrong)
	}
	if r.unjudged = v.slow != nil && (!*full || v.late > v.most); v.slow != nil && !r.unjudged {
		r.fail(t, "%v", v.slow)
	}
	if v.late > 0 {
		r.measured += fmt.Sprintf("; this machine was up to %v late", v.late.Round(10*time.Microsecond))
	}
	t.Log(r.measured, v.slow)
	report(r)
}

// more is so many of something in a short run, and so many times as much in a long one.
func more[N int | time.Duration](short, times N) N {
	if *full {
		return short * times
	}
	return short
}

// A front is what a server has above a store in Redis.
type front struct{ *remote.Remote }

// openFront returns one above the Redis at an address.
func openFront(t *testing.T, url string, o remote.Options) *front {
	t.Helper()
	opened, err := storeurl.Open(storeurl.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	f := &front{remote.New(opened.Taker.(remote.Store), o)}
	t.Cleanup(func() {
		// Errors are judged by the counts.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		_ = f.Stop(ctx)
	})
	return f
}

// settle waits until the store was told all there is to tell. Takes go on.
func (f *front) settle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); f.Stats().Outstanding > 0 && time.Now().Before(deadline); {
		time.Sleep(think)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := f.Stop(ctx); err != nil {
		t.Log(err)
	}
}

// booked is a limit that refuses nobody, whose units are counted in the end.
var booked = &subject{"booked", limit(ledger), book}

// byPolicy reports whether the store did not decide.
func (o *op) byPolicy() bool { return o.Source != acts.SourceStore }

// crowdOf has callers ask one key, each once in a while, until the function that it
// returns is called.
func (h *history) crowdOf(callers int, each time.Duration, ask func(number int) op) (enough func()) {
	ctx, stop := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	for number := range callers {
		asking.Go(func() {
			var ops []op
			for ctx.Err() == nil {
				ops = append(ops, ask(number))
				pause(ctx, time.Duration(rand.Int64N(int64(2*each))))
			}
			h.note(ops...)
		})
	}
	return func() {
		stop()
		asking.Wait()
	}
}

// books asks for one unit of the booked key.
func (h *history) books(taker weir.Taker) func(int) op {
	return func(number int) op {
		return h.ask(context.Background(), taker, op{caller: number, subject: booked, key: booked.name, cost: 1})
	}
}

// balance compares what the store has charged to keys with what callers were granted.
func (h *history) balance(t *testing.T, direct weir.Taker, keys ...string) (measured string, wrong error) {
	t.Helper()
	known, charged, unanswered := int64(0), int64(0), 0
	for _, key := range keys {
		n, perhaps := h.charged(key)
		known += n
		if perhaps > 0 {
			unanswered++
		}
		o := h.ask(t.Context(), direct, op{subject: booked, key: key})
		if o.err != nil {
			t.Fatal(o.err)
		}
		used := ledger.Count - o.Remaining
		if charged += used; used != n {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d charged, %d granted", key, used, n))
		}
	}
	if unanswered > 0 || known == 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%d granted, %d keys with calls that got no decision", known, unanswered))
	}
	return fmt.Sprintf("%d granted, %d charged", known, charged), wrong
}

// straight is a store past all layers, with time for a busy machine.
func straight(t *testing.T, addr string) weir.Taker {
	return store(t, addr, startTimeout, nil, "")
}

// running returns once a Redis answers, which is the first that anybody can know of its
// running again.
func running(t *testing.T, r *testserver.Redis) {
	t.Helper()
	client := redis.NewClient(options(r.Addr(), startTimeout))
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// frozenRedis stops Redis a few times: a probe finds it well each time.
func frozenRedis(t *testing.T, stop time.Duration) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	f, h, c := openFront(t, "redis://"+r.Addr(), remote.Options{}), newHistory(), startControl()
	enough := h.crowdOf(4, time.Millisecond, h.books(f))
	for range more(3, 12) {
		pause(t.Context(), 100*time.Millisecond+rand.N(200*time.Millisecond))
		r.Pause()
		back := h.absent()
		time.Sleep(stop)
		r.Resume()
		running(t, r)
		back()
	}
	time.Sleep(100 * time.Millisecond)
	enough()
	f.settle(t)
	v := verdict{late: c.end(), most: 50 * time.Millisecond}
	v.measured, v.wrong = h.balance(t, straight(t, r.Addr()), booked.name)
	meanwhile, after := 0, 0
	for i := range h.ops {
		o := &h.ops[i]
		if o.subject != booked || !o.byPolicy() {
			continue
		}
		if meanwhile++; !h.during(o, 5*time.Millisecond+v.late) {
			after++
		}
	}
	outages := f.Stats().Calls.Outages
	v.measured += fmt.Sprintf(", %d outages, %d by policy, %d of them asked later than 5 ms after a stop", outages, meanwhile, after)
	if after > 0 || outages > 0 {
		v.slow = errors.New(v.measured)
	}
	return v
}

// usedUp stops Redis for 80 ms over and over while callers use up one limit after the
// other.
func usedUp(t *testing.T) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	f, c := openFront(t, "redis://"+r.Addr(), remote.Options{}), startControl()
	ctx, thawed := context.WithCancel(t.Context())
	var freezing sync.WaitGroup
	stops := 0
	freezing.Go(func() {
		for ; ctx.Err() == nil; stops++ {
			pause(ctx, rand.N(60*time.Millisecond))
			r.Pause()
			time.Sleep(80 * time.Millisecond)
			r.Resume()
		}
	})
	tooMany, tooFew, meanwhile, calls := int64(0), int64(0), atomic.Int64{}, 0
	var beyond, left error
	for i := range more(60, 20) {
		s := subjects[i%7]
		algorithm, n := s.limit.Algorithm, int64(29)
		once := weir.Limit{Algorithm: algorithm, Count: n, Period: 24 * time.Hour}
		switch algorithm {
		case weir.RollingWindow:
			once.Buckets = 5
		case weir.LeakyBucket:
			continue // it delays
		}
		limit := once.MustCompile()
		var granted, asked atomic.Int64
		before := f.Stats()
		var callers sync.WaitGroup
		for range 24 {
			callers.Go(func() {
				for asked.Add(1) <= 100 {
					a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", i), Limit: limit, Cost: 1})
					f.Take(context.Background(), []*weir.Act{a})
					if a.Decisions[0].Source != acts.SourceStore {
						meanwhile.Add(1)
					}
					if a.Allowed() {
						granted.Add(1)
					}
					time.Sleep(rand.N(4 * time.Millisecond))
				}
			})
		}
		callers.Wait()
		calls += 100
		tooMany, tooFew = tooMany+max(0, granted.Load()-n), tooFew+max(0, n-granted.Load())
		if err := fmt.Errorf("%v: %d of %d granted: %+v, then %+v", algorithm, granted.Load(), n, before, f.Stats()); granted.Load() > n {
			beyond = errors.Join(beyond, err)
		} else if granted.Load() < n {
			left = errors.Join(left, err)
		}
	}
	thawed()
	freezing.Wait()
	v := verdict{late: c.end(), most: 20 * time.Millisecond}
	v.poll(beyond, left, int(meanwhile.Load()))
	v.measured = fmt.Sprintf("%d calls, %d too many, %d too few; %d stops, %d decisions by policy", calls, tooMany, tooFew, stops, meanwhile.Load())
	return v
}

// during reports whether an act was asked for while the store was not there, or so soon
// afterwards.
func (h *history) during(o *op, after time.Duration) bool {
	return slices.ContainsFunc(h.away, func(s span) bool { return o.call > s.from-int64(patience) && o.call < s.to+int64(after) })
}

// A vanishing takes a store away, and brings it back.
type vanishing struct {
	begin, end func(*testing.T, *testserver.Redis)
}

var redisStops = vanishing{
	func(_ *testing.T, r *testserver.Redis) { r.Pause() },
	func(t *testing.T, r *testserver.Redis) { r.Resume(); running(t, r) },
}

const (
	manyCallers = 64
	laterWithin = time.Millisecond // of 99 in 100 answers once it is known that the store is out
	backAgain   = time.Second
)

// vanished takes the store away from under many callers.
func vanished(t *testing.T, what vanishing) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	f, h, c := openFront(t, "redis://"+r.Addr(), remote.Options{}), newHistory(), startControl()
	enough := h.crowdOf(manyCallers, 8*time.Millisecond, h.books(f))
	time.Sleep(200 * time.Millisecond)
	back := h.absent()
	what.begin(t, r)
	time.Sleep(more(600*time.Millisecond, 5))
	back()
	what.end(t, r)
	time.Sleep(backAgain + 200*time.Millisecond)
	enough()
	f.settle(t)
	p99 := c.percentile(99)
	v := verdict{late: c.end(), most: answeredWithin / 2}
	v.measured, v.wrong = h.balance(t, straight(t, r.Addr()), booked.name)
	a := h.answers(v.late)
	if v.wrong == nil && a.elsewhere > 0 {
		v.wrong = fmt.Errorf("%d answers by Redis while it was stopped", a.elsewhere)
	}
	times, slow := a.judge(v.late, p99)
	v.measured, v.slow = v.measured+"; "+times, slow
	return v
}

// judge judges them where this machine was so late, and so late in 99 of 100 cases.
func (a *answers) judge(late, p99 time.Duration) (measured string, slow error) {
	measured = fmt.Sprintf("first answers within %v, later ones %v at p99 (a goroutine was woken %v late at p99), from Redis %v after its return",
		a.first.Round(10*time.Microsecond), a.later.Round(time.Microsecond), p99.Round(time.Microsecond), a.back.Round(time.Millisecond))
	if a.first > answeredWithin+late || a.later > laterWithin+2*p99 || a.back > backAgain+late {
		slow = errors.New(measured)
	}
	return measured, slow
}

// answers are how callers fared while the store was away once.
type answers struct {
	first, later, back time.Duration
	elsewhere          int
}

func (h *history) answers(late time.Duration) answers {
	a, away := answers{back: time.Hour}, h.away[0]
	var later []time.Duration
	known := away.from + int64(answeredWithin+late)
	for i := range h.ops {
		switch o := &h.ops[i]; {
		case o.subject != booked || o.cost == 0:
		case o.call > away.to && !o.byPolicy():
			a.back = min(a.back, time.Duration(o.ret-away.to))
		case o.call > known && o.ret < away.to:
			if later = append(later, o.took); !o.byPolicy() {
				a.elsewhere++
			}
		case o.ret > away.from && o.call < known:
			a.first = max(a.first, o.took)
		}
	}
	if slices.Sort(later); len(later) > 0 {
		a.later = later[len(later)*99/100]
	}
	return a
}

// impatient is for calls that wait 10 ms.
var impatient = remote.Options{Patience: 10 * time.Millisecond}

const slots = 10

// decided asks until a decision comes, as a caller with an ID does, and returns how often it
// had to repeat the call.
func (h *history) decided(taker weir.Taker, o op) (answer op, repeated int64) {
	for end := time.Now().Add(startTimeout); ; repeated++ {
		if answer = h.ask(context.Background(), taker, o); answer.err == nil || time.Now().After(end) {
			return answer, repeated
		}
		time.Sleep(think)
	}
}

var taken = &subject{"slots", limit(weir.Limit{Algorithm: weir.Concurrency, Count: slots, Period: time.Hour}), holder}

// slotsInStalls takes and releases slots while Redis stops now and then.
func slotsInStalls(t *testing.T) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	f, h := openFront(t, "redis://"+r.Addr(), impatient), newHistory()
	var held, most, turns, meanwhile, ids atomic.Int64
	enough := h.crowdOf(12, 4*time.Millisecond, func(number int) op {
		o := op{caller: number, subject: taken, key: taken.name, cost: 1, id: fmt.Sprint(number, "/", ids.Add(1))}
		o, late := h.decided(f, o)
		meanwhile.Add(late)
		if o.outcome != granted {
			return o
		}
		turns.Add(1)
		for n := held.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(rand.N(8 * time.Millisecond))
		held.Add(-1)
		release := op{caller: number, subject: taken, key: taken.name, kind: acts.KindRelease, id: o.id}
		release, _ = h.decided(f, release)
		return release
	})
	for range more(5, 10) {
		time.Sleep(375 * time.Millisecond)
		r.Pause()
		time.Sleep(25 * time.Millisecond)
		r.Resume()
	}
	enough()
	f.settle(t)
	look := h.ask(t.Context(), straight(t, r.Addr()), op{subject: taken, key: taken.name})
	if look.err != nil {
		t.Fatal(look.err)
	}
	v := verdict{measured: fmt.Sprintf("%d of %d slots left after %d turns, %d calls repeated, at most %d holders at once",
		look.Remaining, slots, turns.Load(), meanwhile.Load(), most.Load())}
	if look.Remaining != slots || most.Load() > slots || turns.Load() == 0 || meanwhile.Load() == 0 {
		v.wrong = fmt.Errorf("%s; %+v", v.measured, f.Stats())
	}
	return v
}

// retriedIDs asks for each id at one server, at another and at the first again, while
// some replies are late.
func retriedIDs(t *testing.T, part float64) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	proxy := testserver.StartProxy(t, r.Addr(), func([]byte) testserver.Fault {
		if rand.Float64() < part {
			return testserver.Slow
		}
		return testserver.Pass
	})
	h := newHistory()
	fronts := [2]*front{openFront(t, "redis://"+proxy.Addr(), impatient), openFront(t, "redis://"+proxy.Addr(), impatient)}
	var ids, torn, meanwhile atomic.Int64
	enough := h.crowdOf(8, time.Millisecond, func(number int) op {
		o := op{caller: number, subject: booked, key: booked.name, cost: 1 + rand.Int64N(3), id: fmt.Sprint(ids.Add(1))}
		first := o
		for i := range 3 {
			again, late := h.decided(fronts[(number+i)%2], o)
			meanwhile.Add(late)
			if i == 0 {
				first = again
			} else if again.outcome != first.outcome || again.Granted != first.Granted {
				torn.Add(1)
			}
		}
		return first
	})
	time.Sleep(more(1500*time.Millisecond, 10))
	enough()
	for _, f := range fronts {
		f.settle(t)
	}
	var v verdict
	v.measured, v.wrong = h.balance(t, straight(t, r.Addr()), booked.name)
	if v.measured += fmt.Sprintf(" under %d ids, %d calls repeated", ids.Load(), meanwhile.Load()); torn.Load() > 0 {
		v.wrong = errors.Join(v.wrong, fmt.Errorf("%d ids were answered otherwise when they were repeated", torn.Load()))
	}
	if meanwhile.Load() == 0 {
		v.wrong = errors.Join(v.wrong, errors.New("nothing was late"))
	}
	return v
}

// oneStall stops Redis once, for less than an outage takes.
func oneStall(t *testing.T) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	f, h, c := openFront(t, "redis://"+r.Addr(), remote.Options{}), newHistory(), startControl()
	enough := h.crowdOf(16, 16*time.Millisecond, h.books(f))
	time.Sleep(300 * time.Millisecond)
	r.Pause()
	back := h.absent()
	time.Sleep(20 * time.Millisecond)
	r.Resume()
	running(t, r)
	back()
	time.Sleep(500 * time.Millisecond)
	enough()
	f.settle(t)
	v := verdict{late: c.end(), most: 50 * time.Millisecond}
	v.measured, v.wrong = h.balance(t, straight(t, r.Addr()), booked.name)
	meanwhile, after := 0, 0
	for i := range h.ops {
		if o := &h.ops[i]; o.subject == booked && o.byPolicy() {
			if meanwhile++; o.call > h.away[0].to+int64(5*time.Millisecond+v.late) {
				after++
			}
		}
	}
	v.measured += fmt.Sprintf(", %d by policy, %d of them asked later than 5 ms after the stop of %v",
		meanwhile, after, time.Duration(h.away[0].to-h.away[0].from).Round(time.Millisecond))
	if after > 0 {
		v.slow = errors.New(v.measured)
	}
	return v
}
