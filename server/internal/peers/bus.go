package peers

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxSilence is how long a connection may be silent before it is pinged; after as much
	// silence again it is closed.
	maxSilence = 5 * time.Second
	// firstPause and longestPause bound the time before connecting again.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
	// ignoredInterval is how often ignored messages are logged.
	ignoredInterval = time.Minute
)

// A bus publishes and receives messages on one channel of Redis.
type bus struct {
	Options
	channel    string
	seal       *seal // nil without a secret
	maxSilence time.Duration
	// receive gets each message that is believed, this process's own included, and joined
	// is called when messages begin to arrive: at first and after each break. Both are
	// called one at a time by the goroutine that reads, and must not wait.
	receive func(message []byte)
	joined  func()

	// ignored counts the messages ignored since they were last logged. Both fields belong
	// to the goroutine that reads.
	ignored int
	logged  time.Time
}

func newBus(o Options, receive func([]byte), joined func()) bus {
	return bus{
		Options: o, channel: o.Prefix + "peers", seal: newSeal(o.Secret), maxSilence: maxSilence,
		receive: receive, joined: joined,
	}
}

// publish sends a message to all instances. An error says that some may have missed it; a
// nil error does not say that all have received it.
func (b *bus) publish(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	if b.seal != nil {
		message = b.seal.seal(b.channel, message, time.Now())
	}
	if err := b.Client.Publish(ctx, b.channel, message).Err(); err != nil {
		return fmt.Errorf("weir: publish to other instances: %w", err)
	}
	return nil
}

// run receives until ctx ends, connecting again whenever the connection fails.
func (b *bus) run(ctx context.Context) {
	pause, broken := firstPause, false
	for {
		began := time.Now()
		err := b.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if cluster, ok := b.Client.(*redis.ClusterClient); ok {
			// The node may no longer exist.
			cluster.ReloadState(ctx)
		}
		if time.Since(began) > longestPause {
			pause, broken = firstPause, false
		}
		if !broken {
			b.Logger.Warn("messages of other instances do not arrive; connecting again", "error", err)
			broken = true
		}
		// Half of the pause is random, so that instances do not reconnect together.
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// read subscribes and delivers messages until the connection fails.
func (b *bus) read(ctx context.Context) error {
	s := b.subscribe(ctx)
	defer s.Close()
	// A pending read does not end with its context.
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	silent := false
	for {
		got, err := s.ReceiveTimeout(ctx, b.maxSilence)
		switch timeout := net.Error(nil); {
		case err == nil:
			silent = false
			b.deliver(got)
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

// subscribe subscribes to a random node of a cluster, where every node passes on what any
// node received. The client would choose the channel's node each time, even if it is gone.
func (b *bus) subscribe(ctx context.Context) *redis.PubSub {
	if cluster, ok := b.Client.(*redis.ClusterClient); ok {
		if node, err := cluster.MasterForKey(ctx, crand.Text()); err == nil {
			return node.Subscribe(ctx, b.channel)
		}
	}
	return b.Client.Subscribe(ctx, b.channel)
}

func (b *bus) deliver(got any) {
	switch got := got.(type) {
	case *redis.Message:
		message, err := b.open([]byte(got.Payload))
		if err != nil {
			b.ignore(err)
			return
		}
		b.receive(message)
	case *redis.Subscription:
		if got.Kind == "subscribe" {
			b.joined()
		}
	}
}

// open returns a received message without its seal, or the reason to ignore it.
func (b *bus) open(message []byte) ([]byte, error) {
	switch {
	case len(message) > maxMessage:
		return nil, errTooLong
	case b.seal != nil:
		return b.seal.open(b.channel, message, time.Now())
	case len(message) >= headBytes && message[0] == sealVersion:
		return nil, errSealed
	}
	return message, nil
}

// ignore counts a message that is not believed, and logs the count now and then.
func (b *bus) ignore(err error) {
	b.ignored++
	if now := time.Now(); now.Sub(b.logged) >= ignoredInterval {
		b.Logger.Warn("ignored messages that do not come from an instance with this instance's secret", "channel", b.channel, "messages", b.ignored, slog.Any("last", err))
		b.ignored, b.logged = 0, now
	}
}
