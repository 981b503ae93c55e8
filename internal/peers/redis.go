package peers

import (
	"bytes"
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
)

// What the fields of [RedisOptions] are if they are zero.
const (
	DefaultPrefix    = "weir:"
	DefaultHeartbeat = 5 * time.Second
)

// How long to wait before connecting again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
	// ignoredPause is how long the log says nothing more of messages that are ignored.
	ignoredPause = time.Minute
)

// RedisOptions are the settings of a [Redis]. The zero value is a good one.
type RedisOptions struct {
	// Prefix begins the name of every channel. Empty: [DefaultPrefix].
	Prefix string
	// Heartbeat is how long a connection may be silent before it is asked for a
	// sign of life; after as much silence again it is given up. Zero:
	// [DefaultHeartbeat].
	Heartbeat time.Duration
	// Secret, the same for all instances, proves with a MAC that messages come from
	// them. Those without it, of another secret, repeated, or more than five minutes from
	// this host's time are ignored. Empty: everybody who may publish is believed.
	Secret string
	// Logger hears when messages stop and begin to arrive. Nil: nobody does.
	Logger *slog.Logger
}

// Redis is a [Bus] over publish and subscribe of Redis. Create it with NewRedis;
// messages arrive between Start and Stop.
type Redis struct {
	client  redis.UniversalClient
	options RedisOptions
	seal    *seal // nil without a secret

	// ignored and logged count messages that were not believed, and say when a line was
	// written about them. They belong to the goroutine that reads.
	ignored int
	logged  time.Time

	mu          sync.Mutex // guards what follows; never held while waiting
	subscribers subscribers
	cancel      context.CancelFunc
	stopped     bool
	done        chan struct{} // closed when the reader has left
}

// NewRedis returns a bus on a client that the caller configures, shares and
// closes, but not before Stop. It starts nothing. The error is a
// [*weir.InvalidError].
func NewRedis(client redis.UniversalClient, o RedisOptions) (*Redis, error) {
	switch {
	case client == nil:
		return nil, &weir.InvalidError{Field: "client", Value: "nil", Want: "a client"}
	case o.Heartbeat < 0:
		return nil, &weir.InvalidError{Field: "heartbeat", Value: o.Heartbeat.String(), Want: "a positive duration"}
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Redis{client: client, options: o, seal: newSeal(o.Secret), done: make(chan struct{})}, nil
}

// Publish sends a message. The payload is not changed.
func (r *Redis) Publish(ctx context.Context, topic string, payload []byte) error {
	channel := r.channel(topic)
	if r.seal != nil {
		payload = r.seal.seal(channel, payload, time.Now())
	}
	if err := r.client.Publish(ctx, channel, payload).Err(); err != nil {
		return fmt.Errorf("notice: publish: %w", err)
	}
	return nil
}

func (r *Redis) channel(topic string) string { return r.options.Prefix + "notice:" + topic }

// Subscribe adds a subscriber. It does nothing after Start.
func (r *Redis) Subscribe(topic string, s Subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil {
		r.subscribers = r.subscribers.with(topic, s)
	}
}

// Start begins to read in the background, if there are subscribers, and returns
// at once: a server that is away is tried again until Stop. Further calls do
// nothing.
func (r *Redis) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil || r.stopped {
		return
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	byChannel := make(map[string][]Subscriber, len(r.subscribers))
	for topic, list := range r.subscribers {
		byChannel[r.channel(topic)] = list
	}
	go func() {
		defer close(r.done)
		r.run(ctx, byChannel)
	}()
}

// Stop ends the reading and waits until no subscriber is being called, or until
// ctx ends, which the error then says. Further calls do the same.
func (r *Redis) Stop(ctx context.Context) error {
	r.mu.Lock()
	started := r.cancel != nil
	r.stopped = true
	r.mu.Unlock()
	if !started {
		return nil
	}
	r.cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("notice: stop: %w", ctx.Err())
	}
}

// run reads until ctx ends, each time on a new connection.
func (r *Redis) run(ctx context.Context, to map[string][]Subscriber) {
	pause, away := firstPause, false
	for len(to) > 0 {
		began := time.Now()
		err := r.read(ctx, to)
		if ctx.Err() != nil {
			return
		}
		r.relocate(ctx)
		if time.Since(began) > longestPause {
			// It was well for a while.
			pause, away = firstPause, false
		}
		if !away {
			r.options.Logger.Warn("messages of other instances do not arrive; connecting again", "error", err)
			away = true
		}
		// Half of it at random, so that instances do not come back as one.
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// read subscribes and hands messages out until the connection fails.
func (r *Redis) read(ctx context.Context, to map[string][]Subscriber) error {
	channels := make([]string, 0, len(to))
	for channel := range to {
		channels = append(channels, channel)
	}
	s := r.node(ctx).Subscribe(ctx, channels...)
	defer s.Close()
	// Whoever waits for a message hears of nothing else.
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	silent := false
	for {
		got, err := s.ReceiveTimeout(ctx, r.options.Heartbeat)
		switch timeout := net.Error(nil); {
		case err == nil:
			silent = false
			r.handOut(got, to)
		case silent || !errors.As(err, &timeout) || !timeout.Timeout():
			return err
		default:
			if err := s.Ping(ctx); err != nil {
				return err
			}
			silent = true
		}
	}
}

// A subscriberTo takes subscriptions.
type subscriberTo interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// node returns where to subscribe. In a cluster each node hears of what is published
// on any, so that it is another one each time: the client itself would take the one
// that the name of a channel leads to, though that be away.
func (r *Redis) node(ctx context.Context) subscriberTo {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		if node, err := cluster.MasterForKey(ctx, crand.Text()); err == nil {
			return node
		}
	}
	return r.client
}

// relocate has a cluster's client look in the background which nodes there are.
func (r *Redis) relocate(ctx context.Context) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// handOut gives what was read to those whom it concerns, unless it is not to be
// believed.
func (r *Redis) handOut(got any, to map[string][]Subscriber) {
	switch got := got.(type) {
	case *redis.Message:
		payload, err := r.believed(got)
		if err != nil {
			r.ignore(got.Channel, err)
			return
		}
		for _, s := range to[got.Channel] {
			s.Message(bytes.Clone(payload))
		}
	case *redis.Subscription:
		for _, s := range to[got.Channel] {
			if s.Joined != nil && got.Kind == "subscribe" {
				s.Joined()
			}
		}
	}
}

// believed returns the payload of a message.
func (r *Redis) believed(m *redis.Message) ([]byte, error) {
	if len(m.Payload) > maxMessage {
		return nil, errors.New("it is too long")
	}
	if r.seal == nil {
		return []byte(m.Payload), nil
	}
	return r.seal.open(m.Channel, []byte(m.Payload), time.Now())
}

// ignore counts a message that is not believed, and logs it now and then.
func (r *Redis) ignore(channel string, err error) {
	r.ignored++
	if now := time.Now(); now.Sub(r.logged) >= ignoredPause {
		r.options.Logger.Warn("messages are ignored that other instances did not send, or not as this one would", "channel", channel, "messages", r.ignored, "last", err)
		r.ignored, r.logged = 0, now
	}
}
