package peers

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/layer/denycache"
)

const (
	// maxQueued is how many acts' keys may wait to be sent.
	maxQueued = 1024
	// maxGathered is how many bytes of keys go into one message, the last act's aside.
	maxGathered = 32 << 10
	// flushInterval is how often messages that cannot be decoded may empty the cache.
	flushInterval = time.Second
)

// denials keeps deny caches from refusing a key that was given units back elsewhere.
type denials struct {
	cache   *denycache.Layer // nil if this instance has none
	queue   chan []string
	flushed atomic.Int64 // when an unknown message last emptied the cache, in Unix nanoseconds
}

// Forget notifies the other instances that units were returned to keys. It never waits:
// if too many keys are queued, it drops these, and the other instances forget them after
// the deny cache's MaxAge.
func (g *Group) Forget(keys []string) {
	select {
	case g.denials.queue <- keys:
	default:
	}
}

// gather returns a message with keys and those queued behind them.
func (d *denials) gather(keys []string) []byte {
	message := encodeKeys([]byte{kindForget}, keys)
	for len(message) < maxGathered {
		select {
		case keys := <-d.queue:
			message = encodeKeys(message, keys)
		default:
			return message
		}
	}
	return message
}

func (d *denials) forget(payload []byte) {
	keys, ok := decodeKeys(payload)
	switch {
	case !ok:
		d.flushSeldom()
	case d.cache != nil:
		d.cache.Forget(keys...)
	}
}

func (d *denials) flush() {
	if d.cache != nil {
		d.cache.Flush()
	}
}

// flushSeldom empties the cache, at most once in flushInterval: a message that cannot be
// decoded may have named any key, but a flood of them must not disable the cache.
func (d *denials) flushSeldom() {
	now := time.Now().UnixNano()
	if last := d.flushed.Load(); now-last >= flushInterval.Nanoseconds() && d.flushed.CompareAndSwap(last, now) {
		d.flush()
	}
}

// encodeKeys appends keys, each after its length.
func encodeKeys(message []byte, keys []string) []byte {
	for _, key := range keys {
		message = binary.AppendUvarint(message, uint64(len(key)))
		message = append(message, key...)
	}
	return message
}

func decodeKeys(payload []byte) (keys []string, ok bool) {
	for len(payload) > 0 {
		length, n := binary.Uvarint(payload)
		if n <= 0 || length > uint64(len(payload)-n) {
			return nil, false
		}
		keys = append(keys, string(payload[n:n+int(length)]))
		payload = payload[n+int(length):]
	}
	return keys, true
}
