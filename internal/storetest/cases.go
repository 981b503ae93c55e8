package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

type testCase struct {
	name string
	run  func(*bench)
}

// cases are the contract's sentences, one each.
var cases = slices.Concat(chargeCases, holderCases, anonymousCases, idCases, reloadCases, refundCases, changeCases, amendCases, altCases, guaranteeCases)

var chargeCases = []testCase{
	{"grants exactly what fits at one frozen instant", frozen},
	{"grants exactly what fits to many at once", stampede},
	{"keys do not meet", separate},
	{"a look changes nothing", peeks},
	{"a refusal changes nothing", polling},
	{"a cost above the limit can never pass", never},
	{"a count of 0 refuses everything", zero},
	{"all of an act is charged or nothing", allOrNothing},
	{"later charges see earlier ones of their act", sameKeyTwice},
	{"who queues behind itself is told how long, or never", queuedTwice},
	{"several acts in one call are decided one by one", actByAct},
	{"best effort grants what fits", bestEffort},
	{"best effort over several limits grants what fits all", bestEffortTogether},
	{"a charge leaves what it keeps free", keeps},
	{"what keeps units free in vain is an error", badKeep},
	{"refused charges count where the limit says so", chargeRefused},
	{"another algorithm starts afresh", changedAlgorithm},
	{"any bytes make a key", anyBytes},
	{"what is outside the contract is an error and charges nothing", badInput},
	{"windows of too many buckets are an error", manyBuckets},
	{"the seeds' cases", seeds},
}

// limits is one limit of 10 per 10 s for each algorithm that counts units: all
// but concurrency, which has cases of its own.
func limits() []*weir.Limit {
	var all []*weir.Limit
	for _, algorithm := range counting() {
		all = append(all, of(algorithm, weir.Per(10, 10*time.Second)))
	}
	return all
}

// counting is every algorithm that counts units.
func counting() []weir.Algorithm {
	var all []weir.Algorithm
	for _, algorithm := range weir.Algorithms() {
		if !algorithm.Traits().HoldsSlots {
			all = append(all, algorithm)
		}
	}
	return all
}

// of is a limit counted by an algorithm.
func of(algorithm weir.Algorithm, l weir.Limit) *weir.Limit {
	l.Algorithm = algorithm
	return l.MustCompile()
}

// queuedTwice puts one key twice into an act that cannot wait, or not for long.
func queuedTwice(b *bench) {
	l := of(weir.LeakyBucket, weir.Per(10, 10*time.Second))
	for i, c := range []struct {
		maxWait time.Duration
		cost    int64
		want    time.Duration
	}{
		{0, 1, weir.Never},
		{time.Second, 2, weir.Never},
		{2 * time.Second, 2, 6 * time.Second},
		{3 * time.Second, 2, 5 * time.Second},
	} {
		key := fmt.Sprint("twice ", i)
		b.charge(key, l, 6)
		take := func() []weir.Decision {
			a := NewAct(weir.Charge{Key: key, Limit: l, Cost: c.cost}, weir.Charge{Key: key, Limit: l, Cost: c.cost})
			a.MaxWait, a.Immediate = c.maxWait, c.maxWait == 0
			b.take(a)
			return a.Decisions
		}
		d := take()[1]
		if d.Allowed() || d.RetryAfter != c.want {
			b.Errorf("max wait %v, cost %d twice: %+v, want retry after %v", c.maxWait, c.cost, d, c.want)
		}
		if c.want == weir.Never {
			b.clock.Advance(time.Hour)
			if d := take()[1]; d.RetryAfter != weir.Never {
				b.Errorf("max wait %v, cost %d twice at a fresh key: %+v", c.maxWait, c.cost, d)
			}
			continue
		}
		b.clock.Advance(d.RetryAfter - time.Microsecond)
		if early := take(); early[1].Allowed() {
			b.Errorf("max wait %v, cost %d twice: granted early: %+v", c.maxWait, c.cost, early)
		}
		b.clock.Advance(time.Microsecond)
		if late := take(); !late[1].Allowed() {
			b.Errorf("max wait %v, cost %d twice: refused after that: %+v", c.maxWait, c.cost, late)
		}
	}
}

func frozen(b *bench) {
	for _, l := range limits() {
		if n := b.granted("frozen", l, 25); n != 10 {
			b.Errorf("%v: %d of 10", l, n)
		}
	}
}

func stampede(b *bench) {
	for _, l := range limits() {
		var granted atomic.Int64
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for range 4 {
					a := NewAct(weir.Charge{Key: "stampede", Limit: l, Cost: 1})
					b.taker.Take(context.Background(), []*weir.Act{a})
					if a.Err != nil {
						b.Errorf("%v: %v", l, a.Err)
					} else if a.Allowed() {
						granted.Add(1)
					}
				}
			})
		}
		callers.Wait()
		if granted.Load() != 10 {
			b.Errorf("%v: %d of 10", l, granted.Load())
		}
	}
}

func separate(b *bench) {
	for _, l := range limits() {
		for k := range 3 {
			if n := b.granted(fmt.Sprint("separate", k), l, 12); n != 10 {
				b.Errorf("%v, key %d: %d of 10", l, k, n)
			}
		}
	}
}

func peeks(b *bench) {
	for _, l := range limits() {
		for range 20 {
			b.want(b.charge("looks", l, 0), weir.Decision{Outcome: weir.Granted, Remaining: 10})
		}
		b.granted("looks", l, 10)
		if d := b.charge("looks", l, 0); !d.Allowed() || d.Remaining != 0 || d.RetryAfter != 0 {
			b.Errorf("%v: look at an empty key: %+v", l, d)
		}
	}
}

// polling asks ten times as often as the limit allows, and is granted as much as a caller
// that waits.
func polling(b *bench) {
	for _, l := range limits() {
		b.granted("polling", l, 10)
		passed := 0
		for range 1000 {
			b.clock.Advance(100 * time.Millisecond)
			passed += b.granted("polling", l, 1)
		}
		least := 90
		if l.Algorithm == weir.SlidingCounter {
			// It rounds the share of the last window up.
			least = 80
		}
		if passed < least {
			b.Errorf("%v: %d in 100 s while polling, want about 100", l, passed)
		}
	}
}

func never(b *bench) {
	for _, l := range limits() {
		d := b.charge("never", l, 11)
		b.want(d, weir.Decision{Outcome: weir.Refused, Remaining: 10, RetryAfter: weir.Never})
		b.charge("never", l, 3)
		if d := b.charge("never", l, 11); d.RetryAfter != weir.Never || d.Remaining != 7 {
			b.Errorf("%v: %+v", l, d)
		}
	}
}

func zero(b *bench) {
	for id := range algo.Steps {
		limit := of(weir.Algorithm(id), weir.PerSecond(0))
		one := b.withID("zero", weir.Charge{Key: "zero", Limit: limit, Cost: 1})
		b.want(one.Decisions[0], weir.Decision{Outcome: weir.Refused, RetryAfter: weir.Never})
		b.want(b.charge("zero", limit, 0), weir.Decision{Outcome: weir.Granted})
		other := weir.Charge{Key: "zero beside", Limit: weir.PerSecond(5).MustCompile(), Cost: 1}
		a := b.withID("zero and another", other, weir.Charge{Key: "zero", Limit: limit, Cost: 1})
		if a.Allowed() || a.Decisions[0].Outcome == weir.Granted || b.charge("zero beside", other.Limit, 0).Remaining != 5 {
			b.Errorf("%v: an act with it charged the other: %+v", limit, a.Decisions)
		}
	}
}

func allOrNothing(b *bench) {
	all := limits()
	full := all[len(all)-1]
	b.granted("full", full, 10)
	charges := []weir.Charge{}
	for _, l := range all {
		charges = append(charges, weir.Charge{Key: "free", Limit: l, Cost: 2})
	}
	charges = append(charges, weir.Charge{Key: "full", Limit: full, Cost: 1})
	a := NewAct(charges...)
	b.take(a)
	for i, d := range a.Decisions[:len(all)] {
		d.ResetAfter = 0
		b.want(d, weir.Decision{Outcome: weir.NotCharged, Remaining: 10})
		if left := b.charge("free", all[i], 0).Remaining; left != 10 {
			b.Errorf("%v: %d of 10 left after a refused act", all[i], left)
		}
	}
	if d := a.Decisions[len(all)]; d.Outcome != weir.Refused || a.Allowed() {
		b.Errorf("full limit: %+v", d)
	}
	if i := weir.Strictest(a.Charges, a.Decisions); i != len(all) {
		b.Errorf("strictest is %d", i)
	}
	a = NewAct(charges[:len(all)]...)
	b.take(a)
	for i, d := range a.Decisions {
		if d.Outcome != weir.Granted || d.Granted != 2 || d.Remaining != 8 {
			b.Errorf("%v: %+v", all[i], d)
		}
	}
}

func sameKeyTwice(b *bench) {
	for _, l := range limits() {
		pair := func(x, y int64) []weir.Decision {
			a := NewAct(weir.Charge{Key: "twice", Limit: l, Cost: x}, weir.Charge{Key: "twice", Limit: l, Cost: y})
			b.take(a)
			return a.Decisions
		}
		d := pair(6, 6)
		if d[0].Outcome != weir.NotCharged || d[1].Outcome != weir.Refused || d[1].RetryAfter != weir.Never {
			b.Errorf("%v: 6 + 6 of 10: %+v", l, d)
		}
		d = pair(4, 3)
		if d[0].Outcome != weir.Granted || d[1].Outcome != weir.Granted || d[0].Remaining != 3 || d[1].Remaining != 3 {
			b.Errorf("%v: 4 + 3 of 10: %+v", l, d)
		}
		if d = pair(2, 2); d[1].Outcome != weir.Refused || d[1].RetryAfter == weir.Never || d[0].Remaining != 3 {
			b.Errorf("%v: 2 + 2 of 3: %+v", l, d)
		}
	}
}

func actByAct(b *bench) {
	for _, l := range limits() {
		var acts []*weir.Act
		for _, cost := range []int64{6, 6, 3, 2, 1, 1} {
			acts = append(acts, NewAct(weir.Charge{Key: "acts", Limit: l, Cost: cost}))
		}
		b.take(acts...)
		for i, want := range []bool{true, false, true, false, true, false} {
			if acts[i].Allowed() != want {
				b.Errorf("%v, act %d: %+v", l, i, acts[i].Decisions[0])
			}
		}
	}
}

func bestEffort(b *bench) {
	for _, l := range limits() {
		for i, want := range []int64{7, 3, 0} {
			a := NewAct(weir.Charge{Key: "effort", Limit: l, Cost: 1, UpTo: 7})
			b.take(a)
			if a.Decisions[0].Granted != want || a.Allowed() != (want > 0) {
				b.Errorf("%v, ask %d: %+v", l, i, a.Decisions[0])
			}
		}
	}
}

func bestEffortTogether(b *bench) {
	all := limits()
	b.charge("wide", all[0], 4)
	b.charge("narrow", all[1], 7)
	a := NewAct(weir.Charge{Key: "wide", Limit: all[0], Cost: 1, UpTo: 9}, weir.Charge{Key: "narrow", Limit: all[1], Cost: 1, UpTo: 9})
	b.take(a)
	if a.Decisions[0].Granted != 3 || a.Decisions[1].Granted != 3 || a.Decisions[0].Remaining != 3 || a.Decisions[1].Remaining != 0 {
		b.Errorf("6 and 3 left: %+v", a.Decisions)
	}
	twice := weir.Charge{Key: "both", Limit: all[0], Cost: 1, UpTo: 9}
	a = NewAct(twice, twice)
	if b.take(a); a.Decisions[0].Granted != 5 || a.Decisions[1].Remaining != 0 {
		b.Errorf("twice from 10: %+v", a.Decisions)
	}
	queue := of(weir.LeakyBucket, weir.Per(10, 10*time.Second))
	queued := weir.Charge{Key: "queue", Limit: queue, Cost: 1, UpTo: 3}
	a = NewAct(queued, queued)
	if b.take(a); a.Decisions[0].Delay != 0 || a.Decisions[1].Delay != 3*time.Second {
		b.Errorf("3 behind 3 in a queue: %+v", a.Decisions)
	}
}

// keeps has two classes share a budget of 10, of which one leaves the last 4.
func keeps(b *bench) {
	for _, l := range limits() {
		take := func(cost, upTo, keep int64) weir.Decision {
			a := NewAct(weir.Charge{Key: "keep", Limit: l, Cost: cost, UpTo: upTo, Keep: keep})
			b.take(a)
			return a.Decisions[0]
		}
		if d := take(7, 0, 4); d.Outcome != weir.Refused || d.RetryAfter != weir.Never || d.Remaining != 6 {
			b.Errorf("%v: 7 + 4 kept of 10: %+v", l, d)
		}
		if d := take(4, 0, 4); !d.Allowed() || d.Granted != 4 || d.Remaining != 2 {
			b.Errorf("%v: 4 + 4 kept of 10: %+v", l, d)
		}
		if d := take(1, 9, 4); d.Granted != 2 || d.Remaining != 0 {
			b.Errorf("%v: up to 9 + 4 kept of 6: %+v", l, d)
		}
		refused := take(1, 0, 4)
		if refused.Outcome != weir.Refused || refused.RetryAfter <= 0 || refused.RetryAfter == weir.Never || refused.Remaining != 0 {
			b.Errorf("%v: 1 + 4 kept of 4: %+v", l, refused)
		}
		if d := take(0, 0, 4); !d.Allowed() || d.Remaining != 0 {
			b.Errorf("%v: peek + 4 kept of 4: %+v", l, d)
		}
		if d := take(4, 0, 0); !d.Allowed() {
			b.Errorf("%v: the 4 that were kept: %+v", l, d)
		}
		again := NewAct(weir.Charge{Key: "keep both", Limit: l, Cost: 3, Keep: 4}, weir.Charge{Key: "keep both", Limit: l, Cost: 3, Keep: 4})
		if b.take(again); !again.Allowed() || again.Decisions[1].Remaining != 0 {
			b.Errorf("%v: 3 + 3 + 4 kept of 10: %+v", l, again.Decisions)
		}
		most := NewAct(weir.Charge{Key: "keep most", Limit: l, Cost: 1, UpTo: 9, Keep: 7}, weir.Charge{Key: "keep most", Limit: l, Cost: 1, UpTo: 9})
		if b.take(most); !most.Allowed() || most.Decisions[0].Granted != 3 {
			b.Errorf("%v: up to 9 twice, the first + 7 kept of 10: %+v", l, most.Decisions)
		}
	}
}

func badKeep(b *bench) {
	l := weir.PerSecond(5).MustCompile()
	refused := weir.Limit{Count: 5, Period: time.Second, ChargeRefused: true}.MustCompile()
	for name, change := range map[string]func(*weir.Act){
		"negative":       func(a *weir.Act) { a.Charges[0].Keep = -1 },
		"too large":      func(a *weir.Act) { a.Charges[0].Keep = weir.MaxCost + 1 },
		"booked ahead":   func(a *weir.Act) { a.MaxWait = time.Second },
		"charge refused": func(a *weir.Act) { a.Charges[0].Limit = refused },
		"record":         func(a *weir.Act) { a.Kind = weir.KindRecord },
		"reset":          func(a *weir.Act) { a.Kind = weir.KindReset },
	} {
		a := NewAct(weir.Charge{Key: "bad keep", Limit: l, Cost: 1, Keep: 1})
		change(a)
		b.taker.Take(context.Background(), []*weir.Act{a})
		var invalid *weir.InvalidError
		if !errors.As(a.Err, &invalid) || invalid.Path() != "charges[0].keep" {
			b.Errorf("%s: %v", name, a.Err)
		}
	}
	if d := b.charge("bad keep", l, 0); d.Remaining != 5 {
		b.Errorf("bad acts charged: %+v", d)
	}
}

func chargeRefused(b *bench) {
	limit := weir.Limit{Algorithm: weir.FixedWindow, Count: 8, Period: time.Minute, ChargeRefused: true}.MustCompile()
	if d := b.charge("refused", limit, 9); d.Outcome != weir.Refused || d.Remaining != 0 {
		b.Errorf("9 of 8: %+v", d)
	}
	if b.charge("refused", limit, 1).Allowed() {
		b.Error("the refused 9 were not charged")
	}
	b.charge("refused", limit, weir.MaxCount)
	b.charge("refused", limit, weir.MaxCount)
	if b.charge("refused", limit, 1).Allowed() {
		b.Error("the counter wrapped")
	}
	b.clock.Advance(time.Minute)
	if d := b.charge("refused", limit, 8); !d.Allowed() || d.Remaining != 0 {
		b.Errorf("next window: %+v", d)
	}
}

func changedAlgorithm(b *bench) {
	for _, l := range limits() {
		if n := b.granted("algorithm", l, 12); n != 10 {
			b.Errorf("%v after others: %d of 10", l, n)
		}
	}
}

func anyBytes(b *bench) {
	l := weir.PerDay(1).MustCompile()
	long := strings.Repeat("long", 5000)
	for _, key := range []string{"", " ", "a", "A", "{", "}", "}x{", "{a}", "a:b", "a_b", "\x00", "\r\n", "\xff\xfe", "ключ", long, long + "x"} {
		if n := b.granted(key, l, 3); n != 1 {
			b.Errorf("key %.20q: %d of 1", key, n)
		}
	}
}

// manyBuckets fills acts with buckets up to the bound and above.
func manyBuckets(b *bench) {
	var charges []weir.Charge
	for i := range weir.MaxBuckets/2048 + 1 {
		l := weir.Limit{Algorithm: weir.RollingWindow, Count: 10, Period: time.Hour, Buckets: 2048}
		charges = append(charges, weir.Charge{Key: fmt.Sprint("many buckets ", i), HashTag: "many", Limit: l.MustCompile(), Cost: 1})
	}
	b.take(NewAct(charges[1:]...))
	a := NewAct(charges...)
	b.taker.Take(context.Background(), []*weir.Act{a})
	var invalid *weir.InvalidError
	if !errors.As(a.Err, &invalid) || invalid.Path() != "charges" {
		b.Errorf("%v", a.Err)
	}
}

func badInput(b *bench) {
	l := weir.PerSecond(5).MustCompile()
	good := weir.Charge{Key: "bad", Limit: l, Cost: 1}
	with := func(change func(*weir.Charge)) *weir.Act {
		c := good
		change(&c)
		return NewAct(good, c)
	}
	for field, a := range map[string]*weir.Act{
		"charges":          NewAct(),
		"charges[1].cost":  with(func(c *weir.Charge) { c.Cost = -1 }),
		"charges[1].key":   with(func(c *weir.Charge) { c.Key = strings.Repeat("x", weir.MaxKeyBytes+1) }),
		"charges[1].limit": with(func(c *weir.Charge) { c.Limit = &weir.Limit{Count: 1, Period: time.Second} }),
		"charges[1].up_to": with(func(c *weir.Charge) { c.UpTo = 5 }),
		"decisions":        {Charges: []weir.Charge{good}},
		"kind":             {Kind: 200, Charges: []weir.Charge{good}, Decisions: make([]weir.Decision, 1)},
	} {
		after := NewAct(weir.Charge{Key: "good", Limit: weir.PerDay(1000).MustCompile(), Cost: 1})
		b.taker.Take(context.Background(), []*weir.Act{a, after})
		var invalid *weir.InvalidError
		if !errors.As(a.Err, &invalid) || invalid.Path() != field || !errors.Is(a.Err, weir.ErrInvalid) {
			b.Errorf("%s: %v", field, a.Err)
		}
		if after.Err != nil || !after.Allowed() {
			b.Errorf("%s: the next act suffered: %v", field, after.Err)
		}
	}
	if d := b.charge("bad", l, 0); d.Remaining != 5 {
		b.Errorf("bad acts charged: %+v", d)
	}
}
