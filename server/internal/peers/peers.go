// Package peers connects the instances of a service that share one Redis: it counts them,
// notifies their deny caches of refusals to drop, and keeps their overrides equal.
//
// Every message only makes something happen sooner, so a lost message costs a delay:
// instances no longer count after three missed heartbeats, deny caches use a refusal for
// a second at most, and overrides are polled.
package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/layer/override"
)

// DefaultPrefix begins the names of the channel and the keys unless Options.Prefix is set.
const DefaultPrefix = "weir:"

const (
	defaultTimeout = time.Second
	heartbeat      = 2 * time.Second // between two messages that say that this instance is alive
	poll           = 5 * time.Second // between two reads of the overrides in Redis
)

// The first byte of a message is its kind; the payload follows.
const (
	kindAlive     = 'a' // the sender's ID
	kindStopped   = 's' // the sender's ID
	kindForget    = 'f' // keys for deny caches to forget, each after its length
	kindOverrides = 'o' // nothing: the overrides in Redis have changed
)

// Options configure a [Group]. Client is required.
type Options struct {
	// Client reaches the Redis that the instances share. The caller configures it and
	// closes it after Stop.
	Client redis.UniversalClient
	// Prefix begins the names of the channel and the keys. It must not contain braces.
	// Empty: [DefaultPrefix].
	Prefix string
	// Secret, the same for all instances, authenticates their messages with a MAC.
	// Messages without it, with another secret, repeated, or more than five minutes from
	// this host's time are ignored. Empty: every message is believed.
	Secret string
	// Timeout bounds one call of Redis. Zero: one second.
	Timeout time.Duration
	// Logger receives a line when messages or overrides stop arriving. Nil: none.
	Logger *slog.Logger
}

// A Group is the set of instances that share a Redis, seen from one of them. It is safe
// for concurrent use. Create it with New, call Follow, then Start.
type Group struct {
	bus
	instances instances
	denials   denials
	overrides *overrides // nil unless Follow was given some

	heartbeat time.Duration

	mu      sync.Mutex // guards what follows; never held while waiting
	cancel  context.CancelFunc
	stopped bool
	running sync.WaitGroup
}

// New returns a group that starts nothing. The error is a [*weir.InvalidError].
func New(o Options) (*Group, error) {
	if o.Client == nil {
		return nil, &weir.InvalidError{Field: "client", Value: "nil", Want: "a client"}
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	g := &Group{
		instances: instances{id: rand.Text(), seen: map[string]int64{}},
		denials:   denials{queue: make(chan []string, maxQueued)},
		heartbeat: heartbeat,
	}
	g.bus = newBus(o, g.receive, g.joined)
	return g, nil
}

// Follow makes the other instances' messages act on this one's overrides and deny cache;
// either may be nil. Call it before Start.
func (g *Group) Follow(layer *override.Layer, cache *denycache.Layer) {
	g.denials.cache = cache
	if layer != nil {
		g.overrides = newOverrides(g.Options, layer)
	}
}

// Start begins to send and receive in the background and returns at once; an unreachable
// Redis is tried again until Stop. Further calls do nothing.
func (g *Group) Start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cancel != nil || g.stopped {
		return
	}
	var ctx context.Context
	ctx, g.cancel = context.WithCancel(context.Background())
	g.running.Go(func() { g.bus.run(ctx) })
	g.running.Go(func() { g.send(ctx) })
	if g.overrides != nil {
		g.running.Go(func() { g.overrides.follow(ctx) })
	}
}

// Stop ends the background work, waits for it, and notifies the other instances that this
// one has stopped. An error means that ctx ended first. Stop may be called again.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	cancel, first := g.cancel, !g.stopped
	g.stopped = true
	g.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("weir: stop the exchange with other instances: %w", ctx.Err())
	}
	if first {
		// If it is lost, the others miss the heartbeats instead.
		_ = g.publish(ctx, message(kindStopped, g.instances.id))
	}
	return nil
}

// send publishes this instance's messages until ctx ends. One goroutine publishes all of
// them, because receivers drop a message that arrives after a later one.
func (g *Group) send(ctx context.Context) {
	var changed chan struct{}
	if g.overrides != nil {
		changed = g.overrides.changed
	}
	ticker := time.NewTicker(g.heartbeat)
	defer ticker.Stop()
	failing := false
	for next := message(kindAlive, g.instances.id); ; {
		err := g.publish(ctx, next)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			g.Logger.Warn("other instances are not notified: they learn of returned units and overrides later", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			next = message(kindAlive, g.instances.id)
		case keys := <-g.denials.queue:
			next = g.denials.gather(keys)
		case <-changed:
			next = message(kindOverrides, "")
		}
	}
}

func message(kind byte, payload string) []byte {
	return append([]byte{kind}, payload...)
}

// receive acts on a message. It is called by one goroutine at a time.
func (g *Group) receive(message []byte) {
	if len(message) == 0 {
		g.denials.flushSeldom()
		return
	}
	switch payload := message[1:]; message[0] {
	case kindAlive:
		g.instances.alive(string(payload))
	case kindStopped:
		g.instances.stopped(string(payload))
	case kindForget:
		g.denials.forget(payload)
	case kindOverrides:
		g.overrides.readSoon()
	default:
		// A newer version may have meant any of them.
		g.denials.flushSeldom()
		g.overrides.readSoon()
	}
}

// joined is called when messages begin to arrive: earlier ones may have been missed.
func (g *Group) joined() {
	g.denials.flush()
	g.overrides.readSoon()
}

// Announce shares a change of this instance's overrides with the others. On an error it is
// tried again until it succeeds or the override expires. On [override.ErrFull] it is not:
// the override lasts until the next change by another instance.
func (g *Group) Announce(ctx context.Context, c override.Change) error {
	if g.overrides == nil {
		return errors.New("weir: announce override: the group follows no overrides")
	}
	return g.overrides.announce(ctx, c)
}
