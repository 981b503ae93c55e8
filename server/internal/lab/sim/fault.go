package sim

import (
	"fmt"
	"strings"
	"time"
)

// A FaultKind is a kind of fault of the store.
type FaultKind uint8

const (
	// Outage: the store sends no replies for the fault's Length.
	Outage FaultKind = iota
	// Failover: a replica takes over that lacks the writes of the Length before.
	Failover
)

// A Policy decides during a store outage.
type Policy uint8

const (
	// LocalShare decides with the instance's local share of the limit, in its
	// memory. The zero value, as in rules files.
	LocalShare Policy = iota
	// AllowAll grants everything.
	AllowAll
	// DenyAll refuses everything.
	DenyAll
)

var policyNames = []string{"local", "allow", "deny"}

// A Fault is something that happens to the store.
type Fault struct {
	Kind FaultKind
	// At is when, from the start of the scenario on.
	At time.Duration
	// Length is how long an outage lasts, or how much a failover forgets.
	Length time.Duration
	// Policy decides during an outage.
	Policy Policy
}

const faultForm = `a fault such as "outage 30s+10s allow" (or deny, local) or "failover 60s-5s"`

// ParseFault reads the text form of a fault: "outage AT+LENGTH [allow|deny|local]"
// or "failover AT-LOST". The error is a [*weir.InvalidError].
func ParseFault(text string) (Fault, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return Fault{}, invalid("fault", fmt.Sprintf("%q", text), faultForm)
	}
	f, sign := Fault{Kind: Outage}, "+"
	if words[0] == "failover" {
		f.Kind, sign = Failover, "-"
	}
	at, length, cut := strings.Cut(words[1], sign)
	known := words[0] == "outage" && len(words) <= 3 || words[0] == "failover" && len(words) == 2
	var err error
	if f.At, err = time.ParseDuration(at); err == nil {
		f.Length, err = time.ParseDuration(length)
	}
	if err != nil || !cut || !known {
		return Fault{}, invalid("fault", fmt.Sprintf("%q", text), faultForm)
	}
	if len(words) == 3 {
		policy, err := named("fault", words[2], policyNames)
		if err != nil {
			return Fault{}, err
		}
		f.Policy = Policy(policy)
	}
	return f, nil
}

// String returns the text form, which [ParseFault] reads back.
func (f Fault) String() string {
	if f.Kind == Failover {
		return fmt.Sprintf("failover %v-%v", f.At, f.Length)
	}
	return fmt.Sprintf("outage %v+%v %s", f.At, f.Length, policyNames[f.Policy])
}

// span is when the store misses writes: during an outage, or before a failover.
func (f *Fault) span() (start, end time.Duration) {
	if f.Kind == Failover {
		return f.At - f.Length, f.At
	}
	return f.At, f.At + f.Length
}

// checkFaults demands that one fault is over before the next begins.
func checkFaults(faults []Fault, duration time.Duration) error {
	over := time.Duration(0)
	for _, f := range faults {
		start, end := f.span()
		if f.Length < 0 || start < over || end > duration || end < start {
			return invalid("fault", f, fmt.Sprintf("one within the %v that begins when the one before is over", duration))
		}
		over = end
	}
	return nil
}
