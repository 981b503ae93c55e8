package memstore_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(_ testing.TB, clock *storetest.Clock) weir.Taker {
		return memstore.New(memstore.Options{Now: clock.Now})
	})
}
