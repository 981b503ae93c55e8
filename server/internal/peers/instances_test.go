package peers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
)

// newGroup returns a group that was not started.
func newGroup(t testing.TB, client redis.UniversalClient, o Options) *Group {
	t.Helper()
	o.Client = client
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// stopGroup stops a group, twice.
func stopGroup(t testing.TB, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range 2 {
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		<-time.After(time.Millisecond)
	}
}

// TestCount: instances come, stop and crash, and stay counted while nothing arrives.
func TestCount(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	start := func() *Group {
		g := newGroup(t, client, Options{})
		g.heartbeat, g.bus.maxSilence = 5*time.Millisecond, 100*time.Millisecond
		if g.Count() != 1 {
			t.Errorf("%d before the first heartbeat", g.Count())
		}
		g.Start()
		g.Start()
		t.Cleanup(func() { stopGroup(t, g) })
		return g
	}
	one, other := start(), start()
	eventually(t, "two", func() bool { return one.Count() == 2 && other.Count() == 2 })
	one.receive([]byte("acrashed"))
	if one.Count() != 3 {
		t.Errorf("%d, want 3", one.Count())
	}
	eventually(t, "the third is missed", func() bool { return one.Count() == 2 })
	one.receive(append([]byte{kindAlive}, make([]byte, maxInstanceID+1)...))
	if one.Count() != 2 {
		t.Error("a long ID counts as an instance")
	}
	server.Pause()
	one.receive([]byte("aconnected"))
	time.Sleep(20 * one.heartbeat) // heartbeats that do not arrive
	if one.Count() != 3 {
		t.Errorf("%d while nothing arrives, want 3", one.Count())
	}
	server.Resume()
	eventually(t, "two again", func() bool { return one.Count() == 2 })
	stopGroup(t, other)
	eventually(t, "the other has stopped", func() bool { return one.Count() == 1 })
}

// TestStop stops groups that run, that cannot reach Redis, and that were never started.
func TestStop(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := connect(t, server)
	running := newGroup(t, client, Options{Timeout: 100 * time.Millisecond})
	running.Start()
	eventually(t, "one", func() bool { return running.instances.count.Load() == 1 })
	server.Pause()
	stopGroup(t, running)
	server.Resume()
	never := newGroup(t, client, Options{})
	stopGroup(t, never)
	never.Start()
	stopGroup(t, never)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	var invalid *weir.InvalidError
	if _, err := New(Options{}); !errors.As(err, &invalid) || invalid.Field != "client" {
		t.Error(err)
	}
}
