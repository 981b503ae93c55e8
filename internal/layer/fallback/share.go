package fallback

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// maxShares is how many limits' shares are kept before all are forgotten: more
// than a server has rules, fewer than limits that come with requests can fill
// memory with.
const maxShares = 4096

// shares are the limits that hold for one of several instances. Those of all limits
// may be asked for at once, when the store goes away.
type shares struct {
	known sync.Map // of share by *weir.Limit
	size  atomic.Int64
}

// A share is what one of so many instances may grant.
type share struct {
	limit     *weir.Limit
	instances int
}

// of returns the share of one of n instances.
func (s *shares) of(limit *weir.Limit, n int) *weir.Limit {
	found, known := s.known.Load(limit)
	if known && found.(share).instances == n {
		return found.(share).limit
	}
	part := divide(limit, n)
	if !known && s.size.Add(1) > maxShares {
		s.known.Clear()
		s.size.Store(1)
	}
	s.known.Store(limit, share{part, n})
	return part
}

// divide divides a limit by n, to no less than 1.
func divide(limit *weir.Limit, n int) *weir.Limit {
	part := *limit
	part.Count = max(1, part.Count/int64(n))
	if part.Burst > 0 {
		part.Burst = max(1, part.Burst/int64(n))
	}
	for {
		compiled, err := part.Compile()
		if err == nil {
			return compiled
		}
		if part.Count == 1 && part.Burst <= 1 {
			panic("fallback: no part of a compiled limit is valid: " + err.Error())
		}
		// Its numbers have become too odd for its period.
		part.Count, part.Burst = max(1, part.Count/2), max(min(1, part.Burst), part.Burst/2)
	}
}
