package rules

import (
	"math"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/config"
)

// An Ask is the operation of one descriptor, in place of its request's.
type Ask struct {
	// Cost is the number of units to charge; 0 peeks. Plan does not bound it: the front
	// end answers for a cost that no limit accepts.
	Cost int64
	// Refund refunds the units. Each limit is then an act of its own.
	Refund bool
	// Record charges the units even if they do not fit. Each limit is then an act of its
	// own.
	Record bool
	// Anonymous is for clients that cannot name the take that they refund: see
	// [weir.Act]. A concurrency limit is then an act of its own.
	Anonymous bool
	// Override, if not nil, replaces the rules of the domain.
	Override *Rule
}

// Override returns the rule of a limit that comes with a request: count units in multiplier
// times the unit. Without an algorithm, it is counted in windows like rules that name none, and
// with one unit it continues the count of such a rule for the same entries. With one, it belongs to the
// act of the rules that name one. The error is a [*weir.InvalidError].
func Override(count int64, unit string, multiplier uint32, algorithm *weir.Algorithm) (*Rule, error) {
	limit, err := config.Window(count, unit, multiplier)
	if err != nil {
		return nil, err
	}
	suffix := ";"
	if algorithm != nil {
		limit = weir.Limit{Algorithm: *algorithm, Count: limit.Count, Period: limit.Period}
		suffix += algorithm.String() + "/"
	}
	compiled, err := limit.Compile()
	if err != nil {
		return nil, err
	}
	l := &Limit{Limit: compiled, OnStoreFailure: config.FailError, suffix: suffix + unit}
	if multiplier != 1 {
		l.suffix += "*" + strconv.FormatUint(uint64(multiplier), 10)
	}
	r := &Rule{Limits: []*Limit{l}, all: []*Limit{l}, Unit: unit}
	if r.Grouped = algorithm != nil; !r.Grouped {
		r.counter = widest(compiled)
	}
	return r, nil
}

// Counter returns the rule's limit with the largest count there is; nil for rules that
// name an algorithm. A peek at it shows how much was counted, even beyond the rule's own
// count: its count less the remaining units.
func (r *Rule) Counter() *weir.Limit { return r.counter }

// widest is a window with the largest count there is.
func widest(window *weir.Limit) *weir.Limit {
	wide := *window
	wide.Count = math.MaxUint32
	return wide.MustCompile()
}

// ask returns the operation of a descriptor.
func (r *Request) ask(descriptor int) Ask {
	if r.Each == nil {
		return Ask{Cost: r.Cost}
	}
	return r.Each[descriptor]
}

// rule returns the rule for a descriptor, or nil: the one that it brings along,
// or the one that the domain has for it.
func (d *domain) rule(entries []Entry, ask *Ask, p *path) *Rule {
	if ask.Override != nil && len(entries) > 0 {
		return ask.Override
	}
	return d.match(entries, p)
}

// kind returns the kind of a descriptor's act, given the operation of its request.
func (a *Ask) kind(request weir.Kind) weir.Kind {
	switch {
	case a.Refund:
		return acts.KindRefund
	case a.Record:
		return acts.KindRecord
	}
	return request
}
