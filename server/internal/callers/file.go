package callers

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

const (
	// maxFile is the size of the largest file, in bytes.
	maxFile = 64 << 10
	// rereadAfter is how long a change of a file may go unnoticed.
	rereadAfter = time.Second
)

// watched is the parsed content of a file, read again when calls come, at most once a
// second. While the file is wrong its last good content holds. It is safe for concurrent
// use.
type watched[T any] struct {
	setting string // that names the file
	file    string
	logger  *slog.Logger
	parse   func(text []byte) (T, error)

	checked atomic.Int64 // when the file was read last, in unix nanoseconds
	known   atomic.Pointer[T]
	text    atomic.Pointer[[]byte] // that was read last, good or not
}

// open reads the file for the first time.
func (w *watched[T]) open() error {
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	text, err := w.read()
	if err != nil {
		return err
	}
	known, err := w.parse(text)
	if err != nil {
		return err
	}
	w.text.Store(&text)
	w.known.Store(&known)
	w.checked.Store(time.Now().UnixNano())
	return nil
}

// read reads the file up to the size that is too large.
func (w *watched[T]) read() ([]byte, error) {
	f, err := os.Open(w.file)
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", w.setting, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", w.setting, err)
	}
	return text, nil
}

// get returns the content of the file.
func (w *watched[T]) get() T {
	w.refresh()
	return *w.known.Load()
}

// refresh reads the file again if that is due.
func (w *watched[T]) refresh() {
	now, last := time.Now().UnixNano(), w.checked.Load()
	if now-last < rereadAfter.Nanoseconds() || !w.checked.CompareAndSwap(last, now) {
		return
	}
	text, err := w.read()
	if err == nil && bytes.Equal(text, *w.text.Load()) {
		return
	}
	var known T
	if err == nil {
		w.text.Store(&text)
		known, err = w.parse(text)
	}
	if err != nil {
		w.logger.Error("a file with secrets is wrong; those in force stay", "error", err)
		return
	}
	w.known.Store(&known)
	w.logger.Info("a file with secrets changed and is in force", "setting", w.setting, "file", w.file)
}

// A File is a file of callers, read again when it changes. It is safe for concurrent use.
type File struct{ watched watched[*Set] }

// OpenFile reads a file of callers; it returns nil if there is none. The error is a
// [FileError] if the file can be read. The logger, which may be nil, is told of
// changes.
func OpenFile(name string, logger *slog.Logger) (*File, error) {
	if name == "" {
		return nil, nil
	}
	f := &File{watched[*Set]{
		setting: "callers", file: name, logger: logger,
		parse: func(text []byte) (*Set, error) { return Parse(name, text) },
	}}
	if err := f.watched.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// set returns the callers of the file as it is now.
func (f *File) set() *Set { return f.watched.get() }
