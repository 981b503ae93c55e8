package lease

// worth is for how many acts a share has to suffice to be worth its while. Taking one
// and, where it is not spent in time, giving it back is work for the store too: for
// fewer acts more than it saves.
const worth = 2

// A demand is what is asked of a cell: so many units from an instant on, at least the
// time that a share lasts and at most twice that.
type demand struct {
	spent int64
	from  int64 // ns
}

// growth bounds a share: so many times what was asked so far.
const growth = 4

// during is how much of it falls in the time that a share lasts.
func (d *demand) during(now, ahead int64) float64 {
	return float64(d.spent) * float64(ahead) / float64(max(now-d.from, ahead))
}

// next is how large a share should be: half of what is asked for in the time that it
// lasts, so that hardly any has to go back. What was seen for a shorter time goes on,
// for a while.
func (d *demand) next(now, ahead int64) float64 {
	return min(float64(d.spent)*float64(ahead)/float64(2*max(now-d.from, 1)), float64(growth*d.spent))
}

// pays reports whether a share is worth its while for acts of this cost. If not, the
// act is counted, and goes to the store as if there were no leases.
func (d *demand) pays(cost, now, ahead int64) bool {
	recent := d.during(now, ahead)
	if now-d.from > 2*ahead {
		d.spent, d.from = int64(recent), now-ahead
	}
	if recent >= float64(2*worth*cost) {
		return true
	}
	d.spent += cost
	return false
}
