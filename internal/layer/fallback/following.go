package fallback

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// following is how many takes of each key were answered here while the store's reply is
// missing. Until it is known which of them the store refused, nothing that it granted to
// others may go back: somebody else would get it.
type following struct {
	some atomic.Int64
	mu   sync.Mutex // guards out
	out  map[debtor]*followed
}

// A followed is the takes of one key.
type followed struct {
	takes int
	// cut is how many of them were in flight when their node went out; none is closed
	// when there are none left.
	cut  int
	none chan struct{}
}

// overtaken is for how long a take waits for those of its key that an outage has cut off:
// on another connection it could come before them.
const overtaken = 50 * time.Millisecond

func (f *following) begin(a *weir.Act, cut bool) {
	f.some.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		f.out = map[debtor]*followed{}
	}
	for i := range a.Charges {
		who := debtorOf(&a.Charges[i])
		own := f.out[who]
		if own == nil {
			own = &followed{none: make(chan struct{})}
			f.out[who] = own
		}
		if own.takes++; cut {
			own.cut++
		}
	}
}

func (f *following) end(a *weir.Act, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range a.Charges {
		who := debtorOf(&a.Charges[i])
		own := f.out[who]
		if own.takes--; own.takes == 0 {
			delete(f.out, who)
		}
		if cut {
			if own.cut--; own.cut == 0 {
				close(own.none)
				own.none = make(chan struct{})
			}
		}
	}
	f.some.Add(-1)
}

// any reports whether there are some under any key of an act.
func (f *following) any(a *weir.Act) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range a.Charges {
		if f.out[debtorOf(&a.Charges[i])] != nil {
			return true
		}
	}
	return false
}

// wait waits for those of a key that an outage has cut off, for a while.
func (f *following) wait(ctx context.Context, c *weir.Charge) {
	f.mu.Lock()
	own := f.out[debtorOf(c)]
	var none chan struct{}
	if own != nil && own.cut > 0 {
		none = own.none
	}
	f.mu.Unlock()
	if none == nil {
		return
	}
	timer := time.NewTimer(overtaken)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	case <-ctx.Done():
	}
}
