// Package overrides keeps the overrides of several instances alike: Redis holds those
// in force, and a message tells the others to look. An instance that starts later
// learns them, one that missed the message looks a few seconds later, and a change
// made while Redis is away is made up for once it is back. Where two instances
// change the same key, the last one to reach Redis is right.
package overrides

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/peers"
)

// What the fields of [Options] are if they are zero.
const (
	DefaultPrefix  = "weir:"
	DefaultPoll    = 5 * time.Second
	DefaultTimeout = time.Second
)

const (
	topic = "override"
	// keep is how much longer the keys live than the overrides in them.
	keep = 24 * time.Hour
)

//go:embed put.lua
var putText string

var put = redis.NewScript(putText)

// Options are the settings of a [Sharer]. Taker, Client and Bus are required.
type Options struct {
	// Taker has the overrides of this instance.
	Taker *override.Taker
	// Client is one that the caller configures, shares and closes, but not before
	// Stop.
	Client redis.UniversalClient
	// Bus reaches the other instances. The caller starts and stops it.
	Bus peers.Bus
	// Prefix begins every key. It must not contain braces. Empty:
	// [DefaultPrefix].
	Prefix string
	// Max bounds the number of overrides in Redis. Zero: [override.DefaultMax].
	Max int
	// Poll is how often Redis is looked at without being told to. Zero:
	// [DefaultPoll].
	Poll time.Duration
	// Timeout bounds a call of Redis. Zero: [DefaultTimeout].
	Timeout time.Duration
	// Logger hears when Redis cannot be looked at. Nil: nobody does.
	Logger *slog.Logger
}

// A Sharer announces this instance's changes and takes over those of others. It is
// safe for concurrent use. Create it with New; others' changes arrive between Start
// and Stop.
type Sharer struct {
	Options
	keys []string
	wake chan struct{}

	mu      sync.Mutex // guards what follows; never held while waiting
	pending map[string]override.Change
	made    int64 // how many changes were announced here
	// generation is that of the Redis which has what this instance has; empty if
	// there is none.
	generation string
	cancel     context.CancelFunc
	stopped    bool
	done       chan struct{} // closed when the follower has left

	known string // the version last taken over; the follower's own
	quiet bool   // a failure was logged; the follower's own
}

// New returns a sharer that has subscribed to the bus. It starts nothing. The error
// is a [*weir.InvalidError].
func New(o Options) (*Sharer, error) {
	for name, missing := range map[string]bool{"Taker": o.Taker == nil, "Client": o.Client == nil, "Bus": o.Bus == nil} {
		if missing {
			return nil, &weir.InvalidError{Field: name, Value: "nil", Want: "one"}
		}
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Max = cmp.Or(o.Max, override.DefaultMax)
	o.Poll = cmp.Or(o.Poll, DefaultPoll)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Sharer{
		Options: o,
		// One slot for both, which no key of a limit is in by its own choice.
		keys:    []string{o.Prefix + "override:{override}:limits", o.Prefix + "override:{override}:ends"},
		wake:    make(chan struct{}, 1),
		pending: map[string]override.Change{},
		done:    make(chan struct{}),
	}
	o.Bus.Subscribe(topic, peers.Subscriber{Message: func([]byte) { s.look() }, Joined: s.look})
	return s, nil
}

// look makes the follower look at Redis soon.
func (s *Sharer) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Announce tells the other instances of a change that was made here. On an error it
// is tried again until it succeeds or the override ends; on [override.ErrFull] it is not, and
// the override goes with the next change of others.
func (s *Sharer) Announce(ctx context.Context, c override.Change) error {
	s.note(c)
	if err := s.push(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if err := s.Bus.Publish(ctx, topic, nil); err != nil {
		// It is in Redis, and whoever looks finds it.
		s.Logger.Debug("the others were not told of an override", "error", err)
	}
	return nil
}

// note makes a change one that Redis does not know yet. It makes it here once more:
// what others have changed may have been taken over in between.
func (s *Sharer) note(c override.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[c.Key] = c
	s.made++
	if c.Ended {
		s.Taker.Delete(c.Key)
	} else {
		// Whoever made the change has been told what is wrong with it.
		_ = s.Taker.Set(c.Override)
	}
}

// push writes a change to Redis, and forgets it unless a later one took its place.
func (s *Sharer) push(ctx context.Context, c override.Change) error {
	text := ""
	if !c.Ended {
		text = encode(c.Override)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	version, err := put.Run(ctx, s.Client, s.keys, c.Key, text, c.Until.UnixMilli(), s.Max, rand.Text(), keep.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		err = override.ErrFull
	} else if err != nil {
		return fmt.Errorf("override: announce: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == "" {
		s.generation = generationOf(version)
	}
	if s.pending[c.Key] == c {
		delete(s.pending, c.Key)
	}
	return err
}

// Start begins to follow Redis in the background, and returns at once. Further
// calls do nothing.
func (s *Sharer) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil || s.stopped {
		return
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		s.follow(ctx)
	}()
}

// Stop ends the following and waits for it, or until ctx ends, which the error then
// says. Further calls do the same.
func (s *Sharer) Stop(ctx context.Context) error {
	s.mu.Lock()
	started := s.cancel != nil
	s.stopped = true
	s.mu.Unlock()
	if !started {
		return nil
	}
	s.cancel()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("override: stop: %w", ctx.Err())
	}
}
