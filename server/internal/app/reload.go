package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/xds"
)

const (
	// poll is how often the state of the files is looked at. Files that have changed are read
	// once they were left alone for as long, because editors change them in several steps.
	poll = 200 * time.Millisecond
	// settleMost bounds that wait for files that are never left alone.
	settleMost = 10 * poll
	// reread is how often the files are read if their state does not change: a clock may be too
	// coarse to show it.
	reread = 30 * time.Second
)

// ruleFiles keeps the last good rules of the files in force, or the demonstration rules
// if there are no files. New rules are built whole before they are seen: a call takes one
// set and never sees two.
type ruleFiles struct {
	atomic.Pointer[rules.Set]
	source config.Source // without paths: the demonstration rules
	logger *slog.Logger
	// follow is called with new rules before they come into force.
	follow func(*rules.Set)
	// check, if not nil, is asked whether new rules are good.
	check func(*rules.Set) error
	// reloaded is called with the result of a reading that ask asked for.
	reloaded func(error)

	xds      *xds.Client // nil unless the rules come from a management server
	optional bool        // health checks pass without rules
	received atomic.Bool // the management server has sent rules
	arrived  func()      // called once they are in force

	seen     [sha256.Size]byte // fingerprint of the files last read
	prices   []string          // the price files that they name
	wake     chan struct{}
	failed   atomic.Pointer[error]
	revision atomic.Pointer[revision]
	loads    atomic.Int64
	failures atomic.Int64
}

// A revision names the rules in force.
type revision struct {
	digest string // empty for the demonstration rules
	at     time.Time
}

// loadRules reads the rules that the options name. The error lists every mistake in them.
func loadRules(o *Options) (*ruleFiles, error) {
	r := &ruleFiles{logger: o.Logger, follow: func(*rules.Set) {}, reloaded: o.Reloaded, arrived: func() {}, wake: make(chan struct{}, 1)}
	if o.XDS.Server != "" {
		return r, r.subscribe(o)
	}
	if o.Config == "" {
		demo := rules.Demo
		if o.Models.on() {
			demo = rules.DemoModels
		}
		r.use(demo())
		return r, nil
	}
	r.source = config.Source{Paths: []string{o.Config}, Files: o.ConfigFiles, Merge: o.ConfigMerge}
	reading := r.source.Read()
	set, err := rules.LoadFrom(reading)
	if err != nil {
		return nil, err
	}
	r.seen, r.prices = reading.Fingerprint(), reading.Prices()
	r.use(set)
	return r, nil
}

// use puts rules in force.
func (r *ruleFiles) use(set *rules.Set) {
	r.follow(set)
	r.Store(set)
	next := &revision{at: time.Now()}
	if r.watched() {
		next.digest = hex.EncodeToString(r.seen[:8])
	}
	r.revision.Store(next)
	r.loads.Add(1)
	r.failed.Store(nil)
}

// watched reports whether there are files to watch.
func (r *ruleFiles) watched() bool { return len(r.source.Paths) > 0 }

// err returns the reason why the rules of the files are not in force, or nil.
func (r *ruleFiles) err() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// loaded describes the rules in force to administrators.
func (r *ruleFiles) loaded() admin.Loaded {
	now := r.revision.Load()
	l := admin.Loaded{Revision: now.digest, At: now.at, Err: r.err()}
	if r.watched() {
		l.Path = r.source.Paths[0]
	}
	if r.xds == nil {
		return l
	}
	s := r.xds.Status()
	if l.Path = "xds:" + s.Server; s.Loaded {
		l.Revision, l.Version, l.At = s.Revision, s.Version, s.At
	}
	if s.Stale() {
		l.Err = fmt.Errorf("version %s: %w", s.Rejected.Version, s.Rejected.Err)
	}
	return l
}

// state describes them to the metrics.
func (r *ruleFiles) state() metrics.Config {
	set, l := r.Load(), r.loaded()
	c := metrics.Config{
		Revision: l.Revision, Loaded: l.At, Stale: l.Err != nil, Successes: r.loads.Load(), Failures: r.failures.Load(),
		Domains: len(set.Domains()), Rules: len(set.Rules()),
	}
	if r.xds != nil {
		s := r.xds.Status()
		c.Successes, c.Failures = s.Accepted, s.Nacks
	}
	return c
}

// ask makes run read the files soon.
func (r *ruleFiles) ask() {
	if r.xds != nil {
		r.xds.Reload()
	}
	if !r.watched() {
		r.reloaded(nil)
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// refresh keeps the rules current until ctx ends.
func (r *ruleFiles) refresh(ctx context.Context) {
	switch {
	case r.xds != nil:
		r.xds.Run(ctx)
	case r.watched():
		r.run(ctx)
	}
}

// run reads the files when they change, until ctx ends. It looks at the files and the links to
// them, and at nothing else in their folders.
func (r *ruleFiles) run(ctx context.Context) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	// The state is older than the reading, so that no change is missed. They may have changed
	// since the start.
	last := r.source.State(r.prices...)
	r.load(false)
	read := time.Now()
	var since time.Time // the first change that was not read yet
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			asked = true
		case <-ticker.C:
		}
		now, state := time.Now(), r.source.State(r.prices...)
		moved := !state.Same(last)
		if last = state; moved {
			since = cmp.Or(since, now)
		}
		switch settled := !since.IsZero() && (!moved || now.Sub(since) >= settleMost); {
		case asked, settled, now.Sub(read) >= reread:
		default:
			continue
		}
		r.load(asked)
		if asked {
			r.reloaded(r.err())
		}
		read, since = now, time.Time{}
	}
}

// load puts the files' rules in force if they have changed and are good. If they were
// asked for, it also logs that nothing has changed.
func (r *ruleFiles) load(asked bool) {
	reading := r.source.Read()
	seen := reading.Fingerprint()
	if seen == r.seen {
		if asked {
			r.logger.Info("the rules files have not changed", "config", r.source.Paths)
		}
		return
	}
	r.seen, r.prices = seen, reading.Prices()
	set, err := rules.LoadFrom(reading)
	if err == nil && r.check != nil {
		err = r.check(set)
	}
	if err != nil {
		r.failures.Add(1)
		r.failed.Store(&err)
		r.logger.Error("the rules files changed and are wrong; the rules in force stay", "config", r.source.Paths, "error", err)
		return
	}
	for _, l := range set.RenamedSince(r.Load()) {
		r.logger.Warn("a limit starts fresh, because it has another name; was: keeps the keys of the earlier one", "rule", l.Rule, "at", l.At.String(), "name", l.New, "was", l.Old)
	}
	r.use(set)
	r.logger.Info("the rules files changed and are in force", "config", r.source.Paths, "domains", len(set.Domains()), "rules", len(set.Rules()))
}
