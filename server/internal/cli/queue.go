package cli

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueLines is how many lines of the log may wait to be written.
	queueLines = 1024
	// queueTimeout is how long the end waits for them.
	queueTimeout = time.Second
)

// A queue writes lines in the background, so that a slow reader of the log delays
// nothing. While it is full it drops lines, and then logs how many.
type queue struct {
	to      io.Writer
	lines   chan []byte
	dropped atomic.Uint64
	ended   atomic.Bool
	ending  sync.Once
	end     chan struct{}
	done    chan struct{}
}

// newQueue returns a queue that writes until it is closed.
func newQueue(to io.Writer) *queue {
	q := &queue{to: to, lines: make(chan []byte, queueLines), end: make(chan struct{}), done: make(chan struct{})}
	go q.run()
	return q
}

// Write takes a line; it never fails and never waits. Once the queue is closed it
// writes at once.
func (q *queue) Write(line []byte) (int, error) {
	if q.ended.Load() {
		return q.to.Write(line)
	}
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

func (q *queue) run() {
	defer close(q.done)
	for {
		select {
		case line := <-q.lines:
			q.write(line)
		case <-q.end:
			for len(q.lines) > 0 {
				q.write(<-q.lines)
			}
			return
		}
	}
}

func (q *queue) write(line []byte) {
	// A failure to write the log cannot be logged.
	_, _ = q.to.Write(line)
	if n := q.dropped.Swap(0); n > 0 {
		_, _ = fmt.Fprintf(q.to, "{\"level\":\"WARN\",\"msg\":\"lines of the log were dropped\",\"lines\":%d}\n", n)
	}
}

// close writes what waits, for a second at most.
func (q *queue) close() {
	q.ending.Do(func() { close(q.end) })
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	select {
	case <-q.done:
		q.ended.Store(true)
	case <-timer.C:
	}
}
