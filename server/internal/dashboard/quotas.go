package dashboard

import (
	"strings"

	"github.com/weirlimit/weir/server/internal/rlqs"
)

// maxLeases bounds the leases that a page lists.
const maxLeases = 100

// A leaseState is what one Envoy may spend of a limit.
type leaseState struct {
	Client string `json:"client"`
	Domain string `json:"domain"`
	Label  string `json:"label"` // of the bucket
	Rule   string `json:"rule,omitempty"`
	Units  int64  `json:"units"`
	// Spendable is what Envoy may still spend, at worst.
	Spendable int64 `json:"spendable"`
	// Demand is in requests a second; -1: not known yet.
	Demand   float64 `json:"demand"`
	Reported int64   `json:"reported_ms"` // age of the last report
	// Pending says that the lease is on its way.
	Pending bool `json:"pending,omitempty"`
}

// leases returns the leases of Envoys, and how many are not shown.
func (d *Dashboard) leases() (all []leaseState, left int) {
	all = []leaseState{}
	if d.Leases == nil {
		return all, 0
	}
	held := d.Leases()
	for i := range held[:min(len(held), maxLeases)] {
		l := &held[i]
		all = append(all, leaseState{
			Client: l.Client, Domain: l.Domain, Label: bucketLabel(l), Rule: l.Rule, Units: l.Units, Spendable: l.Spendable, Demand: l.Demand,
			Reported: l.Reported.Milliseconds(), Pending: !l.Acknowledged,
		})
	}
	return all, len(held) - len(all)
}

// bucketLabel is a bucket id for people.
func bucketLabel(l *rlqs.Lease) string {
	var texts []string
	for _, e := range l.ID {
		texts = append(texts, e.Key+"="+e.Value)
	}
	return strings.Join(texts, ", ")
}
