package queue

import (
	"strconv"

	"github.com/weirlimit/weir/internal/engine/redisengine"
)

// At makes the queue take the time from a clock, in µs.
func (q *Queue) At(now func() int64) *Queue {
	return q.Mutant(now, func(text string) string { return text })
}

// Mutant is At with a script that was changed.
func (q *Queue) Mutant(now func() int64, mutate func(string) string) *Queue {
	timed := *q
	timed.extension = redisengine.NewExtension("queue", "local now = tonumber(ARGV[#ARGV])\n"+mutate(queueLua))
	timed.extra = func() []any { return []any{strconv.FormatInt(now(), 10)} }
	return &timed
}

// Keys returns the keys of the queue, its leases and what is leased.
func (q *Queue) Keys() []string { return q.keys }
