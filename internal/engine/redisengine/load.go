package redisengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A load is the parts of one script call.
type load struct {
	*batch
	parts []*part
	sent  bool
	reply string
	err   error
}

func (s *Store) newLoad() *load {
	return &load{batch: newBatch(s.keys, s.estimate())}
}

func (l *load) add(p *part) {
	p.answered, p.Err = false, nil
	l.addPart(p)
	l.parts = append(l.parts, p)
}

// calendars reports whether the load has calendar windows, which may not reach the store's
// time.
func (l *load) calendars() bool {
	return slices.ContainsFunc(l.rules, func(r rule) bool { return r.Calendar })
}

// fail answers all parts with an error.
func (l *load) fail(err error) {
	for _, p := range l.parts {
		p.answered, p.Err = true, fmt.Errorf("weir: %v: %w", p.Kind, err)
	}
}

// again keeps the parts for the next round, each in a load of its own, because a moving
// slot serves single keys at once. It returns how long to wait before that.
func (l *load) again() time.Duration {
	for _, p := range l.parts {
		p.tries++
	}
	if len(l.parts) > 1 {
		return 0
	}
	return firstWait << l.parts[0].tries
}

// arrive distributes the answers. A part whose calendar windows did not reach the store's
// time is due once more.
func (s *Store) arrive(l *load) {
	got, err := s.read(l.batch, l.reply)
	if err != nil {
		l.fail(err)
		return
	}
	if got.outside > 0 {
		s.offset.Store(got.outside - time.Now().UnixMicro())
	}
	for _, p := range l.parts {
		if p.answered = p.Err != errOutside || p.outside; !p.answered {
			p.outside, p.Err = true, nil
		}
	}
	l.free()
}

// moving reports whether a hash slot is on another node, or moves there.
func moving(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && begins(reply.Error(), []string{"TRYAGAIN ", "MOVED ", "ASK "})
}

// sendAll runs the scripts of loads, those of one node together.
func (s *Store) sendAll(ctx context.Context, loads []*load) {
	for _, l := range loads {
		s.pack(l.batch)
		l.sent = true
	}
	if len(loads) == 1 {
		s.sendSome(ctx, loads)
		return
	}
	var nodes sync.WaitGroup
	for _, same := range s.byNode(ctx, loads) {
		nodes.Go(func() { s.sendSome(ctx, same) })
	}
	nodes.Wait()
}

// attempts is how often loads are sent to a node that does not know their scripts: first
// by their hashes; then twice by the texts, unless another caller uploads these; then by
// the texts in any case; and last with a text for each load.
const attempts = 5

// sendSome runs the scripts of loads on one node: by their hashes, and by their texts if
// the node does not know them.
func (s *Store) sendSome(ctx context.Context, loads []*load) {
	uploads := s.uploads.done.Load()
	s.upload(ctx, s.attempt(ctx, loads, 0, 0), uploads)
	for _, l := range loads {
		if l.err != nil {
			if len(loads) == 1 && cutShort(l.err) { // of several, some may have been written
				l.err = unsent(l.err)
			} else {
				l.err = classify(l.err)
			}
			s.relocate(ctx)
		} else if !s.located.Load() {
			s.located.Store(true)
		}
	}
}

// upload runs the scripts of loads that their node did not know after so many uploads: by
// their texts, unless another caller has sent these in between.
func (s *Store) upload(ctx context.Context, loads []*load, since int64) {
	for number := 1; len(loads) > 0 && number < attempts; number++ {
		before := s.uploads.done.Load()
		loads = s.attempt(ctx, loads, number, since)
		since = before
	}
}

// attempt sends loads and returns those whose scripts the node does not know. Since is the
// number of uploads before the attempt before. A script that one load sends as text the
// loads behind it send by hash, except in the last attempt.
func (s *Store) attempt(ctx context.Context, loads []*load, number int, since int64) (left []*load) {
	last := number == attempts-1
	upload := number >= attempts-2
	if number > 0 && !upload {
		if end := s.uploads.begin(ctx, s.nodeOf(ctx, loads[0]), since); end != nil {
			defer end()
			upload = true
		}
	}
	uploaded := make(map[*script]bool, 2)
	for _, l := range loads {
		l.args[0], l.args[1] = "evalsha", &l.script.sha
		if upload && (last || !uploaded[l.script]) {
			l.args[0], l.args[1], uploaded[l.script] = "eval", &l.script.text, true
		}
	}
	s.together(ctx, loads)
	for _, l := range loads {
		if unknown(l.err) {
			left = append(left, l)
		}
	}
	return left
}

// relocate has a cluster's client reload its slots in the background. By itself it does so
// when it retries a command, which ours forbid.
func (s *Store) relocate(ctx context.Context) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// byNode groups loads by their nodes, so that an unreachable node delays no other.
func (s *Store) byNode(ctx context.Context, loads []*load) map[*redis.Client][]*load {
	groups := make(map[*redis.Client][]*load)
	for _, l := range loads {
		node := s.nodeOf(ctx, l)
		groups[node] = append(groups[node], l)
	}
	return groups
}

// nodeOf returns the node of a load: nil if there is one server, or if the node is
// unknown, which the client will report.
func (s *Store) nodeOf(ctx context.Context, l *load) *redis.Client {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	node, err := cluster.MasterForKey(ctx, l.keys.all[0].name)
	if err != nil {
		return nil
	}
	return node
}

// together sends commands in one pipeline and waits for their replies as
// [Store.await] does for one.
func (s *Store) together(ctx context.Context, loads []*load) {
	switch len(loads) {
	case 0:
		return
	case 1:
		loads[0].reply, loads[0].err = s.await(ctx, loads[0].args)
		return
	}
	pipe := s.client.Pipeline()
	commands := make([]once, len(loads))
	for i, l := range loads {
		commands[i] = once{redis.NewCmd(ctx, l.args...)}
		commands[i].SetFirstKeyPos(head)
		_ = pipe.Process(ctx, commands[i])
	}
	var failed error
	if !s.within(ctx, func() { _, failed = pipe.Exec(ctx) }) {
		for _, l := range loads {
			l.err = ctx.Err()
		}
		return
	}
	for i, l := range loads {
		if l.reply, l.err = commands[i].Text(); l.err != nil && commands[i].Err() == nil {
			// The client leaves commands as they were where a server refuses the connection.
			l.err = cmp.Or(failed, l.err)
		}
	}
}
