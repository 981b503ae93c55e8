package accesslog

import (
	"errors"
	"io"
	"slices"
	"time"
)

// DefaultReorder is how long lines may be late by default.
const DefaultReorder = 5 * time.Second

// maxWaiting bounds the records that wait for late ones.
const maxWaiting = 1 << 16

// Options say how logs are read. The zero value finds everything out, and takes
// the lines in the order of the files.
type Options struct {
	Format Format
	// TimeField is the field of JSON that has the time. Empty: the
	// first that is usual.
	TimeField string
	// Reorder is the longest time by which a line may be late and still be sorted:
	// proxies log a request when it ends. A later line counts as of the latest instant.
	Reorder time.Duration
}

// A Log is the records of several logs in the order of their time. It is for one
// goroutine. Create it with Open and close it.
type Log struct {
	sources []*source
	stats   Stats
	reorder int64
	waiting []*Record // by time, then in the order in which they were read
	free    []*Record
	last    *Record
	latest  int64 // of the records read
	now     int64 // of the records given out
}

// Open opens files, "-" for stdin, compressed by gzip or not. Several are merged
// by time, so that they may be of several hosts, or one after another.
func Open(paths []string, stdin io.Reader, o Options) (*Log, error) {
	l := &Log{reorder: o.Reorder.Microseconds()}
	for _, path := range paths {
		s, err := open(path, stdin, o)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.sources = append(l.sources, s)
	}
	return l, nil
}

// Close closes the files.
func (l *Log) Close() error {
	var err error
	for _, s := range l.sources {
		err = errors.Join(err, s.close())
	}
	l.sources = nil
	return err
}

// Stats is what was read so far.
func (l *Log) Stats() Stats { return l.stats }

// Progress returns how many bytes of the files were read, and their size: 0 if that of
// one is unknown.
func (l *Log) Progress() (read, size int64) {
	for _, s := range l.sources {
		if s.size == 0 {
			return read, 0
		}
		read += s.read
		size += s.size
	}
	return read, size
}

// Fields returns the names of the fields that the first record of each log read so far
// has. They are fixed if later records have no others: those of JSON may.
func (l *Log) Fields() (names []string, fixed bool) {
	fixed = true
	for _, s := range l.sources {
		for _, name := range s.fields {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		fixed = fixed && s.format != JSON
	}
	return names, fixed
}

// Next returns the next record, valid until the next call; io.EOF if there is
// none. Other errors mean that a file could not be read on.
func (l *Log) Next() (*Record, error) {
	if l.last != nil {
		l.free = append(l.free, l.last)
		l.last = nil
	}
	for len(l.waiting) == 0 || l.latest-l.waiting[0].Micros <= l.reorder && len(l.waiting) < maxWaiting {
		r, err := l.merge()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		l.latest = max(l.latest, r.Micros)
		l.wait(r)
		if l.reorder == 0 {
			break
		}
	}
	if len(l.waiting) == 0 {
		return nil, io.EOF
	}
	r := l.waiting[0]
	l.waiting = l.waiting[1:]
	if r.Micros < l.now {
		r.Micros = l.now
		l.stats.Late++
	}
	l.now, l.last = r.Micros, r
	return r, nil
}

// merge takes the earliest of the next records of all logs.
func (l *Log) merge() (*Record, error) {
	var first *source
	for _, s := range l.sources {
		if err := l.peek(s); err != nil {
			return nil, err
		}
		if s.head != nil && (first == nil || s.head.Micros < first.head.Micros) {
			first = s
		}
	}
	if first == nil {
		return nil, io.EOF
	}
	r := first.head
	first.head = nil
	return r, nil
}

func (l *Log) peek(s *source) error {
	if s.head != nil {
		return nil
	}
	r := l.record()
	err := s.next(r, &l.stats)
	if err == nil {
		s.head = r
		return nil
	}
	l.free = append(l.free, r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// record is one that was used before, or a new one.
func (l *Log) record() *Record {
	if n := len(l.free); n > 0 {
		r := l.free[n-1]
		l.free = l.free[:n-1]
		return r
	}
	return new(Record)
}

// wait adds a record to those that wait. Few are late, so most
// go to the end.
func (l *Log) wait(r *Record) {
	at, _ := slices.BinarySearchFunc(l.waiting, r.Micros, func(other *Record, micros int64) int {
		if other.Micros <= micros {
			return -1
		}
		return 1
	})
	l.waiting = slices.Insert(l.waiting, at, r)
}
