package remote

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestLastKnownIsTheLatest: replies need not come in the order of the decisions, and a store whose
// clock was set back is believed again after a second.
func TestLastKnownIsTheLatest(t *testing.T) {
	t.Parallel()
	c := &weir.Charge{Key: "k", Limit: weir.Limit{Algorithm: weir.FixedWindow, Count: 10, Period: time.Hour}.MustCompile()}
	known := newLastKnown(1)
	at := time.Now()
	for i, reply := range []struct {
		decided         time.Duration // by the store's clock
		came            time.Duration // by ours
		remaining, want int64
	}{
		{2 * time.Millisecond, 0, 5, 5},
		{time.Millisecond, time.Microsecond, 6, 5},
		{2 * time.Millisecond, 2 * time.Microsecond, 4, 4}, // of one batch, the last decision
		{2 * time.Millisecond, 3 * time.Microsecond, 7, 4},
		{3 * time.Millisecond, 4 * time.Microsecond, 3, 3},
		{-time.Hour, 5 * time.Millisecond, 8, 3},
		{-time.Hour, 2 * time.Second, 8, 8},
	} {
		now := at.Add(reply.came).UnixMicro()
		known.put(c, &weir.Decision{Remaining: reply.remaining, ResetAfter: time.Hour, At: at.Add(reply.decided)}, now)
		if left, _ := known.remaining(c, 1, now); left != reply.want {
			t.Errorf("reply %d: %d remain, want %d", i, left, reply.want)
		}
	}
}
