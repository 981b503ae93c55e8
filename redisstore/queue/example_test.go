package queue_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/redisstore/queue"
)

// A notification sender: every user gets at most two notifications an hour, and
// the provider takes no more than three a second.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	perUser, provider := weir.PerHour(2), weir.PerSecond(3)
	notifications, err := queue.New(store, queue.Options{
		Key: "notifications", Push: &perUser, Pop: &provider, Lease: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	notify := func(user, event string) {
		// An event that is reported twice is one notification.
		p, err := notifications.Push(ctx, queue.Entry{
			Body: []byte("to " + user + ": " + event), Budget: user, ID: user + "/" + event,
		})
		fmt.Println("queued:", p.Pushed, err)
	}
	notify("alice", "parcel sent")
	notify("alice", "parcel sent")
	notify("alice", "parcel delivered")
	notify("alice", "how was it?")
	notify("bob", "parcel sent")

	send := func(item *queue.Item) error {
		fmt.Printf("%s\n", item.Body)
		return nil
	}
	for {
		item, d, err := notifications.Pop(ctx)
		switch {
		case err != nil:
			log.Fatal(err)
		case item == nil && d.RetryAfter > 0:
			// The provider's rate is used up.
			time.Sleep(d.RetryAfter)
		case item == nil:
			return
		default:
			// Without the acknowledgement it comes again in a minute.
			if send(item) == nil {
				_ = item.Ack(ctx)
			}
		}
	}
	// Output:
	// queued: true <nil>
	// queued: true <nil>
	// queued: true <nil>
	// queued: false <nil>
	// queued: true <nil>
	// to alice: parcel sent
	// to alice: parcel delivered
	// to bob: parcel sent
}

// sent is the code of docs/queue.md, to be compiled and run.
func sent(ctx context.Context, store *redisstore.Store, body []byte) error {
	perUser, provider := weir.PerHour(20), weir.PerSecond(100)
	q, err := queue.New(store, queue.Options{
		Key: "notifications", Push: &perUser, Pop: &provider, Lease: time.Minute,
	})
	if err != nil {
		return err
	}
	p, err := q.Push(ctx, queue.Entry{Body: body, Budget: "user:42", ID: "order-7/sent"})
	if err != nil || !p.Pushed {
		return fmt.Errorf("pushed %v, %w", p.Pushed, err)
	}
	item, d, err := q.Pop(ctx) // item.Body, item.Attempt; nil: nothing there, or d says when
	if err != nil || item == nil {
		return fmt.Errorf("popped nothing, %v, %w", d, err)
	}
	return item.Ack(ctx)
}

func TestCodeOfPage(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{})
	if err == nil {
		err = sent(t.Context(), store, []byte("sent"))
	}
	if err != nil {
		t.Error(err)
	}
}

// address is where the Redis of the example listens.
var address string

// TestMain starts a Redis for the example, which has no test to start one.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		p := new(process)
		defer p.end()
		address = testserver.StartRedis(p).Addr()
		return m.Run()
	}())
}

// A process is a testing.TB for what outlives single tests.
type process struct {
	testing.TB
	cleanups []func()
	dir      string
}

func (p *process) Helper() {}

func (p *process) Failed() bool { return false }

func (p *process) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

func (p *process) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

// Skipf skips the whole package: none of its tests can do without Redis.
func (p *process) Skipf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	os.Exit(0)
}

func (p *process) TempDir() string {
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "queue")
		if err != nil {
			log.Fatal(err)
		}
		p.dir = dir
		p.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	return p.dir
}

func (p *process) end() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
}
