package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	// settle is how long the files have to be left alone before they are read:
	// editors and mounts change them in several steps.
	settle = 200 * time.Millisecond
	// poll is how often the files are read without being told to, for file
	// systems that tell nothing.
	poll = 30 * time.Second
	// settleMost is how long files that are never left alone go unread.
	settleMost = 10 * settle
)

// A reloader keeps the last good rules of the files in force. What it builds is
// whole before it is seen: a call takes one set and never sees two.
type reloader struct {
	source   config.Source
	set      *atomic.Pointer[rules.Set]
	logger   *slog.Logger
	seen     [sha256.Size]byte // fingerprint of the files last read
	failed   atomic.Pointer[error]
	wake     chan struct{}
	loaded   func(fingerprint []byte) // told of rules that came into force
	follow   func(*rules.Set)         // told of them before they do
	looked   func(error)              // told what came of a look that was asked for
	failures atomic.Int64
}

func newReloader(source config.Source, set *atomic.Pointer[rules.Set], logger *slog.Logger) *reloader {
	return &reloader{
		source: source, set: set, logger: logger, wake: make(chan struct{}, 1),
		loaded: func([]byte) {}, follow: func(*rules.Set) {}, looked: func(error) {},
	}
}

// err is what keeps the files' rules from being in force, or nil.
func (r *reloader) err() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// ask makes run look at the files soon.
func (r *reloader) ask() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run reads the files when they change, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.logger.Warn("files cannot be watched; reading them from time to time", "every", poll, "error", err)
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	// At once, for what changed before the watch began.
	timer := time.NewTimer(0)
	defer timer.Stop()
	var since time.Time // of the first change that was not looked at
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-watcher.Events:
			since = cmp.Or(since, time.Now())
			timer.Reset(min(settle, time.Until(since.Add(settleMost))))
			continue
		case err := <-watcher.Errors:
			r.logger.Warn("watching the rules files", "error", err)
			timer.Reset(settle)
			continue
		case <-r.wake:
			asked = true
		case <-timer.C:
		}
		// Watched before they are read, so that no change between is missed.
		r.watch(watcher)
		r.load(asked)
		if asked {
			r.looked(r.err())
		}
		since = time.Time{}
		timer.Reset(poll)
	}
}

// watch watches the folders that the files are in: a file's own watch ends when
// it is replaced. Folders that are watched already stay so.
func (r *reloader) watch(watcher *fsnotify.Watcher) {
	if watcher.Events == nil {
		return
	}
	for _, path := range r.source.Paths {
		for _, folder := range above(path) {
			_ = watcher.Add(folder)
		}
	}
	for _, folder := range r.source.Folders() {
		_ = watcher.Add(folder)
	}
}

// above returns the folders that tell when a path leads elsewhere: the one that
// it is in, and those with a symbolic link on the way to it.
func above(path string) []string {
	path = filepath.Clean(path)
	folders := []string{filepath.Dir(path)}
	for dir := folders[0]; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && info.Mode().Type() == fs.ModeSymlink {
			folders = append(folders, filepath.Dir(dir))
		}
	}
	return folders
}

// load puts the files' rules in force if they have changed and are good, and
// otherwise leaves those in force that are. Who has asked is told that nothing
// has changed.
func (r *reloader) load(asked bool) {
	reading := r.source.Read()
	seen := reading.Fingerprint()
	if seen == r.seen {
		if asked {
			r.logger.Info("the rules files have not changed", "config", r.source.Paths)
		}
		return
	}
	r.seen = seen
	set, err := rules.LoadFrom(reading)
	if err != nil {
		r.failures.Add(1)
		r.failed.Store(&err)
		r.logger.Error("the rules files changed and are wrong; the rules in force stay", "config", r.source.Paths, "error", err)
		return
	}
	r.follow(set)
	r.set.Store(set)
	r.loaded(seen[:])
	r.failed.Store(nil)
	r.logger.Info("the rules files changed and are in force", "config", r.source.Paths, "domains", len(set.Domains()), "rules", len(set.Rules()))
}
