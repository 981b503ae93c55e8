package fallback

import (
	"sync"

	"github.com/weirlimit/weir"
)

// following is how many takes of each key were answered here while the store's reply is
// missing. Until it is known which of them the store refused, nothing that it granted to
// others may go back: somebody else would get it.
type following struct {
	mu  sync.Mutex // guards out
	out map[debtor]int
}

func (f *following) begin(a *weir.Act) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range a.Charges {
		if f.out == nil {
			f.out = map[debtor]int{}
		}
		f.out[debtorOf(&a.Charges[i])]++
	}
}

func (f *following) end(a *weir.Act) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range a.Charges {
		who := debtorOf(&a.Charges[i])
		if f.out[who]--; f.out[who] == 0 {
			delete(f.out, who)
		}
	}
}

// any reports whether there are some under any key of an act.
func (f *following) any(a *weir.Act) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range a.Charges {
		if f.out[debtorOf(&a.Charges[i])] > 0 {
			return true
		}
	}
	return false
}
