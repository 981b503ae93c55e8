package admission_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/server/admission"
)

// TestShares: however much some take, whoever holds little is served, and what is held
// stays within the budget and what each is guaranteed.
func TestShares(t *testing.T) {
	t.Parallel()
	const size, guaranteed = 1 << 20, 8 << 10
	rapid.Check(t, func(t *rapid.T) {
		budget := admission.NewBudget(size)
		hogs := rapid.IntRange(1, 50).Draw(t, "hogs")
		shares := make([]*admission.Share, hogs)
		for i := range shares {
			shares[i] = budget.Share()
			for shares[i].Take(rapid.Int64Range(1, 64<<10).Draw(t, "bytes")) {
			}
		}
		if most := int64(size + hogs*guaranteed); budget.Held() > most {
			t.Fatalf("%d of %d hold %d", hogs, size, budget.Held())
		}
		if honest := budget.Share(); !honest.Take(guaranteed) {
			t.Fatalf("with %d others, nobody else is served", hogs)
		}
		for _, s := range shares {
			s.Close()
		}
		if budget.Held() != guaranteed {
			t.Fatalf("%d are held for nobody", budget.Held()-guaranteed)
		}
	})
}

func TestNobodyIsBoundWithoutABudget(t *testing.T) {
	t.Parallel()
	var none *admission.Budget
	share := none.Share()
	if !share.Take(1 << 40) {
		t.Error("refused")
	}
	share.Return(1)
	share.Close()
}
