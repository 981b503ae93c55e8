package remote

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// unknownFor is for how long a delivery whose ID is unknown is repeated: another instance may
// be about to record the take.
const unknownFor = 10 * time.Second

// deliveries are acts that end a take, one for each ID, until the store has acknowledged them.
// A second one of the same ID is not kept, but sent behind the first.
type deliveries struct {
	most  int
	count atomic.Int64

	mu  sync.Mutex // guards what follows
	all map[idName]*delivery
}

// A delivery is an act that ends a take.
type delivery struct {
	act      *weir.Act
	until    int64 // µs; the ID lives until then
	giveUp   int64 // µs; 0: the store has not said that it does not know the ID
	inFlight bool
}

// endsTake reports whether an act ends the charge of a take with an ID.
func endsTake(a *weir.Act) bool {
	return a.ID != "" && (a.Kind == acts.KindRelease || a.Kind == acts.KindSettle || a.Kind == acts.KindRefund)
}

func (d *deliveries) len() int { return int(d.count.Load()) }

// find returns the delivery of an act's ID; nil if there is none.
func (d *deliveries) find(a *weir.Act) *delivery {
	if a.ID == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[idOf(a)]
}

// keep keeps an act that the store did not decide, unless there is no room, or another act of
// its ID. It reports whether the act is kept, and returns its delivery if that is new.
func (d *deliveries) keep(a *weir.Act, now int64) (added *delivery, kept bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if own := d.all[idOf(a)]; own != nil {
		return nil, own.act.Kind == a.Kind && acts.Content(own.act) == acts.Content(a)
	}
	if len(d.all) >= d.most {
		return nil, false
	}
	own := copyOf(a)
	own.ID, own.Scope.Owner = strings.Clone(a.ID), strings.Clone(a.Scope.Owner)
	for i := range own.Charges {
		c := &own.Charges[i]
		c.Key, c.HashTag = strings.Clone(c.Key), strings.Clone(c.HashTag)
	}
	added = &delivery{act: own, until: now + life(own)}
	d.all[idOf(own)] = added
	d.count.Add(1)
	return added, true
}

// collect returns up to so many deliveries, which are in flight until replied.
func (d *deliveries) collect(most int, now int64) (all []*delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, own := range d.all {
		switch {
		case len(all) == most:
			return all
		case own.inFlight:
		case now >= own.until:
			d.remove(own)
		default:
			own.inFlight = true
			all = append(all, own)
		}
	}
	return all
}

// replied notes the outcome of a delivery.
func (d *deliveries) replied(own *delivery, reply *weir.Act, now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own.inFlight = false
	switch {
	case undecided(reply):
		return
	case errors.Is(reply.Err, weir.ErrUnknownID) && own.giveUp == 0:
		own.giveUp = now + unknownFor.Microseconds()
		return
	case errors.Is(reply.Err, weir.ErrUnknownID) && now < own.giveUp:
		return
	}
	d.remove(own)
}

func (d *deliveries) remove(own *delivery) {
	if name := idOf(own.act); d.all[name] == own {
		delete(d.all, name)
		d.count.Add(-1)
	}
}

// end answers an act that ends a take, and that the store did not decide for a reason.
func (l *Remote) end(a *weir.Act, reason error) {
	a.Err = reason
	added, kept := l.deliveries.keep(a, l.now())
	if kept {
		a.Err = &acts.KeptError{Kind: a.Kind, Reason: reason}
	}
	if added == nil {
		return
	}
	var late acts.Pending
	if !errors.As(reason, &late) {
		l.wake()
		return
	}
	l.deliveries.mu.Lock()
	added.inFlight = true
	l.deliveries.mu.Unlock()
	sent := copyOf(added.act)
	sent.Err = reason
	_ = l.delivered([]*delivery{added}, []*weir.Act{sent})
}

// deliver sends deliveries in the background.
func (l *Remote) deliver(ctx context.Context) error {
	all := l.deliveries.collect(actsPerCall, l.now())
	sent := make([]*weir.Act, len(all))
	for i, own := range all {
		sent[i] = copyOf(own.act)
	}
	l.takeAndRecover(ctx, sent)
	return l.delivered(all, sent)
}

// delivered handles the outcomes of deliveries.
func (l *Remote) delivered(all []*delivery, sent []*weir.Act) error {
	return l.conclude(sent, func(i int, reply *weir.Act) {
		l.deliveries.replied(all[i], reply, l.now())
		if reply.Err != nil {
			return
		}
		l.counts.reconciled.Add(1)
		for j := range reply.Charges {
			l.Reconciled(&reply.Charges[j])
		}
	})
}

// behindDeliveries sends the deliveries of the acts' IDs, and returns the acts that may follow
// them.
func (l *Remote) behindDeliveries(ctx context.Context, all []*weir.Act) []*weir.Act {
	return slices.DeleteFunc(slices.Clone(all), func(a *weir.Act) bool {
		own := l.deliveries.find(a)
		if own == nil {
			return false
		}
		first := copyOf(own.act)
		l.takeAndRecover(ctx, []*weir.Act{first})
		_ = l.delivered([]*delivery{own}, []*weir.Act{first})
		if first.Err == nil || l.deliveries.find(a) == nil || errors.Is(first.Err, weir.ErrUnknownID) && !endsTake(a) {
			return false
		}
		if a.Err = first.Err; endsTake(a) {
			l.end(a, first.Err)
		}
		return true
	})
}
