package admission_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/server/internal/admission"
)

// TestShares: however much some take, and in whatever order, whoever holds little is
// served, and what is held stays within the budget and what each is guaranteed.
func TestShares(t *testing.T) {
	t.Parallel()
	const size, guaranteed, ordinary = 1 << 20, 16 << 10, 64 << 10
	rapid.Check(t, func(t *rapid.T) {
		budget := admission.NewBudget(size)
		hogs := rapid.IntRange(1, 50).Draw(t, "hogs")
		shares := make([]*admission.Hold, hogs)
		for i := range shares {
			shares[i] = budget.Hold(func() { shares[i].Close() })
			for held := int64(0); !shares[i].Evicted(); {
				n := rapid.Int64Range(1, 64<<10).Draw(t, "bytes")
				if !shares[i].Take(n) {
					break
				}
				held += n
				shares[i].Unfinished(held)
			}
		}
		if most := int64(size + hogs*guaranteed); budget.Held() > most {
			t.Fatalf("%d of %d hold %d", hogs, size, budget.Held())
		}
		honest := budget.Hold(func() { t.Fatal("evicted") })
		for n := range ordinary >> 10 {
			if !honest.Take(1 << 10) {
				t.Fatalf("with %d others, nobody else gets more than %d KiB", hogs, n)
			}
		}
		for _, s := range shares {
			if !s.Evicted() {
				s.Close()
			}
		}
		if budget.Held() != ordinary {
			t.Fatalf("%d are held for nobody", budget.Held()-ordinary)
		}
	})
}

func TestNobodyIsBoundWithoutABudget(t *testing.T) {
	t.Parallel()
	var none *admission.Budget
	share := none.Hold(nil)
	if !share.Take(1 << 40) {
		t.Error("refused")
	}
	share.Return(1)
	share.Unfinished(1 << 40)
	share.Close()
}
