package traffic

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	maxListeners = 32
	maxBuffer    = 4096
)

// ErrListeners reports that the maximum number of subscriptions is reached.
var ErrListeners = errors.New("traffic: subscribe: too many listeners")

// tail publishes refusals to subscriptions.
type tail struct {
	mu        sync.Mutex // guards changes of listeners
	listeners atomic.Pointer[[]*Subscription]
}

// A Subscription is one listener to refusals. It is safe for concurrent use.
type Subscription struct {
	tail     *tail
	refusals chan Refusal
	missed   atomic.Uint64
	closing  sync.Once
}

// Subscribe returns a subscription to all refusals from now on; the caller must close
// it. Calls never wait for a listener: while its buffer of 1 … 4096 refusals is full,
// further ones are counted and dropped. The only error is [ErrListeners].
func (r *Recorder) Subscribe(buffer int) (*Subscription, error) {
	t := &r.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all()
	if len(all) >= maxListeners {
		return nil, ErrListeners
	}
	s := &Subscription{tail: t, refusals: make(chan Refusal, min(max(buffer, 1), maxBuffer))}
	all = append(slices.Clone(all), s)
	t.listeners.Store(&all)
	return s, nil
}

// Refusals returns the channel of refusals. It is never closed.
func (s *Subscription) Refusals() <-chan Refusal { return s.refusals }

// Missed returns the number of refusals that were dropped.
func (s *Subscription) Missed() uint64 { return s.missed.Load() }

// Close ends the subscription, once or more often.
func (s *Subscription) Close() {
	s.closing.Do(func() {
		s.tail.mu.Lock()
		defer s.tail.mu.Unlock()
		left := slices.DeleteFunc(slices.Clone(s.tail.all()), func(other *Subscription) bool { return other == s })
		s.tail.listeners.Store(&left)
	})
}

func (t *tail) all() []*Subscription {
	if all := t.listeners.Load(); all != nil {
		return *all
	}
	return nil
}

func (t *tail) watched() bool { return len(t.all()) > 0 }

// publish passes a refusal to all subscriptions with room.
func (t *tail) publish(r *Refusal) {
	for _, s := range t.all() {
		select {
		case s.refusals <- *r:
		default:
			s.missed.Add(1)
		}
	}
}
