package admission

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// A Room bounds the open connections of a listener. When it is full, the oldest connection
// that never made a call makes room for a newcomer, so that connections that send nothing
// keep no client out. A Room is safe for concurrent use.
type Room struct {
	most int

	mu     sync.Mutex // guards the fields below; never held while waiting
	open   int
	silent list.List // of *Seat: connections without a call, oldest first
}

// NewRoom returns a room for that many connections.
func NewRoom(most int) *Room { return &Room{most: most} }

// A Seat is one connection's part of a [Room].
type Seat struct {
	room   *Room
	evict  func()
	called atomic.Bool
	// silent is the seat's element in room.silent, nil after the first call; left says
	// that the seat is free. Both are guarded by room.mu.
	silent *list.Element
	left   bool
}

// Enter returns a seat for a connection, or nil if the room is full of connections that
// have made calls. It calls evict at most once, from the Enter of another connection that
// needs the seat: evict closes the connection, and must not block.
func (r *Room) Enter(evict func()) *Seat {
	s := &Seat{room: r, evict: evict}
	evicted, ok := r.seat(s)
	if !ok {
		return nil
	}
	if evicted != nil {
		evicted.evict()
	}
	return s
}

// seat adds a seat, and returns the one that it replaces, if any.
func (r *Room) seat(s *Seat) (evicted *Seat, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.most {
		oldest := r.silent.Front()
		if oldest == nil {
			return nil, false
		}
		evicted = oldest.Value.(*Seat)
		evicted.leave()
	}
	r.open++
	s.silent = r.silent.PushBack(s)
	return evicted, true
}

// Open returns the number of open connections.
func (r *Room) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Called notes that the connection made a call: it is no longer evicted.
func (s *Seat) Called() {
	if s.called.Load() || s.called.Swap(true) {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.speak()
}

// Leave frees the seat, once or more often.
func (s *Seat) Leave() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.leave()
}

func (s *Seat) leave() {
	if !s.left {
		s.left = true
		s.room.open--
		s.speak()
	}
}

// speak takes the seat off the list of those without a call.
func (s *Seat) speak() {
	if s.silent != nil {
		s.room.silent.Remove(s.silent)
		s.silent = nil
	}
}
