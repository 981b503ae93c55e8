// Package peers is what the instances of a service tell each other: short
// messages on topics, to all of them. A message can get lost, so each one says no
// more than that something should be looked at now rather than later; whoever
// listens looks from time to time anyway, and whenever it is connected anew.
package peers

import (
	"context"
	"sync"
)

// A Bus carries messages. Implementations are safe for concurrent use.
type Bus interface {
	// Publish sends a message to all subscribers of a topic, those of this
	// process included. An error says that others may not have heard it; none
	// does not say that they have.
	Publish(ctx context.Context, topic string, payload []byte) error
	// Subscribe adds a subscriber to a topic, for good. It is to be called before
	// messages are carried.
	Subscribe(topic string, s Subscriber)
}

// A Subscriber hears what is said on a topic. Its functions are called one at a
// time, by the goroutine that reads from the network: they must not wait.
type Subscriber struct {
	// Message is a message. The payload is the subscriber's to keep.
	Message func(payload []byte)
	// Joined, if not nil, says that messages arrive from now on, and that earlier
	// ones may have been missed: once in the beginning, and after each break.
	Joined func()
}

// Local is a [Bus] within one process. The zero value is ready for use; its
// subscribers have joined from the beginning, and are called by who publishes.
type Local struct {
	mu          sync.RWMutex
	subscribers subscribers
}

// Publish calls the subscribers. It returns no error.
func (l *Local) Publish(_ context.Context, topic string, payload []byte) error {
	l.mu.RLock()
	list := l.subscribers[topic]
	l.mu.RUnlock()
	for _, s := range list {
		s.Message(append([]byte(nil), payload...))
	}
	return nil
}

// Subscribe adds a subscriber and tells it that it has joined.
func (l *Local) Subscribe(topic string, s Subscriber) {
	l.mu.Lock()
	l.subscribers = l.subscribers.with(topic, s)
	l.mu.Unlock()
	if s.Joined != nil {
		s.Joined()
	}
}

// subscribers are those of each topic.
type subscribers map[string][]Subscriber

func (all subscribers) with(topic string, s Subscriber) subscribers {
	if all == nil {
		all = subscribers{}
	}
	// A list that is being called stays as it is.
	list := all[topic]
	all[topic] = append(list[:len(list):len(list)], s)
	return all
}
