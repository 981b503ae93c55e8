package fallback

import (
	"sync"

	"github.com/weirlimit/weir"
)

// returns are units to be given back.
type returns struct {
	most int
	mu   sync.Mutex // guards what follows
	acts []*weir.Act
	busy int // acts that are being given back
}

func (r *returns) add(a *weir.Act) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acts) >= r.most {
		return false
	}
	r.acts = append(r.acts, a)
	return true
}

// cancel takes up to so many units of a key away, which are to be charged again, and
// returns how many.
func (r *returns) cancel(c *weir.Charge, units int64) (cancelled int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.acts[:0]
	for _, a := range r.acts {
		own := &a.Charges[0]
		if n := min(own.Cost, units-cancelled); debtorOf(own) == debtorOf(c) && n > 0 {
			cancelled += n
			if own.Cost -= n; own.Cost == 0 {
				continue
			}
		}
		left = append(left, a)
	}
	clear(r.acts[len(left):])
	r.acts = left
	return cancelled
}

// collect takes up to so many out that nothing keeps; they count until done.
func (r *returns) collect(most int, kept func(*weir.Act) bool) []*weir.Act {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken, left []*weir.Act
	for _, a := range r.acts {
		if len(taken) < most && !kept(a) {
			taken = append(taken, a)
		} else {
			left = append(left, a)
		}
	}
	r.acts = left
	r.busy += len(taken)
	return taken
}

func (r *returns) done(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy -= n
}

func (r *returns) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acts) + r.busy
}
