package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

type testCase struct {
	name string
	run  func(*bench)
}

// cases are the contract's sentences, one each.
var cases = append(textCases(), []testCase{
	{"grants exactly what fits to many at once", stampede},
	{"several acts in one call are decided one by one", actByAct},
	{"any bytes make a key", anyBytes},
	{"what is outside the contract is an error and charges nothing", badInput},
	{"windows of too many buckets are an error", manyBuckets},
	{"alternatives that cannot be decided are an error", badAlternatives},
	{"a take that is amended to no alternative was not granted", amendedToNothing},
	{"a charged refusal is given back exactly", amendedRefusal},
	{"what a guarantee was not charged is not given back", guaranteeBeyondTheBound},
	{"many attempts are all withdrawn, in any order", manyAttempts},
	{"a take has so many attempts and no more", busy},
	{"a block lasts as long as the refusal said", blockLasts},
	{"only a refusal by its own limit blocks a key", blockBegins},
	{"a reset ends a block, and a record begins one", blockEnds},
	{"a block is begun once for an id", blockedOnce},
}...)

// limits is one limit of 10 per 10 s for each algorithm.
func limits() []*weir.Limit {
	var all []*weir.Limit
	for id := range algo.Steps {
		all = append(all, weir.Limit{Algorithm: weir.Algorithm(id), Count: 10, Period: 10 * time.Second}.MustCompile())
	}
	return all
}

func stampede(b *bench) {
	for _, l := range limits() {
		var granted atomic.Int64
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				for j := range 4 {
					a := NewAct(weir.Charge{Key: "stampede", Limit: l, Cost: 1})
					if holds(a) {
						a.ID, a.Scope.Owner = fmt.Sprint("holder ", i, " ", j), a.Charges[0].Key
					}
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

// manyAttempts withdraws as many attempts as may stand: after they arrived, and before.
func manyAttempts(b *bench) {
	room := weir.Limit{Algorithm: weir.Concurrency, Count: 3, Period: time.Hour}.MustCompile()
	for _, kinds := range [][]weir.Kind{{acts.KindTake, acts.KindWithdraw}, {acts.KindWithdraw, acts.KindTake}} {
		key := fmt.Sprint("first ", kinds[0])
		for _, kind := range kinds {
			for i := range acts.MaxAttempts {
				a := attempt(kind, key, room, uint64(i+1))
				b.taker.Take(context.Background(), []*weir.Act{a})
				if a.Err != nil && !errors.Is(a.Err, weir.ErrReleased) {
					b.Fatal(a.Err)
				}
			}
		}
		if left := b.charge(key, room, 0).Remaining; left != 3 {
			b.Errorf("%s: %d of 3 slots are free", key, left)
		}
	}
}

// busy repeats a take too often. A renewal says that its caller knows the answer.
func busy(b *bench) {
	limit := weir.PerHour(10).MustCompile()
	for i := range acts.MaxAttempts {
		b.take(attempt(acts.KindTake, "busy", limit, uint64(i+1)))
	}
	again, known := attempt(acts.KindTake, "busy", limit, 1000), attempt(acts.KindTake, "busy", limit, 7)
	b.taker.Take(context.Background(), []*weir.Act{again, known})
	if !errors.Is(again.Err, weir.ErrBusyID) || !known.Allowed() {
		b.Errorf("one attempt more: %v; one of the others: %v", again.Err, known.Err)
	}
	renewal := attempt(acts.KindRenew, "busy", limit, 0)
	again = attempt(acts.KindTake, "busy", limit, 1001)
	b.take(renewal)
	if b.take(again); !again.Allowed() || b.charge("busy", limit, 0).Remaining != 9 {
		b.Errorf("after a renewal: %+v", again.Decisions)
	}
}

// attempt is an act about the take with an ID of the key's.
func attempt(kind weir.Kind, key string, limit *weir.Limit, number uint64) *weir.Act {
	a := NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})
	a.Kind, a.ID, a.Scope.Owner, a.Attempt = kind, "id", key, number
	return a
}

func actByAct(b *bench) {
	for _, l := range limits() {
		if algo.TraitsOf(l.Algorithm).HoldsSlots {
			continue
		}
		var all []*weir.Act
		for _, cost := range []int64{6, 6, 3, 2, 1, 1} {
			all = append(all, NewAct(weir.Charge{Key: "acts", Limit: l, Cost: cost}))
		}
		b.take(all...)
		for i, want := range []bool{true, false, true, false, true, false} {
			if all[i].Allowed() != want {
				b.Errorf("%v, act %d: %+v", l, i, all[i].Decisions[0])
			}
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
	for i := range algo.MaxBuckets/2048 + 1 {
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
