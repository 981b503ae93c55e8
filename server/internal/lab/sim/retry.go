package sim

import (
	"container/heap"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// A Retry is the behaviour of a refused client.
type Retry uint8

const (
	// RetryNever: the client does not retry. The zero value.
	RetryNever Retry = iota
	// RetryAtOnce: it asks again after about 50 ms, up to ten times.
	RetryAtOnce
	// RetryBackoff: it waits at random up to 100 ms, and up to twice as long
	// after each further refusal, 10 s at most, up to ten times.
	RetryBackoff
	// RetryAfter: it waits as long as the refusal says, up to ten times.
	RetryAfter
	retries
)

var retryNames = []string{"never", "at_once", "backoff", "retry_after"}

// String returns the policy's name.
func (r Retry) String() string { return retryNames[min(r, retries-1)] }

// RetryNames lists the names of all policies, for messages.
func RetryNames() string { return strings.Join(retryNames, ", ") }

// ParseRetry returns the policy of that name.
func ParseRetry(name string) (Retry, error) {
	r, err := named("retry", name, retryNames)
	return Retry(r), err
}

const (
	maxAttempts = 10
	roundTrip   = 50 * time.Millisecond
	firstWait   = 100 * time.Millisecond
	longestWait = 10 * time.Second
)

// wait is how long a client waits that was refused so often before, in µs, and
// whether it comes back at all.
func (r Retry) wait(refused weir.Decision, attempt int, rng *rand.Rand) (int64, bool) {
	if r == RetryNever || attempt+1 >= maxAttempts || refused.RetryAfter == weir.Never {
		return 0, false
	}
	switch r {
	case RetryAtOnce:
		return roundTrip.Microseconds()/2 + rng.Int64N(roundTrip.Microseconds()), true
	case RetryBackoff:
		most := min(firstWait<<attempt, longestWait)
		return 1 + rng.Int64N(most.Microseconds()), true
	default:
		return max(1, refused.RetryAfter.Microseconds()), true
	}
}

// A queue has the clients that will retry, the first at the front: a heap.
type queue struct {
	waiting []queued
	pushed  int64
}

type queued struct {
	arrival
	order int64 // who came first goes first
}

func (q *queue) push(a arrival) {
	heap.Push(q, queued{a, q.pushed})
	q.pushed++
}

func (q *queue) pop() arrival { return heap.Pop(q).(queued).arrival }

// Len, Less, Swap, Push and Pop are those of [heap.Interface].
func (q *queue) Len() int      { return len(q.waiting) }
func (q *queue) Swap(i, j int) { q.waiting[i], q.waiting[j] = q.waiting[j], q.waiting[i] }
func (q *queue) Push(x any)    { q.waiting = append(q.waiting, x.(queued)) }

func (q *queue) Less(i, j int) bool {
	a, b := &q.waiting[i], &q.waiting[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *queue) Pop() any {
	last := len(q.waiting) - 1
	x := q.waiting[last]
	q.waiting = q.waiting[:last]
	return x
}
