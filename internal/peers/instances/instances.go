// Package instances counts the instances of a service by what they tell each
// other: each says from time to time that it is there.
package instances

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/peers"
)

// DefaultEvery is how often an instance says that it is there.
const DefaultEvery = 2 * time.Second

const (
	// missed is how many times in a row one may not be heard.
	missed = 3
	// maxInstances bounds how many are remembered, and maxID how long their names
	// are, whatever others say.
	maxInstances = 10_000
	maxID        = 64
	topic        = "instances"
)

// Options are the settings of a [Counter]. Bus is required.
type Options struct {
	// Bus reaches the other instances. The caller starts and stops it.
	Bus peers.Bus
	// Every is how often this instance says that it is there. Zero:
	// [DefaultEvery].
	Every time.Duration
}

// A Counter counts instances. It is safe for concurrent use. Create it with New; it
// counts between Start and Stop.
//
// An instance counts until it has not been heard three times in a row, by the
// times that this one has heard itself: while nobody hears anything, because what
// carries the messages is away, the count stays what it was.
type Counter struct {
	Options
	id    string
	count atomic.Int64

	mu     sync.Mutex       // guards what follows; never held while waiting
	heard  map[string]int64 // when, in own
	own    int64            // how often this instance heard itself
	cancel context.CancelFunc
	done   chan struct{} // closed when nobody speaks any more
	ended  bool
}

// New returns a counter that has subscribed to the bus. It starts nothing.
func New(o Options) *Counter {
	o.Every = cmp.Or(max(o.Every, 0), DefaultEvery)
	c := &Counter{Options: o, id: rand.Text(), heard: map[string]int64{}, done: make(chan struct{})}
	o.Bus.Subscribe(topic, peers.Subscriber{Message: func(payload []byte) { c.hear(string(payload)) }})
	return c
}

// Count is how many instances there are: those that were heard, at least this
// one.
func (c *Counter) Count() int { return max(1, int(c.count.Load())) }

// hear notes a sign of life, or with a hyphen before it that one has ended.
func (c *Counter) hear(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.heard[id]
	switch {
	case len(id) > 1 && id[0] == '-':
		delete(c.heard, id[1:])
	case len(id) <= maxID && (known || len(c.heard) < maxInstances):
		c.heard[id] = c.own
	}
	if id == c.id {
		c.own++
		c.heard[id] = c.own
		for other, last := range c.heard {
			if c.own-last > missed {
				delete(c.heard, other)
			}
		}
	}
	c.count.Store(int64(len(c.heard)))
}

// Start begins to speak in the background. Further calls do nothing.
func (c *Counter) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil || c.ended {
		return
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(c.done)
		c.speak(ctx)
	}()
}

func (c *Counter) speak(ctx context.Context) {
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	for {
		c.say(ctx, c.id)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// say tells all instances. What could not be told is told again next time.
func (c *Counter) say(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, c.Every)
	defer cancel()
	_ = c.Bus.Publish(ctx, topic, []byte(text))
}

// Stop says that this instance ends, and returns once nobody speaks any more, or
// when ctx ends, which the error then says. Further calls wait too.
func (c *Counter) Stop(ctx context.Context) error {
	c.mu.Lock()
	started, first := c.cancel != nil, !c.ended
	c.ended = true
	c.mu.Unlock()
	if !started {
		return nil
	}
	c.cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("instances: stop: %w", ctx.Err())
	}
	if first {
		c.say(ctx, "-"+c.id)
	}
	return nil
}
