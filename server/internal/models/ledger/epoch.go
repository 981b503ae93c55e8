package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

const (
	// maxOwn is how many sums of its own an instance remembers, for a store that comes back empty.
	maxOwn = 100_000
	// keepEpoch is how long a store has its epoch after the last instance has asked for it.
	keepEpoch = 100 * 24 * time.Hour
	// maxRestored is how many sums are restored together.
	maxRestored = 32
	// beforeEnd is how long before its end a window is not restored: the store's clock may be ahead.
	beforeEnd = 5 * time.Second
)

// errEpoch says that a record belongs to another epoch than the store's, and was not made.
var errEpoch = errors.New("the store has lost its data")

// errNote says that a restoration waits for the journal.
var errNote = errors.New("the journal has no room for a line")

// own is what this instance has recorded, in all epochs: the sums of months and of windows that have
// not ended, by their names in the store.
type own struct {
	months  map[string]*record
	windows map[string]*ownWindow
	full    bool // some are not remembered
	forgot  time.Time
}

type ownWindow struct {
	charge Charge
	units  int64
}

func newOwn() own { return own{months: map[string]*record{}, windows: map[string]*ownWindow{}} }

// add remembers a record that the store has made.
func (o *own) add(r *record) {
	if r.id == "" {
		return
	}
	o.addMonth(r)
	o.addWindows(r)
}

func (o *own) addMonth(r *record) {
	name := r.month + " " + r.row
	if m := o.months[name]; m != nil {
		for i, n := range r.used.all() {
			*m.used.all()[i] += *n
		}
	} else if o.room() {
		sum := *r
		sum.charges = nil
		o.months[name] = &sum
	}
}

func (o *own) addWindows(r *record) {
	for i := range r.charges {
		c := &r.charges[i]
		o.addWindow(c.window+" "+c.key, c.of, c.units)
	}
}

// addWindow adds units to a window. The limit that is restored is the last one that is known.
func (o *own) addWindow(name string, c *Charge, units int64) {
	if w := o.windows[name]; w != nil {
		w.units += units
		if c.Limit != nil {
			w.charge.Limit, w.charge.HashTag = c.Limit, c.HashTag
		}
	} else if o.room() {
		o.windows[name] = &ownWindow{*c, units}
	}
}

// merge adds another's sums.
func (o *own) merge(other *own) {
	for _, m := range other.months {
		o.addMonth(m)
	}
	for name, w := range other.windows {
		o.addWindow(name, &w.charge, w.units)
	}
	o.full = o.full || other.full
}

// room reports whether one more sum can be remembered. It forgets those that have ended, at most once
// a minute.
func (o *own) room() bool {
	if len(o.months)+len(o.windows) < maxOwn {
		return true
	}
	if now := time.Now(); now.Sub(o.forgot) >= time.Minute {
		o.forgot = now
		o.forget(now)
	}
	fits := len(o.months)+len(o.windows) < maxOwn
	o.full = o.full || !fits
	return fits
}

// forget forgets what has ended.
func (o *own) forget(now time.Time) {
	maps.DeleteFunc(o.windows, func(_ string, w *ownWindow) bool { return w.charge.Window.End <= now.UnixMicro() })
	maps.DeleteFunc(o.months, func(_ string, m *record) bool { return m.ends <= now.Unix() })
}

// A restoration is what is left to record in a store that came back empty. It is the same at each
// attempt, so that IDs keep it from counting twice.
type restoration struct {
	epoch   string
	charges []restored
	records []*record
	note    int64 // the number of its line in the journal; 0: it has none yet
}

// restored is a charge of a limit, of one ID.
type restored struct {
	id     string
	charge weir.Charge
}

// restoration returns what an instance has to record in an epoch.
func (o *own) restoration(epoch, instance string, now time.Time) *restoration {
	o.forget(now.Add(beforeEnd))
	id := func(name string) string {
		sum := sha256.Sum256([]byte(epoch + " " + instance + " " + name))
		return hex.EncodeToString(sum[:16])
	}
	r := &restoration{epoch: epoch}
	for _, name := range slices.Sorted(maps.Keys(o.months)) {
		one := *o.months[name]
		one.id = id(name)
		r.records = append(r.records, &one)
	}
	for _, name := range slices.Sorted(maps.Keys(o.windows)) {
		w := o.windows[name]
		c := w.charge
		c.Units = w.units
		r.records = append(r.records, &record{id: id(name), charges: []counted{c.counted()}})
		if c.Limit == nil {
			continue
		}
		// A limit that never refuses is charged in its place, as far as it was used.
		wide := *c.Limit
		wide.Count = algo.MaxWindow
		compiled, err := wide.Compile()
		if err != nil {
			continue
		}
		for n := 0; c.Units > 0; n++ {
			cost := min(c.Units, weir.MaxCost)
			c.Units -= cost
			r.charges = append(r.charges, restored{id(fmt.Sprint(n, " ", name)), weir.Charge{Key: c.Key, HashTag: c.HashTag, Limit: compiled, Cost: cost}})
		}
	}
	return r
}

// follow has the ledger follow the store into its epoch. A store that came back empty has a new one:
// then this instance first records what it had recorded in earlier ones, in the limits and in the
// ledger. Until that is done nothing else is recorded, so that each settlement counts either as a
// part of that or by itself. A store that it has followed before is not empty.
func (l *Ledger) follow(ctx context.Context) error {
	calling, cancel := context.WithTimeout(ctx, callTime)
	epoch, err := l.book.epoch(calling)
	cancel()
	if err != nil || epoch == l.epoch {
		return err
	}
	if l.epoch != "" && !l.known[epoch] {
		if l.restoring == nil || l.restoring.epoch != epoch {
			l.restoring = l.own.restoration(epoch, l.instance, time.Now())
			l.Logger.Warn("the store has lost its data: what this instance has recorded is recorded again", "sums", len(l.restoring.records), "forgotten", l.own.full)
		}
		if err := l.announce(ctx, l.restoring); err != nil {
			return err
		}
		if err := l.restore(ctx, l.restoring); err != nil {
			return err
		}
	}
	l.epoch, l.restoring = epoch, nil
	l.known[epoch] = true
	return nil
}

// announce waits until the disk has a line of the journal about a restoration, so that no later process
// makes it, too.
func (l *Ledger) announce(ctx context.Context, r *restoration) error {
	if l.Journal == nil {
		return nil
	}
	if r.note == 0 {
		if r.note = l.Journal.Append(l.markOf(eventEmptied, r.epoch).line()); r.note == 0 {
			return errNote
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return l.Journal.Saved(ctx, r.note)
}

// restore records what is left to restore, limits first.
func (l *Ledger) restore(ctx context.Context, r *restoration) error {
	for len(r.charges) > 0 && l.Taker != nil {
		batch := r.charges[:min(len(r.charges), maxRestored)]
		left, err := l.recharge(ctx, batch)
		r.charges = append(left, r.charges[len(batch):]...)
		if err != nil {
			return err
		}
	}
	for len(r.records) > 0 {
		batch := r.records[:min(len(r.records), maxRestored)]
		calling, cancel := context.WithTimeout(ctx, callTime)
		left, _, err := l.book.record(calling, r.epoch, batch)
		cancel()
		r.records = append(left, r.records[len(batch):]...)
		if err != nil {
			return err
		}
	}
	return nil
}

// recharge charges limits, and returns the charges that may not have been made, with an error.
func (l *Ledger) recharge(ctx context.Context, all []restored) (left []restored, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var batch []*weir.Act
	for _, one := range all {
		batch = append(batch, &weir.Act{Kind: acts.KindTake, ID: one.id, Scope: algo.Scope{Owner: one.charge.Key}, Charges: []weir.Charge{one.charge}, Decisions: make([]weir.Decision, 1)})
	}
	l.Taker.Take(ctx, batch)
	for i, act := range batch {
		switch {
		case act.Err == nil:
		case errors.Is(act.Err, weir.ErrInvalid):
			l.Logger.Error("a limit cannot be charged again, and stays as the store has it", "limit", act.Charges[0].Limit.Name, "error", act.Err)
		default:
			left, err = append(left, all[i]), act.Err
		}
	}
	return left, err
}

// confirmed remembers the records of a batch that are not left.
func (l *Ledger) confirmed(batch, left []*record) {
	if l.epoch == "" {
		return // A ledger in memory has no store that could lose its data.
	}
	for _, r := range batch {
		if len(left) > 0 && left[0] == r {
			left = left[1:]
			continue
		}
		l.own.add(r)
	}
}
