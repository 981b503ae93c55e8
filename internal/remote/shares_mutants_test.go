package remote_test

import (
	"github.com/weirlimit/weir"
)

// guaranteeMutants change how charges are decided, so that each leaves out a part of what
// guarantees need: Check has to notice it.
func guaranteeMutants() map[string]func(*sharedBudgets) {
	return map[string]func(*sharedBudgets){
		"one unit too few stays free": keeping(func(c *weir.Charge) { c.Keep-- }),
		"nothing stays free":          keeping(func(c *weir.Charge) { c.Keep = 0 }),
		"one call for each charge": func(s *sharedBudgets) {
			s.Ask = func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
				if len(charges) == 1 {
					return inOneAct(taker, id, charges)
				}
				charges[1].Guaranteed = false
				pool := inOneAct(taker, id, charges[1:2])
				own := inOneAct(taker, "", charges[:1])
				if pool[0].Allowed() && own[0].Allowed() {
					return append(pool, own...)
				}
				return append(pool, inOneAct(taker, "", charges[2:])...)
			}
		},
		"guarantees without a limit": func(s *sharedBudgets) {
			s.Ask = func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
				charges = charges[len(charges)/2:]
				charges[0].Guaranteed = false
				return inOneAct(taker, id, charges)
			}
		},
		"less than one unit at once is rounded down to none": roundingDown,
	}
}

// keeping changes the charge that keeps units free.
func keeping(change func(*weir.Charge)) func(*sharedBudgets) {
	return func(s *sharedBudgets) {
		s.Ask = func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
			change(&charges[len(charges)-1])
			return inOneAct(taker, id, charges)
		}
	}
}

// roundingDown takes their guarantee from classes whose part of the headroom is less than one
// unit, and keeps nothing free for them.
func roundingDown(s *sharedBudgets) {
	var shares *weir.Shares
	small := func(class string) bool {
		return shares.Headroom*shares.Guarantees[class] < shares.Limit.Count
	}
	count := func() (n int64) {
		for class := range shares.Guarantees {
			if small(class) {
				n++
			}
		}
		return n
	}
	s.Suits = func(some *weir.Shares) bool {
		shares = some // the last one that suits is the one in use
		return count() > 0
	}
	s.Ask = func(taker weir.Taker, id string, charges []weir.Charge) []*weir.Act {
		last := &charges[len(charges)-1]
		last.Keep -= count()
		if len(charges) > 1 && small(charges[0].Limit.Name) {
			charges = charges[len(charges)-1:]
		}
		return inOneAct(taker, id, charges)
	}
}
