// Package spin has the lock for what is held for less than a microsecond at a time.
package spin

import "sync"

// A Mutex is a [sync.Mutex] that is tried a few times before its caller is put to sleep.
// The zero value is unlocked. It must not be copied once it was used.
type Mutex struct{ mu sync.Mutex }

// The pauses between tries, in turns of an empty loop, some microseconds in all. The
// first is as long as it takes to lock several times over: what a lock guards is in the caches of one processor at a time, and getting it there
// costs more than using it, so that processors are quicker by turns.
const (
	firstPause   = 1 << 10
	longestPause = 1 << 12
)

// Lock locks it.
func (m *Mutex) Lock() {
	if !m.mu.TryLock() {
		m.await()
	}
}

// Unlock unlocks it.
func (m *Mutex) Unlock() { m.mu.Unlock() }

// await takes a lock that was found taken. To try again is quicker than to be put to
// sleep and woken; to look away meanwhile leaves the cache line to who holds it.
func (m *Mutex) await() {
	for pause := firstPause; pause <= longestPause; pause *= 2 {
		for range pause {
		}
		if m.mu.TryLock() {
			return
		}
	}
	m.mu.Lock()
}
