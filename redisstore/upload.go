package redisstore

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

// greetings reports that a server sent something that is no reply to a call. The zero
// value reports nothing.
type greetings struct {
	mu        sync.Mutex // guards listeners
	listeners []func(node string)
}

// OnGreeting sets a function that is called with the name of a server, as [Store.Node]
// returns it, if the server does not know a script or, with a [Keeper], if it greets a
// new connection. The function is called from many goroutines.
func (s *Store) OnGreeting(f func(node string)) {
	s.unknown.add(f)
	if s.keeper != nil {
		s.keeper.greeted.add(f)
	}
}

func (g *greetings) add(f func(node string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listeners = append(g.listeners, f)
}

func (g *greetings) report(node string) {
	g.mu.Lock()
	listeners := g.listeners
	g.mu.Unlock()
	for _, f := range listeners {
		f(node)
	}
}
