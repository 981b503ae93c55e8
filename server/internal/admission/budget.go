// Package admission bounds the memory that clients can make a server use before their
// requests are decoded. A [Budget] is shared by all connections and requests of a
// process, and an [Outline] counts what a JSON body holds without decoding it.
package admission

import (
	"errors"
	"sync"
	"sync/atomic"
)

// A Reason is why a connection or a request was rejected before it was decoded.
type Reason string

// The reasons.
const (
	// Connections: too many are open.
	Connections Reason = "connections"
	// Memory: the requests that are being received hold too much.
	Memory Reason = "memory"
	// Message: the body of a request is larger than it may be.
	Message Reason = "message"
	// Header: the header of a request is larger than it may be.
	Header Reason = "header"
)

// ErrFull reports that a connection or a request would hold more memory than is left
// for it. Nothing was decoded.
var ErrFull = errors.New("admission: too much memory is held by requests that are being received")

const (
	// guaranteed is the number of bytes that each connection or request may hold in any
	// case: enough for an ordinary request.
	guaranteed = 16 << 10
	// evictable is the number of bytes of unfinished messages above which a hold may be
	// evicted.
	evictable = 64 << 10
	// maxEvicted bounds the holds that are evicted for one.
	maxEvicted = 4
)

// A Budget is a number of bytes that requests may hold while they are received and
// decoded. It is safe for concurrent use. Create it with [NewBudget].
type Budget struct {
	size int64
	held atomic.Int64

	mu    sync.Mutex // guards large; never held while waiting
	large map[*Hold]int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{size: bytes, large: map[*Hold]int64{}} }

// Held returns how many bytes are held now.
func (b *Budget) Held() int64 { return b.held.Load() }

// Hold returns the hold of one connection or request, which has no bytes yet. evict is
// called at most once, if others need the bytes of its unfinished messages; it must end
// the connection or request without waiting. A nil Budget bounds nothing: its holds are
// nil.
func (b *Budget) Hold(evict func()) *Hold {
	if b == nil {
		return nil
	}
	return &Hold{budget: b, evict: evict}
}

// A Hold is the part of a budget that one connection or request uses. It may hold as much as
// is left for all others together. Where that does not suffice for one that holds
// little, the connection with most bytes of unfinished messages gives way: an honest
// client's messages arrive whole. It is safe for concurrent use. A nil Hold has no
// bytes and may take any number.
type Hold struct {
	budget  *Budget
	evict   func()
	held    atomic.Int64
	evicted atomic.Bool
}

// Take takes n bytes, or none, and reports whether it took them.
func (s *Hold) Take(n int64) bool {
	if s == nil {
		return true
	}
	for range maxEvicted {
		if s.take(n) {
			return true
		}
		if s.held.Load()+n > s.budget.size/8 || !s.budget.makeRoom(s) {
			return false
		}
	}
	return s.take(n)
}

func (s *Hold) take(n int64) bool {
	own, all := s.held.Add(n), s.budget.held.Add(n)
	if own <= guaranteed || own <= s.budget.size-all {
		return true
	}
	s.Return(n)
	return false
}

// Return gives n bytes back, which must have been taken.
func (s *Hold) Return(n int64) {
	if s != nil {
		s.held.Add(-n)
		s.budget.held.Add(-n)
	}
}

// Unfinished says how many of the bytes belong to messages that are not whole.
func (s *Hold) Unfinished(bytes int64) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if bytes > evictable {
		s.budget.large[s] = bytes
	} else {
		delete(s.budget.large, s)
	}
}

// Evicted reports whether the hold was evicted.
func (s *Hold) Evicted() bool { return s != nil && s.evicted.Load() }

// Close returns all bytes. Nothing may be taken afterwards.
func (s *Hold) Close() {
	if s != nil {
		s.Unfinished(0)
		s.budget.held.Add(-s.held.Swap(0))
	}
}

// makeRoom evicts the largest hold other than own, and reports whether there was one.
func (b *Budget) makeRoom(own *Hold) bool {
	largest := b.largest(own)
	if largest == nil || largest.evicted.Swap(true) {
		return false
	}
	largest.evict()
	return true
}

// largest removes and returns the hold with most bytes of unfinished messages.
func (b *Budget) largest(own *Hold) *Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	var largest *Hold
	for s, bytes := range b.large {
		if s != own && (largest == nil || bytes > b.large[largest]) {
			largest = s
		}
	}
	delete(b.large, largest)
	return largest
}
