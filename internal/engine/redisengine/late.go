package redisengine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weirlimit/weir"
)

// Keeps reports whether the store reads a reply that arrives after its call has ended: it does
// for a client of one server that has ContextTimeoutEnabled. The error of such a call is a
// [acts.Pending], so calls may wait on their caller's goroutine.
func (s *Store) Keeps() bool { return s.keeps }

// fail answers a batch with an error: one that can be waited for, if the reply will be
// read late.
func (s *Store) fail(b *batch, err error) {
	var reply *lateReply
	if !s.keeps || !b.written || !errors.As(err, &reply) {
		b.fail(err)
		return
	}
	late := &lateBatch{store: s, batch: b}
	b.fail(err)
	for _, a := range b.acts {
		a.Err = &pending{a.Err, reply, late, a}
	}
}

// A lateBatch is a batch whose reply is read late, once for all of its acts.
type lateBatch struct {
	store *Store
	batch *batch
	once  sync.Once
}

// answer answers the acts with the reply.
func (l *lateBatch) answer(text string, err error) {
	l.once.Do(func() {
		var got answer
		switch {
		case unknown(err):
			// No caller is waiting that could send the text.
			err = fmt.Errorf("%w: %w: the server did not know the script", weir.ErrNotApplied, context.DeadlineExceeded)
		case err != nil:
			err = classify(err)
		default:
			for _, a := range l.batch.acts {
				a.Err = nil
			}
			got, err = l.store.read(l.batch, text)
		}
		if err != nil {
			l.batch.fail(err)
		}
		if got.outside == 0 {
			return
		}
		for _, a := range l.batch.acts {
			if a.Err == errOutside {
				// No caller is waiting that could ask again.
				a.Err = fmt.Errorf("weir: %v: %w: %v", a.Kind, weir.ErrNotApplied, errOutside)
			}
		}
	})
}

// pending is the error of an act whose reply is read late. It implements [acts.Pending].
type pending struct {
	error
	reply *lateReply
	batch *lateBatch
	act   *weir.Act
}

// Unwrap returns the error of the batch.
func (p *pending) Unwrap() error { return p.error }

// Then implements [acts.Pending]. The act is the one that was asked for.
func (p *pending) Then(f func(*weir.Act)) {
	p.reply.then(func(text string, err error) {
		p.batch.answer(text, err)
		f(p.act)
	})
}
