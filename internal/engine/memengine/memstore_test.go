package memengine_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(_ testing.TB, clock *storetest.Clock) weir.Taker {
		return memengine.New(memengine.Options{Now: clock.Now})
	})
}
