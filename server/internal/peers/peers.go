// Package peers connects the instances of a service that share one Redis: it counts them
// and keeps their overrides equal.
//
// Instances send each other nothing. Once a second, and more often in the first one, each of
// them records in Redis that it is alive, and reads how many are and whether the overrides have
// changed. An instance counts as one of the group when the others have read since it came.
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
	// maxAwaited is how many intervals an instance may not have polled for until others do not
	// wait for it to count them.
	maxAwaited = 2
	// maxMissed is how many polls in a row an instance may miss before it no longer counts.
	maxMissed = 3
	// maxInstances bounds the count if somebody else writes to the set of instances.
	maxInstances = 10_000
)

// firstPolls are the waits before the first polls but one, in tenths of an interval: instances
// that start together are to count one another soon.
var firstPolls = [...]time.Duration{1, 1, 2}

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
	// Joined, if not nil, is called once, when [Group.Join] has nothing more to wait for.
	Joined func()
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
	joined       chan struct{} // closed when the others count this instance

	mu      sync.Mutex // guards what follows; never held while waiting
	failure error      // of the last poll
	pending map[string]*change
	cancel  context.CancelFunc
	stopped bool
	running sync.WaitGroup

	// The rest belongs to the goroutine that runs.
	counts [maxMissed]int // of the last polls
	polls  int
	since  int64  // Redis's time of the first poll, in milliseconds; 0 before it
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
		wake: make(chan struct{}, 1), joined: make(chan struct{}), pending: map[string]*change{},
	}, nil
}

// key returns the name of a key. All are in one hash slot, which no limit's key has by its
// own choice.
func (g *Group) key(name string) string { return g.Prefix + "override:{override}:" + name }

// Count returns the number of instances that are alive, at least 1. While Redis is
// unreachable it stays as it was.
func (g *Group) Count() int { return max(1, int(g.count.Load())) }

// HasJoined reports whether the other instances count this one. Until then, all of them may
// grant more during an outage than their shares of a limit.
func (g *Group) HasJoined() bool {
	select {
	case <-g.joined:
		return true
	default:
		return false
	}
}

// Join waits until the other instances count this one: up to two seconds, if Redis answers. An
// error means that ctx ended first.
func (g *Group) Join(ctx context.Context) error {
	select {
	case <-g.joined:
		return nil
	case <-ctx.Done():
	}
	if g.HasJoined() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Errorf("weir: join other instances: %w", cmp.Or(g.failure, errUncounted))
}

var errUncounted = errors.New("not all of them count this one yet")

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
	timer := time.NewTimer(g.interval)
	defer timer.Stop()
	for polls, due := 0, true; ; {
		if due {
			timer.Reset(g.pause(polls))
			polls++
		}
		g.synchronize(ctx, due)
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
			due = false
		case <-timer.C:
			due = true
		}
	}
}

// pause is how long after a poll that was due the next one is.
func (g *Group) pause(polls int) time.Duration {
	if polls < len(firstPolls) {
		return firstPolls[polls] * g.interval / 10
	}
	return g.interval
}

// synchronize writes the changes that Redis lacks, polls, and adopts the changes of other
// instances. The number of instances is noted if the poll was due.
func (g *Group) synchronize(ctx context.Context, due bool) {
	err := g.push(ctx)
	found, failed := g.poll(ctx)
	g.mu.Lock()
	g.failure = failed
	g.mu.Unlock()
	if failed == nil {
		g.note(found.count, due)
		g.join(found.unaware)
		failed = g.adopt(ctx, found.version)
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

// found is what a poll has read.
type found struct {
	count   int
	unaware int64  // instances that have not polled since this one came
	version string // of the overrides
}

// poll records that this instance is alive, and reads what there is to know of the others.
func (g *Group) poll(ctx context.Context) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	keys := []string{g.key("instances"), g.key("limits")}
	life, patience := (maxMissed * g.interval).Milliseconds(), (maxAwaited * g.interval).Milliseconds()
	reply, err := pollScript.Run(ctx, g.Client, keys, g.id, life, patience, g.since).Slice()
	if err != nil {
		return found{}, fmt.Errorf("poll other instances: %w", err)
	}
	if len(reply) == 4 {
		n, isInt := reply[0].(int64)
		version, isText := reply[1].(string)
		unaware, isAlso := reply[2].(int64)
		now, isTime := reply[3].(int64)
		if isInt && isText && isAlso && isTime {
			g.since = cmp.Or(g.since, now)
			return found{int(min(n, maxInstances)), unaware, version}, nil
		}
	}
	return found{}, errors.New("poll other instances: a reply of another kind")
}

// note keeps the highest count of the last polls that were due: when Redis is reachable again,
// the other instances may not have polled yet. Other polls only raise it: those that came since
// rely on it.
func (g *Group) note(count int, due bool) {
	if due {
		g.polls++
		g.counts[g.polls%maxMissed] = 0
	}
	last := &g.counts[g.polls%maxMissed]
	*last = max(*last, count)
	g.count.Store(int64(slices.Max(g.counts[:])))
}

// join ends Join's wait when all other instances count this one.
func (g *Group) join(unaware int64) {
	if unaware > 0 || g.HasJoined() {
		return
	}
	close(g.joined)
	if g.Joined != nil {
		g.Joined()
	}
}
