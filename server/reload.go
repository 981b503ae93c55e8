package server

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weirlimit/weir/server/config"
	"github.com/weirlimit/weir/server/rules"
)

const (
	// settle is how long the files have to be left alone before they are read:
	// editors and mounts change them in several steps.
	settle = 200 * time.Millisecond
	// poll is how often the files are read without being told to, for file
	// systems that tell nothing.
	poll = 30 * time.Second
)

// A reloader keeps the last good rules of the files in force. What it builds is
// whole before it is seen: a call takes one set and never sees two.
type reloader struct {
	path   string
	set    *atomic.Pointer[rules.Set]
	logger *slog.Logger
	seen   [sha256.Size]byte // fingerprint of the files last read
	failed atomic.Pointer[error]
	wake   chan struct{}
	loaded func(fingerprint []byte) // told of rules that came into force
}

func newReloader(path string, set *atomic.Pointer[rules.Set], logger *slog.Logger) *reloader {
	return &reloader{path: path, set: set, logger: logger, wake: make(chan struct{}, 1), loaded: func([]byte) {}}
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
	r.watch(watcher)
	// At once, for what changed before the watch began.
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watcher.Events:
			timer.Reset(settle)
		case err := <-watcher.Errors:
			r.logger.Warn("watching the rules files", "error", err)
			timer.Reset(settle)
		case <-r.wake:
			timer.Reset(0)
		case <-timer.C:
			r.load()
			r.watch(watcher)
			timer.Reset(poll)
		}
	}
}

// watch watches the folders that the files are in: a file's own watch ends when
// it is replaced. Folders that are watched already stay so.
func (r *reloader) watch(watcher *fsnotify.Watcher) {
	if watcher.Events == nil {
		return
	}
	// The parent tells when the path itself goes and comes back.
	_ = watcher.Add(filepath.Dir(filepath.Clean(r.path)))
	_ = filepath.WalkDir(r.path, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir():
			return nil
		case path != r.path && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		}
		return watcher.Add(path)
	})
}

// load puts the files' rules in force if they have changed and are good, and
// otherwise leaves those in force that are.
func (r *reloader) load() {
	seen := config.Fingerprint(r.path)
	if seen == r.seen {
		return
	}
	r.seen = seen
	set, err := rules.Load(r.path)
	if err != nil {
		r.failed.Store(&err)
		r.logger.Error("the rules files changed and are wrong; the rules in force stay", "config", r.path, "error", err)
		return
	}
	r.set.Store(set)
	r.loaded(seen[:])
	r.failed.Store(nil)
	r.logger.Info("the rules files changed and are in force", "config", r.path, "domains", len(set.Domains()), "rules", len(set.Rules()))
}
