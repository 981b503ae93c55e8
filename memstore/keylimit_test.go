package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

// TestTrackedKeysLikeOthers: a limiter decides tracked keys without an act, with the answers that
// it would get for acts, while keys come, expire, and share what is beyond the bound.
func TestTrackedKeysLikeOthers(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 20, 100} {
		clock := storetest.NewClock()
		open := func() *memstore.Store {
			return memstore.New(memstore.Options{Now: clock.Now, KeyLimit: func(l *weir.Limit) weir.KeyLimit {
				return weir.KeyLimit{MaxKeys: most, Overflow: "more of " + l.Name}
			}})
		}
		direct, whole := open(), open()
		limit := weir.Limit{Name: "few", Count: 5, Period: 4 * time.Second, Algorithm: weir.FixedWindow}
		a, err := weir.NewLimiter(direct, "api", limit)
		if err != nil {
			t.Fatal(err)
		}
		b, err := weir.NewLimiter(struct{ weir.Taker }{whole}, "api", limit)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // the same phase for both
			_, _ = a.AllowN(t.Context(), "key 0", 0)
			_, _ = b.AllowN(t.Context(), "key 0", 0)
		}
		rng := rand.New(rand.NewPCG(uint64(most), 3))
		for step := range 5000 {
			clock.Advance(time.Duration(rng.IntN(60)) * time.Millisecond)
			key, n := fmt.Sprint("key ", rng.IntN(1+rng.IntN(60))), rng.Int64N(3)
			got, err := a.AllowN(t.Context(), key, n)
			want, wantErr := b.AllowN(t.Context(), key, n)
			if got.Limit, want.Limit = nil, nil; got != want || err != nil || wantErr != nil {
				t.Fatalf("at most %d, step %d, %s: %+v, %v; by an act %+v, %v", most, step, key, got, err, want, wantErr)
			}
		}
		if got, want := direct.Stats().Overflowed, whole.Stats().Overflowed; got != want || most == 20 && got == 0 {
			t.Errorf("at most %d: %d charges shared, by acts %d", most, got, want)
		}
	}
}
