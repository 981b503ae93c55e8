package ledger

import (
	"bytes"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// recallTime is how much of the journal is read at least: more than a week, and beside it the month.
	recallTime = 8 * 24 * time.Hour
	// clockTime is how much earlier than the start of a window the first line about it may be written.
	clockTime = 24 * time.Hour
	// maxLimits is how many limits of the journal are kept ready.
	maxLimits = 1000
	// eventWithin is how far into a line its event begins and ends, and its labels do not begin.
	eventWithin = 64
)

// openEvent is what lines of open requests have there.
var openEvent = []byte(`"event":"` + eventOpen + `"`)

// isMark reports whether an entry says where the lines before it are.
func (e *entry) isMark() bool { return e.Event == eventRecorded || e.Event == eventEmptied }

// limitOf returns the limit of a text form; nil if there is none.
func (l *Ledger) limitOf(text string) *weir.Limit {
	if text == "" {
		return nil
	}
	limit, known := l.limits[text]
	if known {
		return limit
	}
	if parsed, err := weir.ParseLimit(text); err == nil {
		limit, _ = parsed.Compile()
	}
	if len(l.limits) >= maxLimits {
		clear(l.limits)
	}
	l.limits[text] = limit
	return limit
}

// A recollection is what the journal says of what earlier processes have recorded in windows and in the
// month of now.
type recollection struct {
	l        *Ledger
	now      time.Time
	month    string
	own      own // what was recorded
	tail     own // what follows the last mark
	earliest time.Time
	epoch    string // of the store at the last mark; empty: unknown
	known    map[string]bool
}

// recall continues where the last process of the journal ended: in the epoch that the store had then,
// with everything that was recorded. It leaves out the lines after the last mark: they are entered
// again, and remembered once they are recorded.
func (l *Ledger) recall() error {
	if _, lasts := l.book.(*shared); !lasts {
		return nil
	}
	now := time.Now()
	local := now.In(l.Zone)
	from := time.Date(local.Year(), local.Month(), 1, 0, 0, 0, 0, l.Zone)
	if week := now.Add(-recallTime); week.Before(from) {
		from = week
	}
	from = from.Add(-clockTime)
	r := &recollection{l: l, now: now, month: local.Format(monthForm), own: newOwn(), tail: newOwn(), earliest: from, known: map[string]bool{}}
	read := func(use func(e *entry)) func([]byte) error {
		return func(line []byte) error {
			if l.stopped() {
				return errStopped
			}
			// Half of the lines say nothing here, and decoding is what takes time.
			if bytes.Contains(line[:min(len(line), eventWithin)], openEvent) {
				return nil
			}
			if e := readEntry(line); e != nil {
				use(e)
			}
			return nil
		}
	}
	err := l.Journal.Between(from, time.Time{}, read(func(e *entry) {
		if e.isMark() {
			r.mark(e)
			return
		}
		r.add(&r.tail, e)
	}))
	if err == nil && r.earliest.Before(from) {
		// A window is longer than what was read.
		err = l.Journal.Between(r.earliest.Add(-clockTime), from, read(func(e *entry) { r.add(&r.own, e) }))
	}
	if err != nil {
		return err
	}
	l.own, l.epoch, l.known = r.own, r.epoch, r.known
	return nil
}

// mark notes that all before a mark was recorded. Older versions wrote no epoch.
func (r *recollection) mark(e *entry) {
	r.own.merge(&r.tail)
	r.tail, r.epoch = newOwn(), ""
	if e.Domain == r.l.Domain && e.Epoch != "" {
		r.epoch = e.Epoch
		r.known[e.Epoch] = true
	}
}

// add adds what an entry says of windows that have not ended, and of the month.
func (r *recollection) add(to *own, e *entry) {
	if !e.counts() || e.Domain != r.l.Domain {
		return
	}
	all := e.Charges
	e.Charges = nil
	for _, c := range all {
		if !c.Until.After(r.now) {
			continue
		}
		e.Charges = append(e.Charges, c)
		if c.From.Before(r.earliest) {
			r.earliest = c.From
		}
	}
	if len(e.Charges) == 0 && e.Month != r.month {
		return
	}
	sum := r.l.recordOf(r.l.settlementOf(e))
	sum.month = e.Month
	if e.Month == r.month {
		to.addMonth(sum)
	}
	to.addWindows(sum)
}
