package redisstore

import "github.com/weirlimit/weir"

// clusterLanes is how many shares of the slots there are: neighbours are mostly on one
// node, so that a lane's calls go to one or two.
const clusterLanes = 16

// Lane returns the lane of an act, see package coalesce. One server has one lane, since
// it decides one call after the other anyway, and what waits meanwhile makes the next
// one larger and so cheaper for each act. Elsewhere acts whose first charges have one
// slot share a lane.
func (s *Store) Lane(a *weir.Act) int {
	if s.placed == nil || len(a.Charges) == 0 {
		return 0
	}
	return int(s.place(&a.Charges[0]) % clusterSlots * clusterLanes / clusterSlots)
}
