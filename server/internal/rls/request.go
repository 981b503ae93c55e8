package rls

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A Request is what Envoy asks.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	// HitsAddend is how many units each descriptor is charged that says nothing
	// else; 0 is 1.
	HitsAddend uint32
}

// A Descriptor is one thing to be limited.
type Descriptor struct {
	Entries []rules.Entry
	// Limit, if not nil, holds instead of the rules.
	Limit *Override
	// HitsAddend, if not nil, is how many units to charge; 0 looks.
	HitsAddend *uint64
	// Refund gives the units back instead.
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

// An Override is a limit that a descriptor brings along.
type Override struct {
	Requests uint32
	Unit     Unit
	// Multiplier is how many units a window is long.
	Multiplier uint32
}

// read checks a request and puts it as the rules want it.
func (s *Service) read(req *Request, asked *rules.Request) error {
	asked.Domain, asked.Bounds = req.Domain, s.options.Bounds
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		asked.Descriptors[i] = d.Entries
		cost := uint64(max(1, req.HitsAddend))
		if d.HitsAddend != nil {
			cost = *d.HitsAddend
		}
		asked.Each[i] = rules.Ask{Cost: int64(min(cost, math.MaxInt64)), Refund: d.Refund && cost > 0}
		if d.Limit == nil {
			continue
		}
		rule, err := s.overrides.rule(*d.Limit)
		if err != nil {
			return within(fmt.Sprintf("descriptors[%d].limit.", i), err)
		}
		asked.Each[i].Override = rule
	}
	return nil
}

// prepare fits the acts to what this service promises.
func prepare(asked *rules.Request, plan *rules.Plan) error {
	for i := range plan.Applied {
		a := &plan.Applied[i]
		if a.Act == nil {
			continue
		}
		a.Act.Immediate = a.Act.Kind == weir.KindTake
		ask := &asked.Each[a.Descriptor]
		if err := checkHits(a, ask); err != nil && !a.Rule.OnTrial {
			return err
		}
		if ask.Cost > mostHits(a.Limit) {
			// What can never be granted is over its limit without being asked for.
			a.Act.Charges[a.Charge].Cost = 0
		}
	}
	for i := range plan.Applied {
		if a := &plan.Applied[i]; looks(a) && a.Rule.Counter() != nil {
			a.Act.Charges[a.Charge].Limit = a.Rule.Counter()
		}
	}
	return nil
}

// checkHits refuses what only the limit can tell is wrong.
func checkHits(a *rules.Applied, ask *rules.Ask) error {
	field := "descriptors[" + strconv.Itoa(a.Descriptor) + "].hits_addend"
	switch {
	case a.Limit.Algorithm == weir.Concurrency && ask.Cost > 0:
		return invalid(field, strconv.FormatInt(ask.Cost, 10),
			"0: the limit "+strconv.Quote(a.Limit.Name)+" counts holders, and nobody could give a place back here")
	case ask.Refund && ask.Cost > mostHits(a.Limit):
		return invalid(field, strconv.FormatInt(ask.Cost, 10), fmt.Sprintf("at most %d to give back", mostHits(a.Limit)))
	}
	return nil
}

// mostHits is the largest cost that a limit takes.
func mostHits(l *weir.Limit) int64 {
	if l.ChargeRefused && l.Algorithm == weir.FixedWindow {
		return weir.MaxCount
	}
	return weir.MaxCost
}

// looks reports whether an applied limit is asked without being charged.
func looks(a *rules.Applied) bool {
	return a.Act != nil && a.Act.Kind == weir.KindTake && a.Act.Charges[a.Charge].Cost == 0
}

func invalid(field, value, want string) error {
	return &weir.InvalidError{Field: field, Value: value, Want: want}
}

// within puts what comes before the field into an error that names one.
func within(prefix string, err error) error {
	if e := new(weir.InvalidError); errors.As(err, &e) {
		return invalid(prefix+e.Field, e.Value, e.Want)
	}
	return err
}

func isInvalid(err error) bool { return errors.Is(err, weir.ErrInvalid) }
