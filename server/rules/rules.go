// Package rules turns what a caller asks, a domain and descriptors, into the
// acts that decide it. A [Set] is immutable: a reload builds another and swaps
// one pointer.
package rules

import "github.com/weirlimit/weir"

// An Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// A Request is what a front-end was asked, whatever its protocol.
type Request struct {
	Domain      string
	Descriptors [][]Entry
	Cost        int64 // units a charge; 0 looks
	UpTo        int64 // best effort up to so many units; 0: all or nothing
}

// A Rule is one entry of the rules file with limits.
type Rule struct {
	// Path is where the rule stands: "shop/user=premium-*".
	Path string
	// Name is the rule's name in the file, or empty.
	Name string
	// Limits are the rule's limits, compiled; each has a Name of its own.
	Limits []*weir.Limit
	// Grouped rules name an algorithm: the limits of all grouped rules that a
	// request matches are one act. Others are decided one by one.
	Grouped bool
	// Shadow rules are decided and charged, but never refuse.
	Shadow bool
	// Unlimited rules grant everything without asking the store.
	Unlimited bool
}

// An Applied limit is one limit that a request matched, and where its answer
// will stand.
type Applied struct {
	Descriptor int // index into Request.Descriptors
	Rule       *Rule
	Limit      *weir.Limit // nil where the rule is unlimited
	Act        *weir.Act   // nil where the rule is unlimited
	Charge     int         // index into Act.Charges and Act.Decisions
}

// Decision returns the answer, once the acts of the plan were taken: a refusal
// of a shadow rule has become a grant with the source shadow.
func (a *Applied) Decision() weir.Decision {
	d := a.Act.Decisions[a.Charge]
	if a.Rule.Shadow && d.Outcome != weir.Granted {
		d.Outcome, d.Source, d.RetryAfter = weir.Granted, weir.SourceShadow, 0
	}
	return d
}

// A Plan is a request turned into acts.
type Plan struct {
	// Acts are to be taken together, in this order.
	Acts []*weir.Act
	// Applied has one element for each limit that matched, in the order of the
	// descriptors and, within one, of the rule's limits.
	Applied []Applied
}
