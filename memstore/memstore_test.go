package memstore_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		store := memstore.New(memstore.Options{Now: clock.Now, KeyLimit: func(*weir.Limit) weir.KeyLimit {
			return weir.KeyLimit{MaxKeys: 10_000_000, Overflow: "overflow"}
		}})
		if _, err := store.ChangeOverride("another key", &weir.Override{Until: clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		return store
	})
}
