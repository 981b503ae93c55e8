package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestIDsHappenOnceAcrossCrashes kills Redis while calls are on their way. Where
// it keeps on disk what it answers, all that was answered before a crash is charged
// after it, and what was not answered happens once all the same; where it does not,
// the test says so.
func TestIDsHappenOnceAcrossCrashes(t *testing.T) {
	t.Parallel()
	if err := crashes(t, "--appendonly", "yes", "--appendfsync", "always"); err != nil {
		t.Error(err)
	}
	if err := crashes(t, "--appendonly", "no"); err == nil {
		t.Error("a Redis that forgets was not noticed")
	}
}

// crashes runs a siege against a server that dies three times, anew if Redis
// restored a part of a script.
func crashes(t *testing.T, args ...string) error {
	t.Helper()
	for range 5 {
		server := testserver.StartRedis(t, args...)
		if err := crashesOf(t, server); !server.Torn() {
			return err
		}
		t.Log("Redis restored a part of a script; once more")
	}
	return errors.New("Redis restored a part of a script each time")
}

func crashesOf(t *testing.T, server *testserver.Redis) error {
	t.Helper()
	s := &siege{calls: 500, callers: 8, seed: 3, takes: true, clients: besieging(t, server.Addr())}
	reach := func() *redisengine.Store { return open(t, dial(t, server.Addr()), redisengine.Options{}) }
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- s.run(ctx) }()
	var lost []error
	for _, progress := range []int{100, 250, 400} {
		s.await(ctx, progress)
		lost = append(lost, s.crash(server, reach))
	}
	if err := <-ran; err != nil {
		return err
	}
	if s.doubts.Load() == 0 {
		t.Error("no call was on its way when the server died")
	}
	return errors.Join(append(lost, s.compare(reach()), s.repeat(reach()))...)
}

// crash kills the server and compares what it knows afterwards with what it had
// answered before.
func (s *siege) crash(server *testserver.Redis, reach func() *redisengine.Store) error {
	acknowledged := s.granted()
	server.Kill()
	server.Restart()
	got, err := charged(reach())
	for key, granted := range acknowledged {
		if err == nil && got[key] < granted {
			err = fmt.Errorf("%s: charged %d after a crash, granted %d before it", key, got[key], granted)
		}
	}
	return err
}

// await returns once so many calls have been answered.
func (s *siege) await(ctx context.Context, calls int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		n := len(s.taken)
		s.mu.Unlock()
		if n >= calls {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
