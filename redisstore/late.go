package redisstore

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weirlimit/weir"
)

// Keeps reports whether a call that ends before its reply came is read to its end all
// the same, so that it may wait on its caller's goroutine: its error is a
// [weir.Pending] then.
func (s *Store) Keeps() bool { return s.keeper != nil && s.placed == nil }

// Interrupt ends the calls that wait for a reply.
func (s *Store) Interrupt() {
	if s.keeper != nil {
		s.keeper.interrupt()
	}
}

// late is the error of a batch whose reply will be read when it comes.
type late struct {
	error
	store *Store
	batch *batch
	reply *lateReply
	once  sync.Once
}

// missing returns the error of a batch that has no reply: one that can be waited for,
// if its connection is kept.
func (s *Store) missing(b *batch, err error) error {
	var reply *lateReply
	if s.keeper == nil || !b.written || !errors.As(err, &reply) {
		return err
	}
	return &late{error: err, store: s, batch: b, reply: reply}
}

// Unwrap returns the error without the reply.
func (l *late) Unwrap() error { return l.error }

// arrive hands the answers of the reply out.
func (l *late) arrive(text string, err error) {
	l.once.Do(func() {
		got, failure := answer{}, error(nil)
		if err != nil {
			failure = classify(err)
		} else {
			clearErrors(l.batch.acts)
			got, failure = l.store.read(l.batch, text)
		}
		if failure != nil {
			l.batch.fail(failure)
		}
		if got.outside > 0 {
			l.outside()
		}
	})
}

// outside says of acts whose calendar windows did not reach the store's time that they
// were not decided: nobody waits any more to ask again.
func (l *late) outside() {
	for _, a := range l.batch.acts {
		if a.Err == errOutside {
			a.Err = fmt.Errorf("weir: %v: %w: %v", a.Kind, weir.ErrNotApplied, errOutside)
		}
	}
}

func clearErrors(acts []*weir.Act) {
	for _, a := range acts {
		a.Err = nil
	}
}

// pending is the error of one act of such a batch. It implements [weir.Pending].
type pending struct {
	error
	late *late
	act  *weir.Act
}

// Unwrap returns the error of the batch.
func (p *pending) Unwrap() error { return p.error }

// Then implements [weir.Pending]. The act is the one that was asked for.
func (p *pending) Then(f func(*weir.Act)) {
	p.late.reply.then(func(text string, err error) {
		p.late.arrive(text, err)
		f(p.act)
	})
}
