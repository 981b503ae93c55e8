package instances_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/peers"
	"github.com/weirlimit/weir/internal/peers/instances"
)

// A pool of go-redis whose server is away looks once a second whether it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		<-time.After(time.Millisecond)
	}
}

// TestCount: instances come, end with and without a word, and stay known while
// nobody hears anything.
func TestCount(t *testing.T) {
	t.Parallel()
	var bus peers.Local
	start := func() *instances.Counter {
		c := instances.New(instances.Options{Bus: &bus, Every: 5 * time.Millisecond})
		if c.Count() != 1 {
			t.Errorf("%d before the first word", c.Count())
		}
		c.Start()
		c.Start()
		return c
	}
	one, other := start(), start()
	stop := func(c *instances.Counter) {
		for range 2 {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	eventually(t, "two", func() bool { return one.Count() == 2 && other.Count() == 2 })
	// One that says nothing any more.
	if err := bus.Publish(context.Background(), "instances", []byte("killed")); err != nil {
		t.Fatal(err)
	}
	if one.Count() != 3 {
		t.Errorf("%d, want 3", one.Count())
	}
	eventually(t, "the third is missed", func() bool { return one.Count() == 2 })
	if err := bus.Publish(context.Background(), "instances", make([]byte, 65)); err != nil {
		t.Fatal(err)
	}
	if one.Count() != 2 {
		t.Error("anything counts as an instance")
	}
	stop(other)
	if one.Count() != 1 {
		t.Errorf("%d after the other has ended", one.Count())
	}
	stop(one)
	stop(instances.New(instances.Options{Bus: &bus}))
}
