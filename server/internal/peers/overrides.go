package peers

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/override"
)

const (
	// keep is how much longer the keys in Redis live than the overrides in them.
	keep = 24 * time.Hour
	// readPause is the least time between two reads of Redis: messages must not be able to
	// make every instance read without end.
	readPause = 50 * time.Millisecond
)

//go:embed override.lua
var overrideText string

var overrideScript = redis.NewScript(overrideText)

// overrides keeps the overrides of all instances alike. Redis holds those in force. An
// instance that starts later, or missed a message, reads them there; a change made while
// Redis is unreachable is written once it answers. Where two instances change the same
// key, the last one to reach Redis wins.
type overrides struct {
	Options
	layer        *override.Layer
	keys         []string
	maxOverrides int
	poll         time.Duration
	wake         chan struct{} // asks follow to read Redis
	changed      chan struct{} // asks the group to notify the others

	mu      sync.Mutex // guards what follows; never held while waiting
	pending map[string]override.Change
	pushing map[string]chan struct{} // changes on their way to Redis, by key; each is closed at its end
	made    int64                    // how many changes were announced here
	// generation is that of the Redis data that this instance agrees with; empty if there
	// is none.
	generation string

	known string // the version last adopted; the follower's own
	quiet bool   // a failure was logged; the follower's own
}

func newOverrides(o Options, layer *override.Layer) *overrides {
	return &overrides{
		Options: o, layer: layer, maxOverrides: override.DefaultMax, poll: poll,
		// Both keys are in one hash slot, which no limit's key has by its own choice.
		keys:    []string{o.Prefix + "override:{override}:limits", o.Prefix + "override:{override}:ends"},
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		pending: map[string]override.Change{},
		pushing: map[string]chan struct{}{},
	}
}

// readSoon makes the follower read Redis. It does nothing on a nil receiver.
func (s *overrides) readSoon() {
	if s != nil {
		signal(s.wake)
	}
}

// signal sends on a channel with a buffer of one unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *overrides) announce(ctx context.Context, c override.Change) error {
	s.mu.Lock()
	s.pending[c.Key] = c
	s.made++
	// The caller has made the change already, but the follower may have undone it since.
	if c.Ended {
		s.layer.Delete(c.Key)
	} else {
		_ = s.layer.Set(c.Override) // the caller knows its error
	}
	s.mu.Unlock()
	if err := s.push(ctx, c); err != nil {
		return err
	}
	signal(s.changed)
	return nil
}

// push writes a change to Redis and removes it from pending, unless a later one took its
// place there. Changes of a key go one after another, so that none overtakes a later one.
func (s *overrides) push(ctx context.Context, c override.Change) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	due, err := s.begin(ctx, c)
	if !due {
		return err
	}
	defer s.end(c.Key)
	text := ""
	if !c.Ended {
		text = encodeOverride(c.Override)
	}
	version, err := overrideScript.Run(ctx, s.Client, s.keys, c.Key, text, c.Until.UnixMilli(), s.maxOverrides, rand.Text(), keep.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		err = override.ErrFull
	} else if err != nil {
		return fmt.Errorf("announce override: %w", err)
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

// begin waits until no other change of the key is being sent to Redis, and reports
// whether this one still has to be sent. The caller calls end then.
func (s *overrides) begin(ctx context.Context, c override.Change) (due bool, err error) {
	for {
		s.mu.Lock()
		before, due := s.pushing[c.Key], s.pending[c.Key] == c
		if before == nil && due {
			s.pushing[c.Key] = make(chan struct{})
		}
		s.mu.Unlock()
		if before == nil || !due {
			return due, nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return false, fmt.Errorf("announce override: %w", ctx.Err())
		}
	}
}

func (s *overrides) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.pushing[key])
	delete(s.pushing, key)
}

// follow synchronizes with Redis at once, whenever woken, and every poll interval, until
// ctx ends.
func (s *overrides) follow(ctx context.Context) {
	ticker := time.NewTicker(s.poll)
	defer ticker.Stop()
	for {
		s.synchronize(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(readPause):
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-ticker.C:
		}
	}
}

// synchronize writes the changes that Redis lacks and adopts those of other instances.
func (s *overrides) synchronize(ctx context.Context) {
	err := s.pushPending(ctx)
	if err == nil {
		err = s.adopt(ctx)
	}
	if cluster, ok := s.Client.(*redis.ClusterClient); ok && err != nil {
		// Another node may have the keys now.
		cluster.ReloadState(ctx)
	}
	if err != nil && ctx.Err() == nil && !s.quiet {
		s.Logger.Warn("cannot read the overrides of other instances; those of this one hold", "error", err)
	}
	s.quiet = err != nil
}

func (s *overrides) pushPending(ctx context.Context) error {
	s.mu.Lock()
	waiting := make([]override.Change, 0, len(s.pending))
	for key, c := range s.pending {
		if !c.Ended && !time.Now().Before(c.Until) {
			delete(s.pending, key)
			continue
		}
		waiting = append(waiting, c)
	}
	s.mu.Unlock()
	for _, c := range waiting {
		if err := s.push(ctx, c); err != nil && !errors.Is(err, override.ErrFull) {
			return err
		}
	}
	if len(waiting) > 0 {
		signal(s.changed)
	}
	return nil
}

// adopt puts the overrides in Redis in force if they have changed.
func (s *overrides) adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	version, err := s.Client.HGet(ctx, s.keys[0], "version").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read the version of the overrides: %w", err)
	}
	s.mu.Lock()
	// The result may lack a change in flight.
	before, sent := s.made, len(s.pending) == 0
	s.mu.Unlock()
	if version == s.known && !s.lost(version) {
		return nil
	}
	fields, err := s.Client.HGetAll(ctx, s.keys[0]).Result()
	switch {
	case err != nil:
		return fmt.Errorf("read overrides: %w", err)
	case s.lost(version) || s.lost(fields["version"]):
		s.restore(fields)
	case sent && s.replace(fields, before):
		s.known = fields["version"]
	default:
		s.readSoon()
	}
	return nil
}

// replace puts the overrides in fields in force. It returns false if a change was
// announced here since before, which they may lack.
func (s *overrides) replace(fields map[string]string, before int64) bool {
	list := make([]override.Override, 0, len(fields))
	for field, text := range fields {
		key, found := strings.CutPrefix(field, "=")
		if !found {
			continue
		}
		o, err := decodeOverride(key, text)
		if err != nil {
			// A newer version may have written it.
			s.Logger.Warn("skipped an override of another instance", "error", err)
			continue
		}
		list = append(list, o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != before {
		return false
	}
	s.layer.Replace(list)
	s.generation = generationOf(fields["version"])
	return true
}

// lost reports whether Redis has forgotten changes that this instance adopted: all of
// them, or the last ones, as a replica that takes over before it received them.
func (s *overrides) lost(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation != "" && s.generation != generationOf(version) || changesOf(version) < changesOf(s.known)
}

// restore schedules this instance's overrides that Redis has forgotten to be written
// there. Those that are in fields come from an instance that was faster, and stay.
func (s *overrides) restore(fields map[string]string) {
	s.mu.Lock()
	for _, o := range s.layer.List() {
		if _, held := fields["="+o.Key]; !held {
			s.pending[o.Key] = override.Change{Override: o}
		}
	}
	s.generation = ""
	s.mu.Unlock()
	s.known = ""
	s.readSoon()
}

// generationOf returns the part of a version that stays the same until Redis loses all
// overrides.
func generationOf(version string) string {
	generation, _, _ := strings.Cut(version, ":")
	return generation
}

// changesOf returns how many changes led to a version, 0 if it cannot be read.
func changesOf(version string) int64 {
	_, rest, _ := strings.Cut(version, ":")
	count, _, _ := strings.Cut(rest, ":")
	n, _ := strconv.ParseInt(count, 10, 64)
	return max(0, n)
}

// wire is an override as Redis holds it.
type wire struct {
	// Limit is the limit's text form. Empty: no limit.
	Limit   string `json:"limit"`
	UntilMS int64  `json:"until_ms"`
}

func encodeOverride(o override.Override) string {
	w := wire{UntilMS: o.Until.UnixMilli()}
	if o.Limit != nil {
		w.Limit = o.Limit.String()
	}
	text, _ := json.Marshal(w) // a string and a number always marshal
	return string(text)
}

func decodeOverride(key, text string) (override.Override, error) {
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return override.Override{}, fmt.Errorf("override of %q: %w", key, err)
	}
	o := override.Override{Key: key, Until: time.UnixMilli(w.UntilMS)}
	if w.Limit == "" {
		return o, nil
	}
	limit, err := weir.ParseLimit(w.Limit)
	if err != nil {
		return o, err
	}
	o.Limit, err = limit.Compile()
	return o, err
}
