package rls

import (
	"strconv"
	"sync"

	"github.com/weirlimit/weir/server/internal/rules"
)

// maxOverrides bounds the cache: most callers bring few limits along, and
// whoever brings many pays for compiling them.
const maxOverrides = 1024

// overrides remembers limits that callers brought along, compiled. The zero
// value is ready for use.
type overrides struct {
	mu    sync.RWMutex
	rules map[Override]*rules.Rule
}

// rule returns the rule that an override makes.
func (c *overrides) rule(o Override) (*rules.Rule, error) {
	c.mu.RLock()
	rule := c.rules[o]
	c.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	if o.Unit < Second || o.Unit >= units {
		return nil, invalid("unit", strconv.Itoa(int(o.Unit)), "1 … 7: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or WEEK")
	}
	rule, err := rules.Override(int64(o.Requests), unitNames[o.Unit], o.Multiplier)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == nil || len(c.rules) >= maxOverrides {
		c.rules = make(map[Override]*rules.Rule)
	}
	c.rules[o] = rule
	return rule, nil
}
