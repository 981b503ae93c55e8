package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// A shape is what the state of a key holds when it is weighed.
type shape struct {
	name   string
	limit  weir.Limit
	keys   int
	takes  int // of every key, each at an instant of its own
	cost   int64
	target float64
}

func shapes(n int) []shape {
	hour := func(a weir.Algorithm) weir.Limit { return weir.Limit{Algorithm: a, Count: 1000, Period: time.Hour} }
	ring := hour(weir.RollingWindow)
	ring.Buckets = 60
	logs := max(n/1000, 10)
	return []shape{
		{"gcra", hour(weir.GCRA), n, 1, 1, 150},
		{"fixed_window", hour(weir.FixedWindow), n, 1, 1, 150},
		{"token_bucket", hour(weir.TokenBucket), n, 1, 1, 150},
		{"leaky_bucket", hour(weir.LeakyBucket), n, 1, 1, 0},
		{"sliding_counter", hour(weir.SlidingCounter), n, 1, 1, 0},
		{"rolling_window of 60", ring, n, 1, 1, 420},
		{"sliding_log, 1 grant", hour(weir.SlidingLog), n, 1, 1, 0},
		{"sliding_log, 1000 grants in 10 instants", hour(weir.SlidingLog), 10 * logs, 10, 100, 400},
		{"sliding_log, 1000 grants in 1000 instants", hour(weir.SlidingLog), logs, 1000, 1, 12_000},
		{"concurrency, 1 holder", weir.Limit{Algorithm: weir.Concurrency, Count: 10, Period: time.Hour}, n, 1, 1, 0},
	}
}

// A StateSize is what a key of an algorithm takes in Redis, whose names have 30
// bytes.
type StateSize struct {
	Name   string  `json:"name"`
	Keys   int     `json:"keys"`
	Bytes  float64 `json:"bytes"`
	Target float64 `json:"target,omitempty"`
}

// AlgorithmBytes weighs the state of every algorithm in Redis, with n keys or, for
// long logs, fewer.
func AlgorithmBytes(ctx context.Context, r *Redis, n int) ([]StateSize, error) {
	var all []StateSize
	for _, s := range shapes(n) {
		size, err := s.weigh(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("bench: weigh %s: %w", s.name, err)
		}
		all = append(all, size)
	}
	return all, nil
}

func (s *shape) weigh(ctx context.Context, r *Redis) (StateSize, error) {
	size := StateSize{Name: s.name, Keys: s.keys, Target: s.target}
	if err := r.Clear(); err != nil {
		return size, err
	}
	store, err := redisstore.New(r.Client, redisstore.Options{Prefix: "w:", Timeout: 10 * time.Second})
	if err != nil {
		return size, err
	}
	limit, err := s.limit.Compile()
	if err != nil {
		return size, err
	}
	var before float64
	if err := s.fill(ctx, store, limit, "warm"); err != nil { // the script, the client's buffers
		return size, err
	}
	if before, err = r.Memory(); err != nil {
		return size, err
	}
	if err := s.fill(ctx, store, limit, "fill"); err != nil {
		return size, err
	}
	after, err := r.Memory()
	size.Bytes = (after - before) / float64(s.keys)
	return size, err
}

// fill takes what the shape says of each key, 64 keys a call. The names in Redis
// are 11 bytes longer than these.
func (s *shape) fill(ctx context.Context, store *redisstore.Store, limit *weir.Limit, word string) error {
	keys := s.keys
	if word == "warm" {
		keys = 1
	}
	for first := 0; first < keys; first += 64 {
		var acts []*weir.Act
		for i := first; i < min(first+64, keys); i++ {
			a := &weir.Act{
				Charges:   []weir.Charge{{Key: fmt.Sprintf("%s%015d", word, i), Limit: limit, Cost: s.cost}},
				Decisions: make([]weir.Decision, 1),
			}
			if limit.Algorithm == weir.Concurrency {
				a.ID = fmt.Sprint(word, i)
			}
			acts = append(acts, a)
		}
		for range s.takes {
			store.Take(ctx, acts)
			for _, a := range acts {
				if !a.Allowed() {
					return fmt.Errorf("not granted: %w", a.Err)
				}
			}
		}
	}
	return nil
}
