package redisstore

import (
	"hash/maphash"

	"github.com/weirlimit/weir"
)

const (
	// lanes is how many script calls are worth having under way in one server: while it
	// runs one, the other is written and read.
	lanes = 2
	// clusterLanes is how many shares of the slots there are: neighbours are mostly on
	// one node, so that a lane's calls go to one or two.
	clusterLanes = 16
)

var laneSeed = maphash.MakeSeed()

// Lane returns the lane of an act, see package coalesce: acts whose first charges
// have one slot, or one key where they have no slot, share a lane.
func (s *Store) Lane(a *weir.Act) int {
	if len(a.Charges) == 0 {
		return 0
	}
	if s.placed != nil {
		return int(s.place(&a.Charges[0]) % clusterSlots * clusterLanes / clusterSlots)
	}
	return int(maphash.String(laneSeed, slotOf(&a.Charges[0])) % lanes)
}
