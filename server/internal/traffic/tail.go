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

// ErrListeners says that there are as many subscriptions as there may be.
var ErrListeners = errors.New("traffic: subscribe: too many listeners")

// tail hands refusals to those who listen.
type tail struct {
	mu        sync.Mutex // held by those who come and go
	listeners atomic.Pointer[[]*Subscription]
}

// A Subscription is one listener to refusals. It is safe for concurrent use.
type Subscription struct {
	tail     *tail
	refusals chan Refusal
	missed   atomic.Uint64
	closing  sync.Once
}

// Subscribe returns a subscription to all refusals from now on. Nobody waits for a
// listener: while it has not taken the last buffer refusals, 1 … 4096, further ones
// are counted and dropped. Close it. The only error is [ErrListeners].
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

// Refusals is where they arrive. It is never closed: a listener leaves by itself.
func (s *Subscription) Refusals() <-chan Refusal { return s.refusals }

// Missed is how many were dropped.
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
