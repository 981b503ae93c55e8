package algo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHoldersLikeAList compares histories of thousands of holders with a sorted list: named and
// anonymous ones, equal ends, leases that are renewed, released and ended.
func TestHoldersLikeAList(t *testing.T) {
	t.Parallel()
	for _, most := range []int{5, 400, 3000} {
		rng := rand.New(rand.NewPCG(uint64(most), 7))
		var s State
		var list []Holder
		now := int64(1_000_000)
		cut := func() {
			list = slices.DeleteFunc(list, func(h Holder) bool { return h.End <= now })
		}
		for step := range 12 * most {
			growing := step/(2*most)%2 == 0
			switch n := rng.IntN(20); {
			case n == 0:
				now += rng.Int64N(200)
				if rng.IntN(4*most) == 0 {
					now += 100_000 // most leases end
				}
			case n < 4 && growing || n == 1:
				units := 1 + rng.Int64N(3)
				first, end := rng.Uint64()>>1, now+1000*rng.Int64N(50)+1
				s.Occupy(first, units, now, end)
				cut()
				for i := range units {
					list = append(list, Holder{Holding{0, first + uint64(i)}, end})
				}
			case n < 7 && len(list) > 0:
				var want int64
				units := 1 + rng.Int64N(3)
				cut()
				list = slices.DeleteFunc(list, func(h Holder) bool {
					gone := !h.named() && want < units
					if gone {
						want++
					}
					return gone
				})
				s.Used = int64(len(list)) + want
				if _, slots := s.Vacate(units, now); slots != want {
					t.Fatalf("%d of %d slots of anonymous holders were vacated, want %d", slots, units, want)
				}
			case n < 14 && (growing || len(list) < 2):
				h := Holder{Holding{1 + rng.Uint64N(uint64(most)), 1}, now + 1000*rng.Int64N(50) + 1}
				cut()
				list = slices.DeleteFunc(list, func(old Holder) bool { return old.ID == h.ID })
				list = append(list, h)
				s.Hold(h.ID, now, h.End)
			case len(list) > 0:
				h := list[rng.IntN(len(list))]
				if h.named() {
					if s.Holds(h.ID, now) != (h.End > now) {
						t.Fatalf("%+v at %d: Holds is %v", h, now, h.End <= now)
					}
					cut()
					list = slices.DeleteFunc(list, func(old Holder) bool { return old.ID == h.ID })
					s.Hold(h.ID, now, 0)
				}
			}
			slices.SortFunc(list, Holder.compare)
			compareHolders(t, &s, list, now)
			if step%200 == 0 {
				s.Ext = s.Ext.Clone()
			}
		}
	}
}

func compareHolders(t *testing.T, s *State, list []Holder, now int64) {
	t.Helper()
	l := s.holders()
	if l == nil {
		l = new(Holders)
	}
	lasting := list
	for len(lasting) > 0 && lasting[0].End <= now {
		lasting = lasting[1:]
	}
	if got := l.size - l.ended(now); got != len(lasting) {
		t.Fatalf("%d holders, want %d", got, len(lasting))
	}
	var all []Holder
	named := 0
	for _, b := range l.blocks {
		if len(b) == 0 || len(b) > blockSize {
			t.Fatalf("a block of %d", len(b))
		}
		all = append(all, b...)
	}
	for _, h := range all {
		if h.named() {
			named++
		}
	}
	if l.size != len(all) || !slices.IsSortedFunc(all, Holder.compare) || l.ends != nil && len(l.ends) != named || l.ends == nil && len(l.blocks) > 1 {
		t.Fatalf("%d in %d blocks, of %d, %d of %d in the index", len(all), len(l.blocks), l.size, len(l.ends), named)
	}
	if !slices.Equal(all[l.ended(now):], lasting) {
		t.Fatalf("the holders are not those of the list")
	}
	if len(lasting) > 0 && l.last() != lasting[len(lasting)-1].End {
		t.Fatalf("the last lease ends at %d", l.last())
	}
	if len(l.blocks) > 2+4*len(all)/blockSize {
		t.Fatalf("%d blocks for %d holders", len(l.blocks), len(all))
	}
	if l.ends != nil && l.peak > 4*named+1 {
		t.Fatalf("an index for %d with %d holders", l.peak, named)
	}
}
