package overrides

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/layer/override"
)

// lookPause is how long looks are apart at least: whoever may publish could make every
// instance look without end.
const lookPause = 50 * time.Millisecond

// follow looks at Redis at once, whenever it is told to, and from time to time.
func (s *Sharer) follow(ctx context.Context) {
	ticker := time.NewTicker(s.Poll)
	defer ticker.Stop()
	for {
		s.settle(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookPause):
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-ticker.C:
		}
	}
}

// settle makes up for what could not be announced, and takes over what others have
// changed.
func (s *Sharer) settle(ctx context.Context) {
	err := s.makeUp(ctx)
	if err == nil {
		err = s.takeOver(ctx)
	}
	if cluster, ok := s.Client.(*redis.ClusterClient); ok && err != nil {
		// Another node may have what this one had.
		cluster.ReloadState(ctx)
	}
	if err != nil && ctx.Err() == nil && !s.quiet {
		s.Logger.Warn("overrides of other instances are not known; those of this one hold", "error", err)
	}
	s.quiet = err != nil
}

// makeUp announces what Redis does not know yet.
func (s *Sharer) makeUp(ctx context.Context) error {
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
		return s.Bus.Publish(ctx, topic, nil)
	}
	return nil
}

// takeOver puts in force what is in Redis, if it has changed.
func (s *Sharer) takeOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	version, err := s.Client.HGet(ctx, s.keys[0], "version").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("override: look: %w", err)
	}
	if s.lost(version) {
		return s.restore(ctx)
	}
	if version == s.known {
		return nil
	}
	before := s.announced()
	fields, err := s.Client.HGetAll(ctx, s.keys[0]).Result()
	if err != nil {
		return fmt.Errorf("override: look: %w", err)
	}
	if s.lost(fields["version"]) {
		// Since the version was read.
		return s.restore(ctx)
	}
	if s.replace(fields, before) {
		s.known = fields["version"]
	} else {
		s.look()
	}
	return nil
}

// announced is how many changes were announced here.
func (s *Sharer) announced() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// replace puts what was read in force, unless something was announced here since,
// which it may lack.
func (s *Sharer) replace(fields map[string]string, before int64) bool {
	list := s.read(fields)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != before || len(s.pending) > 0 {
		return false
	}
	s.Taker.Replace(list)
	s.generation = generationOf(fields["version"])
	return true
}

// lost reports whether Redis has forgotten what it held: everything, or the last
// changes, as a replica that takes over before it has heard of them.
func (s *Sharer) lost(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation != "" && s.generation != generationOf(version) || changesOf(version) < changesOf(s.known)
}

// generationOf is what the versions of one Redis have in common, until it loses
// everything.
func generationOf(version string) string {
	generation, _, _ := strings.Cut(version, ":")
	return generation
}

// changesOf is how many changes led to a version; 0 where nobody knows.
func changesOf(version string) int64 {
	_, rest, _ := strings.Cut(version, ":")
	count, _, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// restore gives Redis back what it has forgotten. What it holds by now, from an
// instance that was faster, is as good or newer.
func (s *Sharer) restore(ctx context.Context) error {
	fields, err := s.Client.HGetAll(ctx, s.keys[0]).Result()
	if err != nil {
		return fmt.Errorf("override: look: %w", err)
	}
	s.mu.Lock()
	for _, o := range s.Taker.List() {
		if _, held := fields["="+o.Key]; !held {
			s.pending[o.Key] = override.Change{Override: o}
		}
	}
	s.generation = ""
	s.mu.Unlock()
	s.known = ""
	s.look()
	return nil
}

// read returns the overrides in the fields of the hash. One that it cannot read,
// of another version of this program perhaps, is passed over.
func (s *Sharer) read(fields map[string]string) []override.Override {
	list := make([]override.Override, 0, len(fields))
	for field, text := range fields {
		key, found := strings.CutPrefix(field, "=")
		if !found {
			continue
		}
		o, err := decode(key, text)
		if err != nil {
			s.Logger.Warn("an override of another instance cannot be read", "error", err)
			continue
		}
		list = append(list, o)
	}
	return list
}
