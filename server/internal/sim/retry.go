package sim

import (
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
	heap   []queued
	pushed int64
}

type queued struct {
	arrival
	order int64 // who came first goes first
}

func (q *queue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *queue) push(a arrival) {
	q.heap = append(q.heap, queued{a, q.pushed})
	q.pushed++
	for i := len(q.heap) - 1; i > 0 && q.less(i, (i-1)/2); i = (i - 1) / 2 {
		q.heap[i], q.heap[(i-1)/2] = q.heap[(i-1)/2], q.heap[i]
	}
}

func (q *queue) pop() arrival {
	first, last := q.heap[0].arrival, len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			return first
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
}
