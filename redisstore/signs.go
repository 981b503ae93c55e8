package redisstore

import "sync"

// signs are told when a server says something that is no reply to a call. The zero value
// has nobody to tell.
type signs struct {
	mu   sync.Mutex // guards hear
	hear []func(node string)
}

// OnSign has f called with the name of a server, as Node has it, that does not know a
// script or, where connections are kept, greets a new one.
func (s *Store) OnSign(f func(node string)) {
	s.unknown.add(f)
	if s.keeper != nil {
		s.keeper.greeted.add(f)
	}
}

func (s *signs) add(f func(node string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear = append(s.hear, f)
}

func (s *signs) tell(node string) {
	s.mu.Lock()
	hear := s.hear
	s.mu.Unlock()
	for _, f := range hear {
		f(node)
	}
}
