package redisengine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/deadline"
)

const (
	// maxTries is how often a part is sent to a hash slot that is moving. It waits for
	// firstWait before the second try, and twice as long each time.
	maxTries  = 5
	firstWait = time.Millisecond
)

// takeSlots decides acts whose keys may lie in several hash slots, in rounds. In each
// round all parts that are due are sent, in one script call for each slot and one
// pipeline for each node. A slot decides the acts in their order.
func (s *Store) takeSlots(ctx context.Context, all []*weir.Act) {
	jobs := make([]*job, 0, len(all))
	for _, a := range all {
		if !acts.Prepare(a) {
			jobs = append(jobs, s.newJob(a))
		}
	}
	for wait := time.Duration(0); ; {
		loads := s.round(jobs)
		if len(loads) == 0 {
			break
		}
		_ = deadline.Sleep(ctx, wait)
		wait = s.exchange(ctx, loads)
		for _, j := range jobs {
			j.advance()
		}
	}
	var left []*part
	for _, j := range jobs {
		left = append(left, j.failed...)
		if j.fills {
			acts.FillRest(j.Act)
		}
	}
	if len(left) > 0 {
		// The goroutine ends within the store's timeout.
		go s.clear(context.WithoutCancel(ctx), left)
	}
}

// round puts all parts that are due into loads, each behind the earlier ones of its slot.
func (s *Store) round(jobs []*job) []*load {
	var loads []*load
	open, held := make(map[uint32]*load), make(map[uint32]bool)
	for _, j := range jobs {
		for _, p := range j.due() {
			if p.answered || held[p.slot] {
				continue
			}
			l := open[p.slot]
			apart := p.tries > 0
			if fresh := l == nil || apart || !l.fits(p.Act); fresh && l != nil && l.calendars() {
				// That load may have to be sent again, before this part.
				held[p.slot] = true
				continue
			} else if fresh {
				earlier := l
				l = s.newLoad()
				if loads, open[p.slot] = append(loads, l), l; earlier != nil {
					// A node that knows only the later load's script would run that first.
					earlier.plain, l.plain = false, false
				}
			}
			l.add(p)
			if apart {
				delete(open, p.slot)
			}
		}
		for _, p := range j.later() {
			held[p.slot] = true
		}
	}
	return loads
}

// exchange sends loads and distributes the answers. It returns how long to wait before the
// next round.
func (s *Store) exchange(ctx context.Context, loads []*load) (wait time.Duration) {
	if ctx.Err() == nil {
		s.sendAll(ctx, loads)
	}
	for _, l := range loads {
		switch {
		case ctx.Err() != nil && !l.sent:
			l.fail(fmt.Errorf("%w: %w", weir.ErrNotApplied, context.Cause(ctx)))
		case l.err == nil:
			s.arrive(l)
		case moving(l.err) && l.parts[0].tries < maxTries:
			wait = max(wait, l.again())
		default:
			l.fail(l.err)
		}
	}
	return wait
}

// clear retries amendments that failed, for as long as a call may last.
func (s *Store) clear(ctx context.Context, parts []*part) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for wait := firstWait; len(parts) > 0 && ctx.Err() == nil; wait *= 2 {
		loads := make([]*load, len(parts))
		for i, p := range parts {
			loads[i] = s.newLoad()
			loads[i].add(p)
		}
		s.exchange(ctx, loads)
		parts = slices.DeleteFunc(parts, func(p *part) bool { return p.answered && p.Err == nil })
		_ = deadline.Sleep(ctx, wait)
	}
}
