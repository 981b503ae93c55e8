package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

func (r *Request) check() error {
	if r.Domain == "" {
		return &weir.InvalidError{Field: "domain", Value: `""`, Want: "a domain's name"}
	}
	if len(r.Descriptors) > 0 || len(r.Calls) == 0 {
		if err := r.Bounds.CheckDescriptors(len(r.Descriptors)); err != nil {
			return err
		}
	}
	if r.Each != nil && len(r.Each) != len(r.Descriptors) {
		return invalid("each", len(r.Each), "one for each descriptor")
	}
	if r.Cost < 0 || r.Cost > algo.MaxCount {
		return invalid("cost", r.Cost, fmt.Sprintf("0 … %d", weir.MaxCost))
	}
	if r.UpTo != 0 && len(r.Descriptors) > 0 && (r.Cost == 0 || r.UpTo < r.Cost || r.UpTo > weir.MaxCost) {
		return invalid("up_to", r.UpTo, fmt.Sprintf("the cost … %d, with a cost of at least 1", weir.MaxCost))
	}
	if err := r.checkID(); err != nil {
		return err
	}
	if err := r.checkCalls(); err != nil {
		return err
	}
	for i, entries := range r.Descriptors {
		if err := checkEntries(i, entries); err != nil {
			return err
		}
	}
	return nil
}

// checkID checks the id, which the acts' own are made of.
func (r *Request) checkID() error {
	switch {
	case len(r.ID) > weir.MaxIDBytes:
		return invalid("id", fmt.Sprintf("%d bytes", len(r.ID)), fmt.Sprintf("at most %d bytes", weir.MaxIDBytes))
	case r.ID == "" && (r.Kind == acts.KindRefund && len(r.Descriptors) > 0 || r.Kind == acts.KindSettle || r.Kind == acts.KindRelease || r.Kind == acts.KindRenew):
		return invalid("id", "missing", "the id of the take to "+r.Kind.String())
	case r.Dry && (r.ID != "" || r.Hold > 0 || r.MaxWait > 0 || r.UpTo > 0 || r.Kind != acts.KindTake):
		return invalid("dry", true, "false: only a take that charges all of its cost at once, without an id, can be tried")
	case r.ID != "" && (r.Kind == acts.KindReset || r.Kind == acts.KindRecord):
		return invalid("id", strconv.Quote(r.ID), "none: "+r.Kind.String()+" has no id")
	}
	return nil
}

func invalid(field string, value any, want string) error {
	return &weir.InvalidError{Field: field, Value: fmt.Sprint(value), Want: want}
}

// check has every act of the plan checked before the first of them is taken, so
// that a mistake in one leaves all uncharged.
func (b *builder) check() error {
	if b.req.Each != nil {
		// The front end answers for each descriptor by itself.
		return nil
	}
	acts.Check(b.plan.Acts...)
	for _, act := range b.plan.Acts {
		if act.Err != nil && !b.onTrial(act) {
			return b.blame(act)
		}
	}
	return nil
}

// onTrial reports whether an act is that of a trial, which must not make the request
// invalid.
func (b *builder) onTrial(act *weir.Act) bool {
	return slices.ContainsFunc(b.plan.Applied, func(a Applied) bool { return a.Act == act && a.Rule.OnTrial })
}

// blame names the field of the request that makes an act invalid.
func (b *builder) blame(act *weir.Act) error {
	var e *weir.InvalidError
	if !errors.As(act.Err, &e) {
		return act.Err
	}
	if e.List != "charges" {
		return e
	}
	for i := range b.plan.Applied {
		if a := &b.plan.Applied[i]; a.Act == act && a.Charge == e.Index {
			switch {
			case e.Field == "up_to", a.Call == nil && e.Field == "cost":
				return invalid(e.Field, e.Value, e.Want)
			case a.Call != nil:
				return callMistake(a.Descriptor, e.Field, e.Value, e.Want)
			}
			value, want := e.Value, e.Want
			if e.Field == "keep" {
				value, want = "of a rule with keep "+value, strings.Replace(want, "none", "one without keep", 1)
			}
			return invalid(fmt.Sprintf("descriptors[%d]", a.Descriptor), value, want)
		}
	}
	return e
}
