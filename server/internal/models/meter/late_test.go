package meter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/memstore"
)

// late holds back the answer to one of the takes.
type late struct {
	weir.Taker
	which    int64
	takes    atomic.Int64
	decided  chan int64
	answered chan struct{}
}

func (l *late) Take(ctx context.Context, all []*weir.Act) {
	l.Taker.Take(ctx, all)
	if all[0].Kind != acts.KindTake || all[0].Charges[0].Cost == 0 {
		return
	}
	n := l.takes.Add(1)
	l.decided <- n
	if n == l.which {
		<-l.answered
	}
}

// TestLateAnswers: a request waits for the room of a hold of which it is not known yet that it was
// granted, or that ended while the refusal was on its way.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]int64{"not known yet": 1, "ended": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := make(chan struct{})
			store := &late{Taker: memstore.New(memstore.Options{}), which: which, decided: make(chan int64, 100), answered: make(chan struct{})}
			b := newBench(t, limited("count: usd, dollars: 0.15, unit: day, algorithm: fixed_window, anchor: first"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-upstream
				fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":9}}`)
			}), func(o *Options) { o.Taker, o.Wait = store, time.Minute })
			results := make(chan int, 2)
			for n := range int64(2) {
				go func() { results <- b.post(chatPath, chatBody).StatusCode }()
				if got := <-store.decided; got != n+1 {
					t.Errorf("take %d is decided", got)
				}
			}
			var early []int
			wait := func(fits func(h openHold) bool) {
				b.eventually("the second one's refusal, or the first one's end", func() bool {
					select {
					case status := <-results:
						early = append(early, status)
					default:
					}
					b.proxy.open.mu.Lock()
					defer b.proxy.open.mu.Unlock()
					for _, h := range b.proxy.open.byKey {
						if fits(h) {
							return true
						}
					}
					return which == 1 && len(early) == 1
				})
			}
			if which == 1 {
				wait(func(h openHold) bool {
					for a := range h.asking {
						select {
						case <-a.done:
							return true
						default:
						}
					}
					return false
				})
				close(upstream)
			} else {
				close(upstream)
				wait(func(h openHold) bool { return h.ended > 0 })
			}
			close(store.answered)
			for len(early) < 2 {
				early = append(early, <-results)
			}
			if early[0] != http.StatusOK || early[1] != http.StatusOK {
				t.Errorf("answers %v, want both granted", early)
			}
		})
	}
}
