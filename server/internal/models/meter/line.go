package meter

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxWaiting is how many requests may wait in all, and maxWaitingOfOne how many of one caller.
	maxWaiting      = 4096
	maxWaitingOfOne = 64
	// tryAgain is about how often the first in a line tries again, because a hold of another
	// instance may have ended.
	tryAgain = 250 * time.Millisecond
)

// A line has the requests that wait for room in the limits of keys. In each key's queue callers
// take turns, and the requests of one caller go first come, first served. The zero value is empty.
// It is safe for concurrent use.
//
// A waiting request holds nothing. The first one of a queue tries again when a hold of its key
// ends, and after a while by itself. If it is granted, or refused for good, the next one tries.
type line struct {
	// ended counts the holds that ended.
	ended atomic.Uint64

	mu      sync.Mutex
	queues  map[string]*queue
	callers map[string]int // how many of their requests wait
	waiting int
	arrived uint64
}

// A queue is never empty.
type queue struct {
	front []*waiter // those that have tried, in the order of their arrival
	turns []string  // callers whose other requests wait, in the order of their turns
	of    map[string][]*waiter
}

// A waiter is one request that waits.
type waiter struct {
	caller string
	tried  bool   // it has been refused since it arrived
	number uint64 // when it arrived; 0 before
	turn   chan struct{}
}

// busy returns the first of the keys that requests wait for; empty if there is none.
func (l *line) busy(keys []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.queues[key] != nil {
			return key
		}
	}
	return ""
}

// wake lets the next request of each key try.
func (l *line) wake(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if q := l.queues[key]; q != nil {
			w := q.first()
			l.remove(key, w)
			close(w.turn)
		}
	}
}

// endedAt notes that a hold of the keys has ended.
func (l *line) endedAt(keys []string) {
	l.ended.Add(1)
	l.wake(keys...)
}

// first returns who is next.
func (q *queue) first() *waiter {
	if len(q.front) > 0 {
		return q.front[0]
	}
	return q.of[q.turns[0]][0]
}

// enter makes a request wait for a key. It reports false if there is no room.
func (l *line) enter(key string, w *waiter) bool {
	if l.waiting >= maxWaiting || l.callers[w.caller] >= maxWaitingOfOne {
		return false
	}
	if l.queues == nil {
		l.queues, l.callers = map[string]*queue{}, map[string]int{}
	}
	q := l.queues[key]
	if q == nil {
		q = &queue{of: map[string][]*waiter{}}
		l.queues[key] = q
	}
	if w.number == 0 {
		l.arrived++
		w.number = l.arrived
	}
	w.turn = make(chan struct{})
	if w.tried {
		at, _ := slices.BinarySearchFunc(q.front, w.number, func(other *waiter, number uint64) int { return int(int64(other.number - number)) })
		q.front = slices.Insert(q.front, at, w)
	} else {
		if q.of[w.caller] == nil {
			q.turns = append(q.turns, w.caller)
		}
		q.of[w.caller] = append(q.of[w.caller], w)
	}
	l.waiting++
	l.callers[w.caller]++
	return true
}

// remove removes a request from a key's queue, and reports whether it was there.
func (l *line) remove(key string, w *waiter) bool {
	q := l.queues[key]
	if q == nil {
		return false
	}
	if i := slices.Index(q.front, w); i >= 0 {
		q.front = slices.Delete(q.front, i, i+1)
	} else if i := slices.Index(q.of[w.caller], w); i >= 0 {
		// Its caller has had its turn.
		turn := slices.Index(q.turns, w.caller)
		q.turns = slices.Delete(q.turns, turn, turn+1)
		if q.of[w.caller] = slices.Delete(q.of[w.caller], i, i+1); len(q.of[w.caller]) == 0 {
			delete(q.of, w.caller)
		} else {
			q.turns = append(q.turns, w.caller)
		}
	} else {
		return false
	}
	if len(q.front) == 0 && len(q.turns) == 0 {
		delete(l.queues, key)
	}
	l.waiting--
	if l.callers[w.caller]--; l.callers[w.caller] == 0 {
		delete(l.callers, w.caller)
	}
	return true
}

// wait waits until it is the request's turn for a key, at most until the deadline, and reports
// whether to try again. Ended is the number of ended holds before the request was refused. After
// is when one that has tried shall try again by itself. One that has not tried yet tries once at
// its deadline.
func (l *line) wait(ctx context.Context, stop <-chan struct{}, key string, w *waiter, ended uint64, after time.Duration, until time.Time) bool {
	l.mu.Lock()
	switch {
	case w.tried && l.ended.Load() != ended, !w.tried && l.queues[key] == nil:
		l.mu.Unlock()
		return true
	case !l.enter(key, w):
		l.mu.Unlock()
		l.wake(key) // it may have been its turn
		return false
	}
	l.mu.Unlock()
	left := time.Until(until)
	if w.tried {
		left = min(left, after)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	again := true
	select {
	case <-w.turn:
		return true
	case <-timer.C:
		again = !w.tried || time.Now().Before(until)
	case <-ctx.Done():
		again = false
	case <-stop:
		again = false
	}
	l.mu.Lock()
	there := l.remove(key, w)
	l.mu.Unlock()
	if !again && (w.tried || !there) {
		l.wake(key) // it was first, or it was just its turn
	}
	return again
}

// soonAgain is when the first in a line tries again by itself.
func soonAgain() time.Duration { return tryAgain/2 + rand.N(tryAgain) }
