package storetest

import "github.com/weirlimit/weir"

// A Judge decides by the definition of a limit, exactly and slowly. It is for one key, for costs that are all or nothing, and
// for instants that do not go back.
type Judge struct {
	limit *weir.Limit
	model Model
}

// NewJudge returns the judge of a compiled limit of an algorithm that counts units, for a
// key that was never used. Limits that charge refused requests have no judge.
func NewJudge(limit *weir.Limit) *Judge { return &Judge{limit, NewModel(limit)} }

// Take reports whether a cost is granted at an instant, in µs since 1970, and
// charges it if it is.
func (j *Judge) Take(now, cost int64) bool {
	if j.model.Used(now)+cost > j.limit.Capacity() {
		return false
	}
	j.model.Charge(now, cost)
	return true
}
