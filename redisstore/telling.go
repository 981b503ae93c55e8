package redisstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// tellings are the nodes that are being told the texts of scripts: one caller tells a
// node, and others that find a script unknown meanwhile wait for it, so that a node
// which forgot its scripts is not sent them by everybody at once.
type tellings struct {
	done atomic.Int64 // how often one was told

	mu    sync.Mutex
	nodes map[*redis.Client]chan struct{} // by what a cluster's client has for them; nil: the only one
}

// begin has the caller tell a node, and call the function that it gets afterwards. A
// caller that gets none has waited until somebody else had done so, or until ctx ended,
// or has found that a node was told since so many had been.
func (t *tellings) begin(ctx context.Context, node *redis.Client, since int64) (end func()) {
	if t.done.Load() > since {
		return nil
	}
	told, first := t.enter(node)
	if first {
		return func() { t.leave(node) }
	}
	select {
	case <-told:
	case <-ctx.Done():
	}
	return nil
}

func (t *tellings) enter(node *redis.Client) (told chan struct{}, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if told, under := t.nodes[node]; under {
		return told, false
	}
	if t.nodes == nil {
		t.nodes = make(map[*redis.Client]chan struct{})
	}
	t.nodes[node] = make(chan struct{})
	return nil, true
}

func (t *tellings) leave(node *redis.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done.Add(1)
	close(t.nodes[node])
	delete(t.nodes, node)
}
