package ledger

import (
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	// pastTime is how long before the last day of a journal a request can have been held that was
	// still open then, and so how much of the journal is read.
	pastTime = 48 * time.Hour
	// enterWithin is for how long a settlement may be entered again: its ID is known for longer.
	enterWithin = keepIDs - time.Hour
)

var errStopped = errors.New("the ledger stops")

// A past is what a journal says that the ledger may lack.
type past struct {
	lines, recorded int // how many there are, and the last one of which the ledger has everything
	open            map[string]*entry
}

// readPast reads what the journal had when it was opened.
func (l *Ledger) readPast() (*past, error) {
	p := &past{open: map[string]*entry{}}
	err := l.Journal.Past(pastTime, func(line []byte) error {
		p.lines++
		e := readEntry(line)
		switch {
		case l.stopped():
			return errStopped
		case e == nil:
		case e.isMark():
			p.recorded = p.lines
		case e.Domain != l.Domain:
		case e.Event == eventOpen:
			p.open[e.ID] = e
		case e.Event == eventDropped, e.counts():
			delete(p.open, e.ID)
		}
		return nil
	})
	return p, err
}

func (l *Ledger) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// recover enters what the journal has of an earlier process and the ledger may lack: settlements that
// were not written, and requests that were never settled.
func (l *Ledger) recover() {
	tooOld := time.Now().Add(-enterWithin)
	err := l.recall()
	close(l.recalled)
	var p *past
	if err == nil {
		p, err = l.readPast()
	}
	again, late, line := 0, 0, 0
	if err == nil {
		err = l.Journal.Past(pastTime, func(text []byte) error {
			if line++; line <= p.recorded {
				return nil
			}
			e := readEntry(text)
			switch {
			case e == nil || !e.counts() || e.Domain != l.Domain:
				return nil
			case e.Time.Before(tooOld):
				late++
				return nil
			}
			again++
			return l.enterAgain(e)
		})
	}
	if err != nil {
		if !errors.Is(err, errStopped) {
			l.Logger.Error("the journal cannot be read: the ledger may lack what an earlier process had not recorded", "error", err)
		}
		return
	}
	for _, e := range p.unsettled() {
		held, _ := usd(e.HeldUSD)
		l.enter(eventUnsettled, &Settlement{
			ID: e.ID, At: e.Held, User: e.User, Team: e.Team, Model: e.Model, Labels: e.Labels, Used: Numbers{Requests: 1, Unsettled: held},
		})
	}
	if late > 0 {
		l.Logger.Error("the ledger may lack settlements of an earlier process, which are too old to be entered once", "settlements", late)
	}
	if again+len(p.open) > 0 {
		l.Logger.Info("an earlier process has not ended in order: its journal was entered into the ledger", "settlements", again, "unsettled", len(p.open))
	}
	l.mu.Lock()
	l.recovering, l.unmarked = false, true
	l.mu.Unlock()
}

// enterAgain lets a settlement wait to be recorded, once there is room.
func (l *Ledger) enterAgain(e *entry) error {
	for l.Waiting() >= maxBatch {
		if !l.sleep(gather) {
			return errStopped
		}
	}
	if l.stopped() {
		return errStopped
	}
	r := l.recordOf(l.settlementOf(e))
	r.month = e.Month
	l.add(r)
	return nil
}

// unsettled returns the requests that were open, the oldest first.
func (p *past) unsettled() (all []*entry) {
	for _, e := range p.open {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if c := a.Held.Compare(b.Held); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}
