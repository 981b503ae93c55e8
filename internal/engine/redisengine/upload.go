package redisengine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// uploads are the nodes to which scripts are being uploaded: one caller uploads, and
// other callers that find a script unknown wait for it. A node that lost its scripts
// therefore does not get them from every caller at once.
type uploads struct {
	done atomic.Int64 // uploads so far

	mu    sync.Mutex
	nodes map[*redis.Client]chan struct{} // closed when done; the key is nil where there is one node
}

// begin claims the right to upload scripts to node, and returns the function that ends the
// upload. It returns nil if another caller has uploaded them since there were so many
// uploads, or once another caller does, or ctx ends.
func (u *uploads) begin(ctx context.Context, node *redis.Client, since int64) (end func()) {
	if u.done.Load() > since {
		return nil
	}
	u.mu.Lock()
	if other, found := u.nodes[node]; found {
		u.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
		}
		return nil
	}
	defer u.mu.Unlock()
	if u.nodes == nil {
		u.nodes = make(map[*redis.Client]chan struct{})
	}
	u.nodes[node] = make(chan struct{})
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.done.Add(1)
		close(u.nodes[node])
		delete(u.nodes, node)
	}
}
