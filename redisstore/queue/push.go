package queue

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/weirlimit/weir"
)

// ErrWrongType: the queue's key holds another type than the queue's kind. Nothing was
// charged or written. It wraps [weir.ErrMisconfigured].
var ErrWrongType = fmt.Errorf("%w: the queue's key holds another type", weir.ErrMisconfigured)

// An Entry is one item to push.
type Entry struct {
	// Body is the item, any bytes, at most [MaxItemBytes].
	Body []byte
	// Budget names the budget under the Push limit that is charged, so one queue can have
	// a limit for each writer. At most [MaxKeyBytes]. Empty: the queue's own.
	Budget string
	// Cost is the number of units to charge. Zero: 1. At most [weir.MaxCost].
	Cost int64
	// ID makes the push happen once: a repeat within ten minutes gets the
	// first answer and does nothing. At most [weir.MaxIDBytes]. Empty: none.
	ID string
}

// Pushed is the answer to a push.
type Pushed struct {
	// Pushed reports whether the item is in the queue.
	Pushed bool
	// Full reports that the item was refused because the queue is full. The limit was not
	// charged, and the Decision is zero.
	Full bool
	// Decision is the limit's; without a limit it is granted and has no Source.
	Decision weir.Decision
	// Dropped holds the items that were dropped for this one, the oldest first.
	Dropped [][]byte
	// Waiting is the number of items that wait now, without those in flight.
	Waiting int64
}

// Push charges the limit and pushes the item, in one step. A refusal is no error. An error
// says that nothing was pushed or charged, except [weir.ErrAmbiguous]: then both happened
// or neither, and a retry with the same ID is safe. Other errors are [ErrWrongType], a
// [*weir.InvalidError], and [weir.ErrIDReused] for an id that belongs to another push.
func (q *Queue) Push(ctx context.Context, e Entry) (Pushed, error) {
	if e.Cost == 0 {
		e.Cost = 1
	}
	if err := e.check(); err != nil {
		return Pushed{}, err
	}
	r := request{op: opPush, item: e.Body, keys: q.keys}
	if e.ID != "" {
		r.fingerprint = e.fingerprint()
		r.keys = append(q.keys[:len(q.keys):len(q.keys)], q.extension.Key(q.store, q.tag, recordLetter, q.budget('!', e.ID)))
	}
	got, err := q.run(ctx, &r, q.charge(q.options.Push, '>', e.Budget, e.Cost))
	if err != nil {
		return Pushed{}, fmt.Errorf("weir: push: %w", err)
	}
	p := Pushed{Pushed: got.status == statusDone, Full: got.status == statusFull, Waiting: got.waiting, Dropped: got.strings}
	if !p.Full {
		p.Decision = got.decision
	}
	return p, nil
}

func (e *Entry) check() error {
	switch {
	case len(e.Body) > MaxItemBytes:
		return invalid("body", fmt.Sprintf("%d bytes", len(e.Body)), fmt.Sprintf("at most %d bytes", MaxItemBytes))
	case len(e.ID) > weir.MaxIDBytes:
		return invalid("id", fmt.Sprintf("%d bytes", len(e.ID)), fmt.Sprintf("at most %d bytes", weir.MaxIDBytes))
	case len(e.Budget) > MaxKeyBytes:
		return invalid("budget", fmt.Sprintf("%d bytes", len(e.Budget)), fmt.Sprintf("at most %d bytes", MaxKeyBytes))
	case e.Cost < 0 || e.Cost > weir.MaxCost:
		return invalid("cost", e.Cost, fmt.Sprintf("1 … %d, or 0 for 1", weir.MaxCost))
	}
	return nil
}

// fingerprint is equal for two pushes with the same content.
func (e *Entry) fingerprint() []byte {
	h := sha256.New()
	head := binary.BigEndian.AppendUint64(nil, uint64(e.Cost))
	_, _ = h.Write(binary.BigEndian.AppendUint64(head, uint64(len(e.Budget))))
	_, _ = h.Write([]byte(e.Budget))
	_, _ = h.Write(e.Body)
	return h.Sum(nil)[:16]
}

// budget returns the key of a budget: of this queue, for a purpose, by name. No two
// budgets have the same key.
func (q *Queue) budget(purpose byte, whose string) string {
	return strconv.Itoa(len(q.options.Key)) + ":" + q.options.Key + string(purpose) + whose
}

// charge returns the charge to make under a limit, if there is one.
func (q *Queue) charge(l *weir.Limit, purpose byte, whose string, cost int64) weir.Charge {
	if l == nil {
		return q.peek()
	}
	return weir.Charge{Key: q.budget(purpose, whose), Limit: l, Cost: cost}
}

// peek charges nothing. Its key is used for nothing else, because a peek under another
// limit may change a state that lies in the future.
func (q *Queue) peek() weir.Charge {
	return weir.Charge{Key: q.budget('-', ""), Limit: unlimited}
}

// Len counts the waiting items, and those that are leased and not acknowledged, even if the
// lease has ended.
func (q *Queue) Len(ctx context.Context) (waiting, inFlight int64, err error) {
	got, err := q.run(ctx, &request{op: opLength, keys: q.keys}, q.peek())
	if err != nil {
		return 0, 0, fmt.Errorf("weir: len: %w", err)
	}
	return got.waiting, got.flying, nil
}
