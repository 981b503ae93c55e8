package callers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/server/internal/settingfile"
)

const (
	// maxFile is the size of the largest file of secrets, in bytes.
	maxFile = 64 << 10
	// rereadAfter is how long a change of a file may go unnoticed.
	rereadAfter = time.Second
	// hungAfter is how long reading a file may take before the log says so.
	hungAfter = 5 * time.Second
)

// watched is the parsed content of a file. While the file is wrong its last good content
// holds. get is safe for concurrent use and reads no file.
type watched[T any] struct {
	setting string // that names the file
	file    string
	most    int64 // bytes that are read; 0: maxFile
	logger  *slog.Logger
	parse   func(text []byte) (T, error)

	known atomic.Pointer[T]
	sum   [sha256.Size]byte // of the text that was read last, good or not
	state fileState         // of a large file, before it was read last
	wrong string            // the last error of reading, which is logged once
}

// fileState tells versions of a file apart without reading it.
type fileState struct {
	size     int64
	modified time.Time
}

// settled reports whether a large file cannot have changed since it was read: its state is the
// same, and it was not changed at the time of that.
func (w *watched[T]) settled() bool {
	now := w.stat()
	return now == w.state && now.size > maxFile
}

// stat returns the state of the file, none if it is unknown or the file was changed just now.
func (w *watched[T]) stat() (s fileState) {
	if info, err := os.Stat(w.file); err == nil && time.Since(info.ModTime()) > 2*rereadAfter {
		s = fileState{info.Size(), info.ModTime()}
	}
	return s
}

// open reads the file for the first time.
func (w *watched[T]) open() error {
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	w.state = w.stat()
	text, err := w.read()
	if err != nil {
		return err
	}
	known, err := w.parse(text)
	if err != nil {
		return err
	}
	w.sum = sha256.Sum256(text)
	w.known.Store(&known)
	return nil
}

// read reads the file up to the size that is too large. It may take forever.
func (w *watched[T]) read() ([]byte, error) {
	text, err := settingfile.Read(w.file, cmp.Or(w.most, maxFile))
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", w.setting, err)
	}
	return text, nil
}

// get returns the content of the file.
func (w *watched[T]) get() T { return *w.known.Load() }

// refresh reads the file again every second until ctx ends. It does not return while a
// read hangs.
func (w *watched[T]) refresh(ctx context.Context) {
	ticker := time.NewTicker(rereadAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if ctx.Err() == nil { // a tick may have waited for a read that hung
			w.reread()
		}
	}
}

// reread reads the file and puts it in force if it is new and good.
func (w *watched[T]) reread() {
	hung := time.AfterFunc(hungAfter, func() {
		w.logger.Error("reading a file with secrets hangs; those in force stay", "setting", w.setting, "file", w.file)
	})
	if w.settled() {
		hung.Stop()
		return
	}
	state := w.stat()
	text, err := w.read()
	hung.Stop()
	sum := sha256.Sum256(text)
	if err == nil && sum == w.sum {
		w.state = state
		return
	}
	var known T
	if err == nil {
		w.sum, w.state = sum, state
		known, err = w.parse(text)
	}
	if err != nil {
		if w.wrong != err.Error() {
			w.wrong = err.Error()
			w.logger.Error("a file with secrets is wrong; those in force stay", "error", err)
		}
		return
	}
	w.wrong = ""
	w.known.Store(&known)
	w.logger.Info("a file with secrets changed and is in force", "setting", w.setting, "file", w.file)
}

// A File is a file of callers. It is safe for concurrent use.
type File struct{ watched watched[*Set] }

// OpenFile reads a file of callers; it returns nil if there is none. The error is a
// [FileError] if the file can be read. The logger, which may be nil, is told of
// changes.
func OpenFile(name string, logger *slog.Logger) (*File, error) {
	if name == "" {
		return nil, nil
	}
	f := &File{watched[*Set]{
		setting: "callers", file: name, most: MaxFile, logger: logger,
		parse: func(text []byte) (*Set, error) { return Parse(name, text) },
	}}
	if err := f.watched.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// Refresh reads the file every second until ctx ends, and puts changes in force. It returns
// late, or never, if the file system does not answer. Call it once.
func (f *File) Refresh(ctx context.Context) { f.watched.refresh(ctx) }

// HasLabel reports whether a caller of the file has a label of that key.
func (f *File) HasLabel(key string) bool { return f != nil && f.set().HasLabel(key) }

// version tells the contents of the file in force from those before and after; nil without a file.
func (f *File) version() **Set {
	if f == nil {
		return nil
	}
	return f.watched.known.Load()
}

// set returns the callers of the file.
func (f *File) set() *Set { return f.watched.get() }
