package callers

import (
	"strings"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Verbs are a set of things that callers do.
type Verbs uint8

// The verbs.
const (
	// Take charges units, holds and reserves.
	Take Verbs = 1 << iota
	// Refund refunds units.
	Refund
	// Settle corrects a hold to its real cost.
	Settle
	// Release ends or renews a hold or a slot of a concurrency limit.
	Release
	// Peek asks without charging.
	Peek
	// AdminRead reads the administrators' interface.
	AdminRead
	// AdminChange changes keys there.
	AdminChange
)

// everything is all verbs.
const everything = AdminChange<<1 - 1

// verbNames are as in files of callers, in the order of the verbs.
var verbNames = [...]string{"take", "refund", "settle", "release", "peek", "admin-read", "admin-change"}

// String returns the names with commas between them.
func (v Verbs) String() string {
	var names []string
	for i, name := range verbNames {
		if v&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// verbsOf returns the verbs of a request.
func verbsOf(r *rules.Request) Verbs {
	switch r.Kind {
	case acts.KindRefund, acts.KindReset:
		return Refund // a reset refunds everything
	case acts.KindRecord:
		if len(r.Calls) > 0 {
			return Take
		}
		return Settle
	case acts.KindSettle:
		return Settle
	case acts.KindRelease, acts.KindRenew:
		return Release
	}
	switch {
	case r.Each != nil:
	case r.Charges() && !r.Dry:
		return Take
	default:
		return Peek
	}
	var all Verbs
	for i := range r.Each {
		all |= taking(&r.Each[i])
	}
	return all
}

func taking(a *rules.Ask) Verbs {
	switch {
	case a.Refund:
		return Refund
	case a.Record:
		return Settle
	case a.Cost == 0:
		return Peek
	}
	return Take
}
