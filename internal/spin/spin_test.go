package spin_test

import (
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/spin"
)

// TestMutex: what it guards only one changes at a time, many that sleep included.
func TestMutex(t *testing.T) {
	t.Parallel()
	const callers, each = 100, 1000
	var mu spin.Mutex
	var all sync.WaitGroup
	n := 0
	for range callers {
		all.Go(func() {
			for range each {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	if all.Wait(); n != callers*each {
		t.Errorf("%d, want %d", n, callers*each)
	}
}

// BenchmarkMutex has several goroutines change what is in one cache line.
func BenchmarkMutex(b *testing.B) {
	for name, mu := range map[string]sync.Locker{"spin": new(spin.Mutex), "sync": new(sync.Mutex)} {
		b.Run(name, func(b *testing.B) {
			n := 0
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					mu.Lock()
					n++
					mu.Unlock()
				}
			})
		})
	}
}
