// Package peers connects the instances of a service that share one Redis: it counts them
// and keeps their overrides equal.
//
// Instances send each other nothing. Once a second each of them records in Redis that it
// is alive, and reads how many are and whether the overrides have changed.
package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
)

// DefaultPrefix begins the names of the keys unless Options.Prefix is set.
const DefaultPrefix = "weir:"

const (
	defaultTimeout  = time.Second
	defaultInterval = time.Second // between two polls
	// maxMissed is how many polls in a row an instance may miss before it no longer counts.
	maxMissed = 3
	// maxInstances bounds the count if somebody else writes to the set of instances.
	maxInstances = 10_000
)

//go:embed poll.lua
var pollText string

var pollScript = redis.NewScript(pollText)

// Options configure a [Group]. Client and Overrides are required.
type Options struct {
	// Client reaches the Redis that the instances share. The caller configures it and
	// closes it after Stop.
	Client redis.UniversalClient
	// Overrides are kept equal to those of the other instances.
	Overrides *override.Layer
	// Prefix begins the names of the keys. It must not contain braces. Empty:
	// [DefaultPrefix].
	Prefix string
	// Timeout bounds one call of Redis. Zero: one second.
	Timeout time.Duration
	// Logger receives a line when Redis cannot be reached. Nil: none.
	Logger *slog.Logger
}

// A Group is the set of instances that share a Redis, seen from one of them. It is safe
// for concurrent use. Create it with New, then call Start.
type Group struct {
	Options
	id           string
	interval     time.Duration
	maxOverrides int
	count        atomic.Int64
	wake         chan struct{} // a change waits to be written

	mu      sync.Mutex // guards what follows; never held while waiting
	pending map[string]*change
	cancel  context.CancelFunc
	stopped bool
	running sync.WaitGroup

	// The rest belongs to the goroutine that runs.
	counts [maxMissed]int // of the last polls
	polls  int
	known  string // the version of the overrides that was adopted last
	quiet  bool   // a failure was logged
}

// New returns a group that starts nothing. The error is a [*weir.InvalidError].
func New(o Options) (*Group, error) {
	if o.Client == nil {
		return nil, &weir.InvalidError{Field: "client", Value: "nil", Want: "a client"}
	}
	if o.Overrides == nil {
		return nil, &weir.InvalidError{Field: "overrides", Value: "nil", Want: "a layer of overrides"}
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Group{
		Options: o, id: rand.Text(), interval: defaultInterval, maxOverrides: override.DefaultMax,
		wake: make(chan struct{}, 1), pending: map[string]*change{},
	}, nil
}

// key returns the name of a key. All are in one hash slot, which no limit's key has by its
// own choice.
func (g *Group) key(name string) string { return g.Prefix + "override:{override}:" + name }

// Count returns the number of instances that are alive, at least 1. While Redis is
// unreachable it stays as it was.
func (g *Group) Count() int { return max(1, int(g.count.Load())) }

// Start begins to poll in the background and returns at once; an unreachable Redis is
// tried again until Stop. Further calls do nothing.
func (g *Group) Start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cancel != nil || g.stopped {
		return
	}
	var ctx context.Context
	ctx, g.cancel = context.WithCancel(context.Background())
	g.running.Go(func() { g.run(ctx) })
}

// Stop ends the background work, waits for it, and makes this instance count no more. An
// error means that ctx ended first. Stop may be called again.
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
		ctx, cancel := context.WithTimeout(ctx, g.Timeout)
		defer cancel()
		// If it fails, the others miss the polls instead.
		_ = g.Client.ZRem(ctx, g.key("instances"), g.id).Err()
	}
	return nil
}

// run synchronizes with Redis at each interval, and at once when a change waits, until ctx
// ends. No other goroutine of the group calls Redis, so changes reach it in order.
func (g *Group) run(ctx context.Context) {
	ticker := time.NewTicker(g.interval)
	defer ticker.Stop()
	for due := true; ; {
		g.synchronize(ctx, due)
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
			due = false
		case <-ticker.C:
			due = true
		}
	}
}

// synchronize writes the changes that Redis lacks, polls, and adopts the changes of other
// instances. The number of instances is noted if the poll was due.
func (g *Group) synchronize(ctx context.Context, due bool) {
	err := g.push(ctx)
	count, version, failed := g.poll(ctx)
	if failed == nil {
		if due {
			g.note(count)
		}
		failed = g.adopt(ctx, version)
	}
	err = cmp.Or(err, failed)
	if cluster, ok := g.Client.(*redis.ClusterClient); ok && err != nil {
		// Another node may have the keys now.
		cluster.ReloadState(ctx)
	}
	if err != nil && ctx.Err() == nil && !g.quiet {
		g.Logger.Warn("cannot count other instances or read their overrides; what is known holds", "error", err)
	}
	g.quiet = err != nil
}

// poll records that this instance is alive, and returns how many are and the version of
// the overrides.
func (g *Group) poll(ctx context.Context) (count int, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	keys := []string{g.key("instances"), g.key("limits")}
	life := (maxMissed * g.interval).Milliseconds()
	reply, err := pollScript.Run(ctx, g.Client, keys, g.id, life).Slice()
	if err != nil {
		return 0, "", fmt.Errorf("poll other instances: %w", err)
	}
	if len(reply) == 2 {
		n, isInt := reply[0].(int64)
		version, isText := reply[1].(string)
		if isInt && isText {
			return int(min(n, maxInstances)), version, nil
		}
	}
	return 0, "", errors.New("poll other instances: a reply of another kind")
}

// note keeps the highest count of the last polls: when Redis is reachable again, the other
// instances may not have polled yet.
func (g *Group) note(count int) {
	g.counts[g.polls%maxMissed] = count
	g.polls++
	g.count.Store(int64(slices.Max(g.counts[:])))
}
