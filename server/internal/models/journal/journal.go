// Package journal appends lines of JSON to files of days, in order and off the path of requests: a
// line waits in memory until it is written.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/logs"
)

const (
	// Keep is for how long files are kept after their day.
	Keep = 100 * 24 * time.Hour
	// maxWaiting is how many bytes of lines wait at most to be written.
	maxWaiting = 32 << 20
	// syncTime is how often what was written is forced to the disk, and retryTime the pause after a
	// failure.
	syncTime  = time.Second
	retryTime = time.Second

	dayForm   = "2006-01-02"
	extension = ".jsonl"
	lockName  = "lock"
)

// Options configure a [Journal]. Dir is required.
type Options struct {
	// Dir is the folder of the files, which belongs to one process at a time. It is made, readable
	// by its user alone, if it is missing.
	Dir string
	// Observer counts. Nil: nothing is counted.
	Observer Observer
	// Logger gets an ERROR, at most one a minute, while lines cannot be written. Nil: nothing is
	// logged.
	Logger *slog.Logger
}

// An Observer counts what a journal does. It must be safe for concurrent use.
type Observer interface {
	// Failed counts an attempt to write that failed. The lines wait.
	Failed()
	// Lost counts a line that is never written, because too many wait.
	Lost()
}

type nobody struct{}

func (nobody) Failed() {}
func (nobody) Lost()   {}

// A Journal is safe for concurrent use. Open it, then call Start.
type Journal struct {
	Options
	lock     io.Closer
	past     []part // the files as they were when it was opened
	seldom   logs.Seldom
	wake     chan struct{} // a line waits
	stop     chan struct{} // closed by Stop
	stopping sync.Once
	done     chan struct{} // closed when nothing is written any more
	started  sync.Once

	mu      sync.Mutex // guards the fields below; never held while waiting
	waiting bytes.Buffer
	lost    int64 // lines since the last one that has room
	// How many lines were appended, and how many of them are on the disk; progress is closed when saved
	// grows.
	appended, saved int64
	progress        chan struct{}

	// Only the goroutine that writes uses the fields below.
	batch   []byte // what it writes next
	upTo    int64  // the number of its last line
	written int64  // the number of the last line that was written
	file    *os.File
	day     string
	size    int64 // of the file, up to the end of its last line
	torn    bool  // the file ends within a line
	synced  bool
}

// part is the beginning of a file.
type part struct {
	name string
	size int64
}

// Open opens the journal of a folder and locks it. It starts nothing. The error is a
// [*weir.InvalidError] if another process has it, or about the folder.
func Open(o Options) (*Journal, error) {
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lock, err := lockFile(filepath.Join(o.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if lock == nil {
		return nil, &weir.InvalidError{Field: "journal", Value: strconv.Quote(o.Dir), Want: "a folder of this process alone: another one writes there"}
	}
	past, err := parts(o.Dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), lock.Close())
	}
	return &Journal{
		Options: o, lock: lock, past: past, seldom: logs.Seldom{Period: time.Minute}, synced: true,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), progress: make(chan struct{}),
	}, nil
}

// parts returns the files of a folder, the oldest first.
func parts(dir string) ([]part, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []part
	for _, e := range entries {
		if _, ours := dayOf(e.Name()); !ours {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // It was removed meanwhile.
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			all = append(all, part{filepath.Join(dir, e.Name()), info.Size()})
		}
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// dayOf returns the day of a file of a journal.
func dayOf(name string) (time.Time, bool) {
	text, found := strings.CutSuffix(filepath.Base(name), extension)
	day, err := time.Parse(dayForm, text)
	return day, found && err == nil
}

// Start starts to write. Call it once.
func (j *Journal) Start() { j.started.Do(func() { go j.run() }) }

// Append appends a line, without its end, and returns its number. It never waits. If too many lines
// wait, it drops the line, says in its place how many are missing, and returns 0.
func (j *Journal) Append(line []byte) (number int64) {
	j.mu.Lock()
	full := j.lost > 0 || j.waiting.Len()+len(line) > maxWaiting
	if full {
		j.lost++
	} else {
		_, _ = j.waiting.Write(line) // It never fails.
		_ = j.waiting.WriteByte('\n')
		j.appended++
		number = j.appended
	}
	j.mu.Unlock()
	if full {
		j.Observer.Lost()
	}
	j.wakeUp()
	return number
}

func (j *Journal) wakeUp() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// errStopped says that nothing is written any more.
var errStopped = errors.New("journal: it has stopped")

// Saved waits until the line of a number, and all before it, are on the disk. The error says that they
// may not be.
func (j *Journal) Saved(ctx context.Context, number int64) error {
	for stopped := false; ; {
		j.mu.Lock()
		saved, progress := j.saved >= number, j.progress
		j.mu.Unlock()
		switch {
		case saved:
			return nil
		case stopped:
			return errStopped
		}
		select {
		case <-progress:
		case <-j.done:
			stopped = true // What was written last may have been saved.
		case <-ctx.Done():
			return fmt.Errorf("journal: %w", ctx.Err())
		}
	}
}

// take returns what waits.
func (j *Journal) take() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lost > 0 {
		fmt.Fprintf(&j.waiting, "{\"time\":%q,\"event\":%q,\"lines\":%d}\n", time.Now().UTC().Format(time.RFC3339Nano), EventLost, j.lost)
		j.lost = 0
	}
	all := j.waiting.Bytes()
	j.upTo = j.appended
	j.waiting = bytes.Buffer{}
	return all
}

// EventLost is the event of a line that says how many lines are missing in its place.
const EventLost = "lost"

// Stop writes what waits and ends. When ctx ends first, the error says so, and the rest is lost.
// Further calls do the same.
func (j *Journal) Stop(ctx context.Context) error {
	j.stopping.Do(func() { close(j.stop) })
	j.started.Do(func() { go j.run() }) // It unlocks the folder.
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("journal: %w", ctx.Err())
	}
}

// run writes until the journal stops. It tries once more to write what waits then.
func (j *Journal) run() {
	defer close(j.done)
	defer j.closeAll()
	tick := time.NewTicker(syncTime)
	defer tick.Stop()
	for {
		stopped := false
		select {
		case <-j.stop:
			stopped = true
		case <-j.wake:
		case <-tick.C:
			j.sync()
		}
		failed := j.flush()
		if stopped {
			return
		}
		if failed {
			select {
			case <-j.stop:
			case <-time.After(retryTime):
			}
		}
	}
}

func (j *Journal) closeAll() {
	j.sync()
	if j.file != nil {
		_ = j.file.Close()
	}
	_ = j.lock.Close()
}

// flush writes what waits, and reports whether that failed.
func (j *Journal) flush() (failed bool) {
	for {
		if len(j.batch) == 0 {
			j.batch = j.take()
		}
		if len(j.batch) == 0 {
			return false
		}
		if err := j.write(); err != nil {
			j.failed(err)
			return true
		}
		j.batch, j.written = nil, j.upTo
	}
}

// failed counts and logs a failure.
func (j *Journal) failed(err error) {
	j.Observer.Failed()
	if _, due := j.seldom.Due(); due {
		j.Logger.Error("the journal cannot be written: its lines wait in memory", "error", err)
	}
}

// write writes the batch whole, or nothing of it that counts.
func (j *Journal) write() error {
	if err := j.open(time.Now().UTC()); err != nil {
		return err
	}
	j.synced = false
	if j.torn {
		if _, err := j.file.Write([]byte("\n")); err != nil {
			return err
		}
		j.torn = false
		j.size++
	}
	n, err := j.file.Write(j.batch)
	if err == nil {
		j.size += int64(n)
		return nil
	}
	if cut := j.file.Truncate(j.size); cut != nil {
		j.torn = n > 0
		err = errors.Join(err, cut)
	}
	return err
}

// open opens the file of a day, unless it is open. A clock that is set back does not bring an older
// file back.
func (j *Journal) open(now time.Time) error {
	day := max(j.day, now.Format(dayForm))
	if j.file != nil && day == j.day {
		return nil
	}
	j.sync()
	file, err := os.OpenFile(filepath.Join(j.Dir, day+extension), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, torn, err := ending(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file, j.day, j.size, j.torn = file, day, size, torn
	j.removeOld(now)
	return nil
}

// ending returns the size of a file, and whether it ends within a line.
func ending(file *os.File) (size int64, torn bool, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	last := make([]byte, 1)
	_, err = file.ReadAt(last, info.Size()-1)
	return info.Size(), last[0] != '\n', err
}

// removeOld removes files whose time is over.
func (j *Journal) removeOld(now time.Time) {
	all, err := parts(j.Dir)
	for _, p := range all {
		if day, _ := dayOf(p.name); now.Sub(day) >= Keep+24*time.Hour {
			err = errors.Join(err, os.Remove(p.name))
		}
	}
	if err != nil {
		j.Logger.Warn("old files of the journal cannot be removed", "error", err)
	}
}

// sync forces what was written to the disk. A file that somebody has removed or moved is made anew.
func (j *Journal) sync() {
	if j.file == nil {
		return
	}
	if !j.synced {
		if err := j.file.Sync(); err != nil {
			j.failed(err)
		} else {
			j.synced = true
			j.mu.Lock()
			j.saved = j.written
			close(j.progress)
			j.progress = make(chan struct{})
			j.mu.Unlock()
		}
	}
	own, err := j.file.Stat()
	if there, gone := os.Stat(j.file.Name()); err == nil && (gone != nil || !os.SameFile(own, there)) {
		_ = j.file.Close()
		j.file = nil
	}
}
