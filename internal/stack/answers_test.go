package stack_test

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/stacktest"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestAnswersMatchTheStore compares what two instances on one store in memory answer with what it holds.
func TestAnswersMatchTheStore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			store := memengine.New(memengine.Options{Now: storetest.NewClock().Now})
			o := stacktest.Options{Bare: store, Stores: [2]weir.Taker{store, store}, Seed: seed}
			if err := stacktest.Compare(t.Context(), o, storetest.Length(5000)); err != nil {
				t.Error(err)
			}
		})
	}
}
