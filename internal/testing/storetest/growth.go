package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// RefuseAll makes a Taker refuse that many random takes, under every algorithm: of a key
// that is spent, alone and together with fresh keys. If ids is true, the takes have IDs
// that a client could repeat, which may grow the store for a while. Otherwise only
// holders have IDs, and RefuseAll returns the first difference between the results of
// size before and after.
func RefuseAll(taker weir.Taker, acts int, ids bool, size func() string) error {
	rng := rand.New(rand.NewPCG(11, 11))
	var spent []weir.Charge
	for id := range algo.Steps {
		limit := weir.Limit{Algorithm: weir.Algorithm(id), Count: 1, Period: time.Hour}.MustCompile()
		spent = append(spent, weir.Charge{Key: fmt.Sprint("spent ", limit.Algorithm), Limit: limit, Cost: 1})
		a := NewAct(spent[id])
		a.ID, a.Scope.Owner = fmt.Sprint("holder of ", id), a.Charges[0].Key
		if taker.Take(context.Background(), []*weir.Act{a}); !a.Allowed() {
			return fmt.Errorf("%v: %+v, %v", limit, a.Decisions, a.Err)
		}
	}
	before := size()
	for i := range acts {
		a := refused(rng, spent, i)
		if a.NewID = !ids; !ids && rng.IntN(2) == 0 && !holds(a) {
			a.ID = ""
		}
		if taker.Take(context.Background(), []*weir.Act{a}); a.Err != nil || a.Allowed() {
			return fmt.Errorf("%+v: %+v, %v", a.Charges, a.Decisions, a.Err)
		}
		if ids {
			continue
		}
		if after := size(); after != before {
			return fmt.Errorf("refused %+v: the store was %s, is %s", a.Charges, before, after)
		}
	}
	return nil
}

// refused is a take of a spent key, now and then beside others.
func refused(rng *rand.Rand, spent []weir.Charge, i int) *weir.Act {
	charges := []weir.Charge{spent[rng.IntN(len(spent))]}
	for n := range rng.IntN(3) {
		fresh := spent[rng.IntN(len(spent))]
		fresh.Key = fmt.Sprint("fresh ", i, " ", n)
		charges = append(charges, fresh)
	}
	rng.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
	a := NewAct(charges...)
	a.ID, a.Scope.Owner = fmt.Sprint("id ", i), a.Charges[0].Key
	if !holds(a) && rng.IntN(3) == 0 {
		for i := range charges {
			charges[i].UpTo = 3
		}
	}
	return a
}

func holds(a *weir.Act) bool {
	for i := range a.Charges {
		if algo.TraitsOf(a.Charges[i].Limit.Algorithm).HoldsSlots {
			return true
		}
	}
	return false
}
