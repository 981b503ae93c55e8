package rls

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A Request is a request of Envoy.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	// HitsAddend is the number of units that descriptors without one are charged; 0 is 1.
	HitsAddend uint32
}

// A Descriptor is one thing to be limited.
type Descriptor struct {
	Entries []rules.Entry
	// Limit, if not nil, replaces the rules.
	Limit *Override
	// HitsAddend, if not nil, is the number of units to charge; 0 peeks.
	HitsAddend *uint64
	// Refund refunds the units instead.
	Refund bool
}

// Unit is a unit of time, numbered as in Envoy's answers.
type Unit int32

// The units. A month has 30 days, a year 365.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Month
	Year
	Week
	units
)

var unitNames = [units]string{"", "second", "minute", "hour", "day", "month", "year", "week"}

// An Override is a limit that comes with a descriptor.
type Override struct {
	Requests uint32
	Unit     Unit
	// Multiplier is the length of a window in units.
	Multiplier uint32
}

// read translates a request for the rules, as a whole. The error is about the first limit that
// cannot be read.
func (s *Service) read(set *rules.Set, req *Request, asked *rules.Request) (invalid error) {
	asked.Domain, asked.Bounds = req.Domain, s.options.Bounds
	algorithm := set.OverrideAlgorithm(req.Domain)
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		entries, settles := withoutSettle(d.Entries)
		asked.Descriptors[i] = entries
		cost := uint64(max(1, req.HitsAddend))
		if d.HitsAddend != nil {
			cost = *d.HitsAddend
		}
		asked.Each[i] = rules.Ask{
			Cost: int64(min(cost, math.MaxInt64)), Anonymous: true,
			Refund: d.Refund && cost > 0, Record: settles && !d.Refund && cost > 0,
		}
		if d.Limit == nil {
			continue
		}
		rule, err := s.overrides.rule(*d.Limit, algorithm)
		if err != nil && invalid == nil {
			invalid = within(fmt.Sprintf("descriptors[%d].limit.", i), err)
		}
		asked.Each[i].Override = rule
	}
	return invalid
}

// settle is the last entry of descriptors that settle an estimate: their hits count even if
// they exceed the limit, under the rule for the entries before it.
var settle = rules.Entry{Key: "weir", Value: "settle"}

// withoutSettle returns the entries that rules are for, and whether they are settled.
func withoutSettle(entries []rules.Entry) ([]rules.Entry, bool) {
	if n := len(entries); n > 1 && entries[n-1] == settle {
		return entries[:n-1], true
	}
	return entries, false
}

// prepare fits the acts of a plan to Envoy's semantics.
func prepare(asked *rules.Request, plan *rules.Plan) error {
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act == nil {
			continue
		}
		a.Act.Immediate = a.Act.Kind == acts.KindTake
		ask := &asked.Each[a.Descriptor]
		if err := checkHits(a, ask); err != nil && !a.Rule.OnTrial {
			return err
		}
		if most := mostHits(a.Limit); ask.Cost > most && ask.Record {
			a.Act.Charges[a.Charge].Cost = most
		} else if ask.Cost > most {
			// A cost that can never be granted is over its limit without asking the
			// store.
			a.Act.Charges[a.Charge].Cost = 0
		}
	}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; peeks(a) && a.Rule.Counter() != nil {
			a.Act.Charges[a.Charge].Limit = a.Rule.Counter()
		}
	}
	return nil
}

// checkHits refuses costs that this limit cannot take.
func checkHits(a *rules.Applied, ask *rules.Ask) error {
	var field, value, want string
	switch {
	case ask.Record && algo.TraitsOf(a.Limit.Algorithm).HoldsSlots:
		field, value = "entries", "weir=settle"
		want = "another last entry: the limit " + strconv.Quote(a.Limit.Name) + " has slots, which are not settled"
	case ask.Refund && ask.Cost > mostHits(a.Limit):
		want = fmt.Sprintf("at most %d to refund", mostHits(a.Limit))
	default:
		return nil
	}
	return invalid("descriptors["+strconv.Itoa(a.Descriptor)+"]."+cmp.Or(field, "hits_addend"), cmp.Or(value, strconv.FormatInt(ask.Cost, 10)), want)
}

// mostHits is the largest cost that a limit takes.
func mostHits(l *weir.Limit) int64 {
	switch traits := algo.TraitsOf(l.Algorithm); {
	case traits.HoldsSlots:
		return algo.MaxSlots
	case l.ChargeRefused && traits.Reports:
		return algo.MaxCount
	}
	return weir.MaxCost
}

// peeks reports whether an applied limit is evaluated without being charged.
func peeks(a *rules.Applied) bool {
	return a.Act != nil && a.Act.Kind == acts.KindTake && a.Act.Charges[a.Charge].Cost == 0
}

func invalid(field, value, want string) error {
	return &weir.InvalidError{Field: field, Value: value, Want: want}
}

// within prefixes the field of an error.
func within(prefix string, err error) error {
	if e := new(weir.InvalidError); errors.As(err, &e) {
		return &weir.InvalidError{Field: prefix + e.Path(), Value: e.Value, Want: e.Want, Default: e.Default}
	}
	return err
}

func isInvalid(err error) bool { return errors.Is(err, weir.ErrInvalid) }

// maxOverrides bounds the cache. Most callers send few limits; a caller that sends many
// pays for compiling them.
const maxOverrides = 1024

// overrides caches the compiled limits that came with descriptors. The zero value is
// ready for use.
type overrides struct {
	mu    sync.RWMutex
	rules map[countedBy]*rules.Rule
}

// A countedBy is an override, and how it counts: the number of the algorithm, or -1 for
// envoyproxy/ratelimit's window.
type countedBy struct {
	Override
	algorithm int
}

// rule returns the rule of an override that is counted by the algorithm.
func (c *overrides) rule(o Override, algorithm *weir.Algorithm) (*rules.Rule, error) {
	by := countedBy{o, -1}
	if algorithm != nil {
		by.algorithm = int(*algorithm)
	}
	c.mu.RLock()
	rule := c.rules[by]
	c.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	if o.Unit < Second || o.Unit >= units {
		return nil, invalid("unit", strconv.Itoa(int(o.Unit)), "1 … 7: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or WEEK")
	}
	rule, err := rules.Override(int64(o.Requests), unitNames[o.Unit], o.Multiplier, algorithm)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == nil || len(c.rules) >= maxOverrides {
		c.rules = make(map[countedBy]*rules.Rule)
	}
	c.rules[by] = rule
	return rule, nil
}
