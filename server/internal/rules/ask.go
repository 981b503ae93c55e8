package rules

import (
	"math"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

// An Ask is what one descriptor asks for itself, whatever its request asks.
type Ask struct {
	// Cost is how many units to charge; 0 looks. Plan does not bound it: whoever
	// asks knows what to say about a cost that no limit takes.
	Cost int64
	// Refund gives the units back. Each limit is an act of its own then, and
	// lacks the instant to give back to.
	Refund bool
	// Override, if not nil, holds instead of the rules of the domain.
	Override *Rule
}

// Override makes a rule of a limit that comes with a request: count units in
// windows of so many of the unit, counted as rules that name no algorithm are.
// With one unit it continues the count of such a rule for the same entries. The
// error is a [*weir.InvalidError].
func Override(count int64, unit string, multiplier uint32) (*Rule, error) {
	limit, err := config.Window(count, unit, multiplier)
	if err != nil {
		return nil, err
	}
	compiled, err := limit.Compile()
	if err != nil {
		return nil, err
	}
	r := &Rule{
		Limits: []*weir.Limit{compiled}, OnStoreFailure: []config.StoreFailure{config.FailError}, Lease: []bool{false},
		Unit: unit, names: []string{""}, suffixes: []string{";" + unit},
	}
	if multiplier != 1 {
		r.suffixes[0] += "*" + strconv.FormatUint(uint64(multiplier), 10)
	}
	r.counter = widest(compiled)
	return r, nil
}

// Counter is the rule's limit as wide as limits get, nil for rules that name an
// algorithm. A look through it tells how much was counted, also beyond the rule's
// own count: its own count less what remains.
func (r *Rule) Counter() *weir.Limit { return r.counter }

// widest is a window with the largest count there is.
func widest(window *weir.Limit) *weir.Limit {
	wide := *window
	wide.Count = math.MaxUint32
	return wide.MustCompile()
}

// ask returns what a descriptor asks.
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

// kind is what the act of a descriptor does, where its request does something.
func (a *Ask) kind(request weir.Kind) weir.Kind {
	if a.Refund {
		return weir.KindRefund
	}
	return request
}
