// Package admission bounds the memory that clients can make a server use before it
// knows what they want. A [Budget] is shared by all connections and requests of a
// process; a [Gate] charges the calls of a gRPC server to it before their messages
// are decoded, and [Outline] counts what a JSON body holds without decoding it.
package admission

import (
	"errors"
	"sync/atomic"
)

// ErrFull says that a connection or a request would hold more memory than is left
// for it. Nothing was decoded.
var ErrFull = errors.New("admission: too much memory is held by requests that are being received")

// guaranteed is how many bytes each connection or request may hold whatever others
// hold: an ordinary request.
const guaranteed = 8 << 10

// A Budget is a number of bytes that requests may hold while they are received and
// decoded. It is safe for concurrent use. Create it with [NewBudget].
type Budget struct {
	size int64
	held atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{size: bytes} }

// Held returns how many bytes are held now.
func (b *Budget) Held() int64 { return b.held.Load() }

// Share returns the share of one connection or request, which holds nothing yet. A
// nil Budget bounds nothing: its shares are nil.
func (b *Budget) Share() *Share {
	if b == nil {
		return nil
	}
	return &Share{budget: b}
}

// A Share is what one connection or request holds of a budget. It may hold as much
// as is left for all others together: one that takes all it can get leaves half of
// the budget, n of them leave one part in n+1, so that those who hold little are
// always served. It is safe for concurrent use. A nil Share holds nothing and may
// take anything.
type Share struct {
	budget *Budget
	held   atomic.Int64
}

// Take takes n bytes, or none, and reports whether it took them.
func (s *Share) Take(n int64) bool {
	if s == nil {
		return true
	}
	own, all := s.held.Add(n), s.budget.held.Add(n)
	if own <= guaranteed || own <= s.budget.size-all {
		return true
	}
	s.Return(n)
	return false
}

// Return gives n bytes back, which must have been taken.
func (s *Share) Return(n int64) {
	if s != nil {
		s.held.Add(-n)
		s.budget.held.Add(-n)
	}
}

// Close returns everything that the share holds. Nothing may be taken afterwards.
func (s *Share) Close() {
	if s != nil {
		s.budget.held.Add(-s.held.Swap(0))
	}
}
