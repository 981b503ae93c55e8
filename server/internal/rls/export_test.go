package rls

// MemoCalls is how often a message comes until it is remembered.
const MemoCalls = memoVotes + 1

// What the memo may hold at most.
const (
	MemoCells        = memoCells
	MemoBytes        = memoBytes
	MemoMessageBytes = memoMessageBytes
)

// Remembers reports whether the memo has a message under the rules in force.
func (s *Service) Remembers(raw []byte) bool {
	found, _ := s.memo.find(s.options.Rules(), raw)
	return found != nil
}

// Remembered returns how many messages the memo has.
func (s *Service) Remembered() (n int) {
	table := s.memo.table.Load()
	if table == nil {
		return 0
	}
	for i := range table.cells {
		if table.cells[i].held.Load() != nil {
			n++
		}
	}
	return n
}
