package admission

import (
	"slices"
	"sync"
	"testing"
)

// TestRoom: a full room evicts the oldest connection without a call, and no other.
func TestRoom(t *testing.T) {
	t.Parallel()
	room := NewRoom(3)
	var evicted []int
	enter := func(i int) *Seat { return room.Enter(func() { evicted = append(evicted, i) }) }
	first, second, third := enter(1), enter(2), enter(3)
	first.Called()
	fourth := enter(4)
	if fourth == nil || !slices.Equal(evicted, []int{2}) || room.Open() != 3 {
		t.Fatalf("evicted %v, %d are open; want the second to make room", evicted, room.Open())
	}
	second.Leave()
	second.Called()
	if room.Open() != 3 {
		t.Errorf("%d are open after an evicted one has left", room.Open())
	}
	third.Called()
	fourth.Called()
	if enter(5) != nil || len(evicted) != 1 {
		t.Errorf("evicted %v: want no seat where all have made calls", evicted)
	}
	third.Leave()
	third.Leave()
	if room.Open() != 2 || enter(6) == nil || len(evicted) != 1 {
		t.Errorf("%d are open, evicted %v; want the free seat to be taken", room.Open(), evicted)
	}
}

// TestRoomCountsAtOnce: no number of newcomers, callers and leavers makes it larger.
func TestRoomCountsAtOnce(t *testing.T) {
	t.Parallel()
	room := NewRoom(8)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 200 {
				seat := room.Enter(func() {})
				if open := room.Open(); open > 8 || open < 0 {
					t.Errorf("%d are open", open)
				}
				if seat == nil {
					continue
				}
				if i%2 == 0 {
					seat.Called()
				}
				seat.Leave()
			}
		})
	}
	all.Wait()
	if room.Open() != 0 || room.silent.Len() != 0 {
		t.Errorf("%d are open, %d silent", room.Open(), room.silent.Len())
	}
}
