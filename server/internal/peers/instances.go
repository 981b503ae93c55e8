package peers

import (
	"sync"
	"sync/atomic"
)

const (
	// maxMissed is how many heartbeats in a row an instance may miss.
	maxMissed = 3
	// maxInstances and maxInstanceID bound the memory that messages can take.
	maxInstances  = 10_000
	maxInstanceID = 64 // bytes
)

// instances counts instances by their heartbeats. Time is measured in heartbeats of this
// instance that came back: while Redis is unreachable nothing arrives, and the count stays.
type instances struct {
	id    string
	count atomic.Int64

	mu   sync.Mutex       // guards what follows
	seen map[string]int64 // the value of own at each instance's last heartbeat
	own  int64            // heartbeats of this instance that came back
}

// Count returns the number of instances that are alive, at least 1.
func (g *Group) Count() int { return max(1, int(g.instances.count.Load())) }

// alive records a heartbeat, and after one of this instance drops those that are missing.
func (i *instances) alive(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.seen[id]; len(id) <= maxInstanceID && (known || len(i.seen) < maxInstances) {
		i.seen[id] = i.own
	}
	if id == i.id {
		i.own++
		i.seen[id] = i.own
		for other, last := range i.seen {
			if i.own-last > maxMissed {
				delete(i.seen, other)
			}
		}
	}
	i.count.Store(int64(len(i.seen)))
}

// stopped drops an instance that has stopped.
func (i *instances) stopped(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.seen, id)
	i.count.Store(int64(len(i.seen)))
}
