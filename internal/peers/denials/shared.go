// Package denials tells the deny caches of all instances of a service which keys
// were given units back, so that none refuses longer than the store would. A lost
// message costs no more than the cache's MaxAge: a refusal is not believed longer.
package denials

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/layer/denycache"
	"github.com/weirlimit/weir/internal/peers"
)

const (
	topic = "returned"
	// waiting is how many acts' keys may wait to be told.
	waiting = 1024
	// maxMessage bounds the keys that go out together, in bytes.
	maxMessage = 32 << 10
	// flushPause is how long a message that is not understood keeps others from emptying
	// the cache again.
	flushPause = time.Second
	// telling bounds one message.
	telling = time.Second
)

// A Sharer carries keys between the caches of several instances. It is safe for
// concurrent use. Create it with New, let the cache's options have its Returned,
// let it Follow the cache, then Start it and the bus.
type Sharer struct {
	bus     peers.Bus
	logger  *slog.Logger
	queue   chan []string
	dropped atomic.Uint64
	flushed atomic.Int64 // when a message emptied the cache last, in unix nanoseconds
	failing bool         // of the sender only: the last message failed

	mu      sync.Mutex // guards what follows
	cancel  context.CancelFunc
	done    chan struct{}
	stopped bool
}

// New returns a Sharer on a bus that the caller starts and stops. The logger hears
// when messages begin to fail; nil: nobody does.
func New(bus peers.Bus, logger *slog.Logger) *Sharer {
	return &Sharer{
		bus: bus, logger: cmp.Or(logger, slog.New(slog.DiscardHandler)),
		queue: make(chan []string, waiting), done: make(chan struct{}),
	}
}

// Follow lets a cache hear of the others. It is to be called before the bus
// starts.
func (s *Sharer) Follow(cache *denycache.Cache) {
	s.bus.Subscribe(topic, peers.Subscriber{
		Message: func(payload []byte) {
			keys, ok := decode(payload)
			if !ok {
				s.flush(cache)
				return
			}
			cache.Forget(keys...)
		},
		Joined: cache.Flush,
	})
}

// flush empties the cache for a message that is not understood: somebody meant
// something. Once in flushPause is enough, since no refusal is believed much longer, and
// nobody can keep the cache empty with such messages.
func (s *Sharer) flush(cache *denycache.Cache) {
	now := time.Now().UnixNano()
	if last := s.flushed.Load(); now-last >= flushPause.Nanoseconds() && s.flushed.CompareAndSwap(last, now) {
		cache.Flush()
	}
}

// Returned tells the others of keys, soon. It never waits: where the queue is
// full, the keys are dropped and counted.
func (s *Sharer) Returned(keys []string) {
	select {
	case s.queue <- keys:
	default:
		s.dropped.Add(1)
	}
}

// Dropped counts the acts whose keys were not told.
func (s *Sharer) Dropped() uint64 { return s.dropped.Load() }

// Start begins to send in the background. Further calls do nothing.
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
		s.run(ctx)
	}()
}

// Stop ends the sending, with what waits untold, and waits for it or for ctx,
// which the error then says. Further calls do the same.
func (s *Sharer) Stop(ctx context.Context) error {
	s.mu.Lock()
	cancel := s.cancel
	s.stopped = true
	s.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("denycache: stop: %w", context.Cause(ctx))
	}
}

func (s *Sharer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case keys := <-s.queue:
			s.send(ctx, s.gather(encode(nil, keys)))
		}
	}
}

// gather adds what else waits, as far as one message holds it.
func (s *Sharer) gather(message []byte) []byte {
	for len(message) < maxMessage {
		select {
		case keys := <-s.queue:
			message = encode(message, keys)
		default:
			return message
		}
	}
	return message
}

func (s *Sharer) send(ctx context.Context, message []byte) {
	ctx, cancel := context.WithTimeout(ctx, telling)
	defer cancel()
	err := s.bus.Publish(ctx, topic, message)
	if failing := err != nil && ctx.Err() != context.Canceled; failing != s.failing {
		s.failing = failing
		if failing {
			s.logger.Warn("other instances do not hear which keys were given units back; they ask again after a while", "error", err)
		}
	}
}

// encode appends keys, each behind its length.
func encode(message []byte, keys []string) []byte {
	for _, key := range keys {
		message = binary.AppendUvarint(message, uint64(len(key)))
		message = append(message, key...)
	}
	return message
}

// decode reads what encode wrote, and reports whether it did.
func decode(message []byte) (keys []string, ok bool) {
	for len(message) > 0 {
		length, n := binary.Uvarint(message)
		if n <= 0 || length > uint64(len(message)-n) {
			return nil, false
		}
		keys = append(keys, string(message[n:n+int(length)]))
		message = message[n+int(length):]
	}
	return keys, true
}
