package ledger

import (
	"crypto/rand"
	"time"
)

const (
	// refusedTime is how often the numbers of refused requests are written, and maxRefused of how
	// many rows they are between two of these times. Further ones are of the row of all others.
	refusedTime = 10 * time.Second
	maxRefused  = 4096
)

// A refusedRow is the row of a month to which refused requests are added.
type refusedRow struct{ month, row string }

// CountRefused counts a request that a limit refused, at an instant by the clock of the store. It
// costs one entry in memory: all of a person, a team and a model are written together.
func (l *Ledger) CountRefused(at time.Time, user, team, model string) {
	s := &Settlement{At: at, User: user, Team: team, Model: model}
	name := refusedRow{at.In(l.Zone).Format(monthForm), rowOf(user, team, model)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused[name] == nil && len(l.refused) >= maxRefused {
		name.row = otherRow
		s.User, s.Team, s.Model = otherName, otherName, otherName
	}
	if l.refused[name] == nil {
		l.refused[name] = s
	}
	l.refused[name].Used.Refused++
}

// gatherRefused lets the numbers of refused requests wait with the settlements, if there is room.
func (l *Ledger) gatherRefused() {
	l.mu.Lock()
	all := l.refused
	if len(l.waiting)+len(all) > maxWaiting {
		all = nil
	} else {
		l.refused = map[refusedRow]*Settlement{}
	}
	l.mu.Unlock()
	for _, s := range all {
		s.ID = "refused/" + rand.Text()
		l.enter(eventRefused, s)
	}
}
