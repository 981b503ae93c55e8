package resp

import (
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// maxLimits is how many compiled limits are kept. Clients use few; one that
// makes up many only has them compiled each time.
const maxLimits = 1024

// params are what CL.THROTTLE says of a limit.
type params struct{ burst, count, seconds int64 }

// limits are the compiled limits that were asked for lately.
type limits struct {
	mu       sync.RWMutex
	compiled map[params]*weir.Limit
}

// get returns the limit. The parameters are within the bounds of a limit each,
// but not every combination of them is one.
func (l *limits) get(p params) (*weir.Limit, error) {
	l.mu.RLock()
	limit := l.compiled[p]
	l.mu.RUnlock()
	if limit != nil {
		return limit, nil
	}
	limit, err := weir.Limit{
		Name:   "cl.throttle",
		Count:  p.count,
		Period: time.Duration(p.seconds) * time.Second,
		Burst:  p.burst,
	}.Compile()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compiled == nil || len(l.compiled) >= maxLimits {
		l.compiled = make(map[params]*weir.Limit)
	}
	l.compiled[p] = limit
	return limit, nil
}
