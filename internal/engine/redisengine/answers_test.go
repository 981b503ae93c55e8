package redisengine_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/stacktest"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestAnswersMatchTheStore compares what two instances on one Redis answer with what it holds.
func TestAnswersMatchTheStore(t *testing.T) {
	t.Parallel()
	address, clock := testserver.StartRedis(t).Addr(), storetest.NewClock()
	open := func() weir.Taker {
		store, err := redisengine.NewWithClock(dialPatient(t, address), redisengine.Options{Timeout: time.Minute}, clock.Micros)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	o := stacktest.Options{
		Bare: open(), Stores: [2]weir.Taker{open(), open()}, Seed: 1,
		Remote: remote.Options{Patience: unhurried, Calls: calls.Options{Silence: unhurried}},
	}
	if err := stacktest.Compare(t.Context(), o, storetest.Length(2000)); err != nil {
		t.Error(err)
	}
}
