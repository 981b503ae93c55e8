package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// holderCases have the contract's sentences about concurrency.
var holderCases = []testCase{
	{"exactly the places at many at once", crush},
}

// rooms returns a limit of that many slots with leases of a minute.
func rooms(count int64) *weir.Limit { return of(weir.Concurrency, weir.PerMinute(count)) }

// about is an act on the take of an id.
func about(kind weir.Kind, id string, charges ...weir.Charge) *weir.Act {
	a := NewAct(charges...)
	a.Kind, a.ID = kind, id
	return a
}

func crush(b *bench) {
	l := rooms(10)
	var inside atomic.Int64
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			for j := range 4 {
				a := NewAct(weir.Charge{Key: "crush", Limit: l, Cost: 1})
				a.ID = fmt.Sprint("holder ", i, " ", j)
				if b.taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
					b.Errorf("%v", a.Err)
				} else if a.Allowed() {
					inside.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if inside.Load() != 10 {
		b.Errorf("%d of 10", inside.Load())
	}
}
