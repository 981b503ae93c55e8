package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir/internal/acts"
)

// Bounds of what is judged as one sequence: the judge's work grows with the acts of
// a key, and much faster with those whose outcome is unknown.
const (
	chainOps      = 300
	chainUnknowns = 4
	chainTimeout  = 20 * time.Second
)

// A link names the key that is in use for a subject whose keys are judged as a
// sequence, and takes a new one before a key has seen too much.
type link struct {
	mu                     sync.Mutex
	number, asked, unknown int
}

func (l *link) key(s *subject) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked++; l.asked > chainOps || l.unknown > chainUnknowns {
		l.number, l.asked, l.unknown = l.number+1, 0, 0
	}
	return fmt.Sprint(s.name, "/", l.number)
}

func (l *link) note(o *op) {
	if o.outcome == unknown {
		l.mu.Lock()
		l.unknown++
		l.mu.Unlock()
	}
}

// chains: the answers of a key are those of some sequence of its acts, one at a
// time, each between its call and its answer. The judge is porcupine.
func chains(_ context.Context, w *world) error {
	for key, ops := range w.history.byKey(func(o *op) bool { return o.subject.how == chain || o.subject.how == rope }) {
		model := windowModel
		if ops[0].subject.how == rope {
			model = drainModel
		}
		var history []porcupine.Operation
		for i := range ops {
			o := &ops[i]
			if o.outcome == unapplied || o.outcome == unknown && o.id != "" || o.outcome == failed {
				continue // it did nothing, or the oracle of repeats speaks of it
			}
			history = append(history, porcupine.Operation{
				ClientId: len(history), Input: o, Output: o, Call: o.call, Return: o.ret,
			})
		}
		if w.history.losses > 0 || w.history.clock && ops[0].subject.how == rope {
			continue // there is no one sequence then
		}
		switch porcupine.CheckOperationsTimeout(model, history, chainTimeout) {
		case porcupine.Illegal:
			return fmt.Errorf("%s: %d acts have no order in which their answers are right", key, len(history))
		case porcupine.Unknown:
			return fmt.Errorf("%s: no verdict on %d acts within %v", key, len(history), chainTimeout)
		}
	}
	return nil
}

// windowModel is a window that does not end: its state is how much of it is used. An
// act with an unknown outcome ran or did not.
var windowModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{int64(0)} },
	Step: func(state, input, _ any) []any {
		o, used := input.(*op), state.(int64)
		most := o.subject.limit.Count
		after := used
		switch {
		case o.kind == acts.KindReset:
			after = 0
		case used+o.cost <= most:
			after = used + o.cost
		}
		switch {
		case o.outcome == unknown:
			return []any{used, after}
		case o.kind == acts.KindReset:
			return []any{after}
		case (o.outcome == granted) != (used+o.cost <= most) || o.Remaining != max(0, most-after):
			return nil
		}
		return []any{after}
	},
}).ToModel()

// A level is the state of a bucket that drains: units × period, at an instant.
type level struct{ units, at int64 }

// drainModel is gcra, by the instants at which the store decided.
var drainModel = porcupine.Model{
	Init: func() any { return level{} },
	Step: func(state, input, _ any) (bool, any) {
		o, l := input.(*op), state.(level)
		rule, period := o.subject.limit, o.subject.limit.Period.Microseconds()
		if o.at() < l.at {
			return false, l
		}
		l = level{max(0, l.units-(o.at()-l.at)*rule.Count), o.at()}
		fits := l.units+o.cost*period <= rule.Burst*period
		if fits {
			l.units += o.cost * period
		}
		return fits == (o.outcome == granted) && o.Remaining == rule.Burst-(l.units+period-1)/period, l
	},
}
