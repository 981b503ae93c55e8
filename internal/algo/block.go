package algo

import "time"

// Blocks returns the rule of blocks that last so long, in whole milliseconds: gcra with a unit
// for each millisecond. A block begins with all units used, and ends when the last one has
// drained. A shorter rule cuts a longer block.
func Blocks(d time.Duration) *Rule {
	ms := d.Milliseconds()
	r := &Rule{ID: GCRA, Count: ms, Period: d.Microseconds(), Burst: ms}
	if !r.Compile() {
		panic("algo: a block of " + d.String() + " cannot be counted exactly")
	}
	r.Debt, r.Cap = r.Burst, r.Burst
	return r
}

// Block blocks a key under a rule of [Blocks] for so many milliseconds at least. A store does it
// once the state was brought to now.
func (r *Rule) Block(s *State, ms int64) { s.Used = max(s.Used, min(ms, r.Burst)) }
