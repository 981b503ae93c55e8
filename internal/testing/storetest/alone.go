package storetest

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// Alone is a Taker as a store on other machines: one node with one lane, which is probed by
// an act.
type Alone struct{ weir.Taker }

// Locate names the node.
func (Alone) Locate(*weir.Act) (node string, lane int, alone bool) { return "", 0, true }

// Nodes names the node.
func (Alone) Nodes(*weir.Act) []string { return []string{""} }

var probeLimit = weir.Limit{Algorithm: weir.FixedWindow, Count: 1_000_000, Period: time.Second}.MustCompile()

// ProbeKey is the key that probes charge.
const ProbeKey = "probe"

// Probe has the Taker decide an act.
func (a Alone) Probe(ctx context.Context, _ string) error {
	probe := NewAct(weir.Charge{Key: ProbeKey, Limit: probeLimit, Cost: 1})
	a.Take(ctx, []*weir.Act{probe})
	return probe.Err
}

// Keeps reports that replies to calls that have ended are lost.
func (Alone) Keeps() bool { return false }
