package ledger

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// An instance has a ledger and the limits that go with it.
type instance struct {
	*Ledger
	t      *testing.T
	limits weir.Taker
	n      int
}

// newInstance returns an instance on a Redis.
func newInstance(t *testing.T, c *redis.Client) *instance {
	t.Helper()
	limits, err := redisengine.New(c, redisengine.Options{Prefix: "weir:", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(Options{Client: c, Domain: "llm", Taker: limits})
	if err != nil {
		t.Fatal(err)
	}
	return &instance{l, t, limits, 0}
}

// limited is a charge of a user's $5000 a month now.
func limited(t *testing.T, user string, micros int64) Charge {
	t.Helper()
	c := charge(t, user, micros, 5000)
	c.Limit = monthly(t, 5000)
	c.Window, _ = WindowOf(c.Limit, time.Now())
	return c
}

// act has the limits decide an act about a user.
func (i *instance) act(kind weir.Kind, user string, micros int64) int64 {
	i.t.Helper()
	c := limited(i.t, user, micros)
	a := &weir.Act{Kind: kind, Charges: []weir.Charge{{Key: c.Key, Limit: c.Limit, Cost: micros}}, Decisions: make([]weir.Decision, 1)}
	if i.limits.Take(i.t.Context(), []*weir.Act{a}); a.Err != nil {
		i.t.Fatal(a.Err)
	}
	return c.Limit.Capacity() - a.Decisions[0].Remaining
}

// settle charges a user, in the limits and in the ledger.
func (i *instance) settle(user string, micros int64) {
	i.t.Helper()
	i.act(acts.KindRecord, user, micros)
	i.n++
	s := settlement(fmt.Sprint(i.instance, i.n), user, micros, limited(i.t, user, micros))
	s.At = time.Now()
	i.Settled(s)
}

// written writes all, through faults.
func (i *instance) written() {
	i.t.Helper()
	testserver.Eventually(i.t, "all are written", func() bool { return i.flush(i.t.Context()) == nil && i.Waiting() == 0 })
}

// follows has an instance follow the store, through faults.
func (i *instance) follows() {
	i.t.Helper()
	testserver.Eventually(i.t, "all is restored", func() bool { return i.follow(i.t.Context()) == nil })
}

// want wants so much used of each user, in the limits and in the ledger, and of the month.
func (i *instance) want(step string, users map[string]int64) {
	i.t.Helper()
	sum := int64(0)
	for user, micros := range users {
		used, err := i.Used(i.t.Context(), []Charge{limited(i.t, user, 0)})
		if err != nil || used[0] != micros {
			i.t.Errorf("%s: the ledger has %v of %s, want %d, %v", step, used, user, micros, err)
		}
		if got := i.act(acts.KindTake, user, 0); got != micros {
			i.t.Errorf("%s: the limit has %d of %s, want %d", step, got, user, micros)
		}
		sum += micros
	}
	rows, err := i.Month(i.t.Context(), time.Now().UTC().Format(monthForm))
	for _, r := range rows {
		sum -= r.USD
	}
	if err != nil || sum != 0 {
		i.t.Errorf("%s: the month has %v, %v", step, rows, err)
	}
}

// TestEmptied wants a store that came back empty to have what each instance had recorded, once,
// although replies are lost, beside what was settled meanwhile.
func TestEmptied(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	var n, faults atomic.Int64
	between := testserver.StartProxy(t, server.Addr(), func(request []byte) testserver.Fault {
		if !strings.Contains(string(request), "evalsha") || n.Add(1)%3 == 0 || faults.Add(-1) < 0 {
			return testserver.Pass
		}
		if n.Load()%2 == 0 {
			return testserver.Refuse
		}
		return testserver.Drop
	})
	faulty := func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: between.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	}
	one, other, direct := newInstance(t, faulty()), newInstance(t, faulty()), newInstance(t, client(t, server.Addr()))
	t.Cleanup(func() {
		_ = one.Client.Close()
		_ = other.Client.Close()
	})
	for range 3 {
		one.settle("ann", 1_000_000)
		other.settle("ann", 10_000_000)
		other.settle("bo", 100_000_000)
	}
	for range 3 {
		one.settle("cy", 900_000_000) // together more than one charge may have
	}
	one.written()
	other.written()
	want := map[string]int64{"ann": 33_000_000, "bo": 300_000_000, "cy": 2_700_000_000}
	direct.want("before", want)

	for step := range 3 {
		if err := direct.Client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		direct.epoch = ""
		one.settle("ann", 5) // in the store that is empty
		faults.Store(20)
		one.written()
		other.follows()
		faults.Store(0)
		want["ann"] += 5
		direct.want(fmt.Sprint("emptied ", step), want)
		other.settle("bo", 7)
		other.written()
		want["bo"] += 7
		direct.want(fmt.Sprint("later ", step), want)
	}
	if between.Done(testserver.Drop) < 3 {
		t.Errorf("only %d replies were lost", between.Done(testserver.Drop))
	}

	// Nobody restores the records of an instance that has ended.
	if err := direct.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	other.follows()
	direct.want("one has died", map[string]int64{"ann": 30_000_000, "bo": want["bo"], "cy": 0})
}

// TestKept wants a store that restarts with its data, and a replica that takes over with them, not to
// be taken for an empty one.
func TestKept(t *testing.T) {
	t.Parallel()
	master, replica := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always"), testserver.StartRedis(t)
	var addr atomic.Value
	addr.Store(master.Addr())
	c := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr.Load().(string))
	}})
	t.Cleanup(func() { _ = c.Close() })
	one := newInstance(t, c)
	one.settle("ann", 1_000_000)
	one.written()
	epoch, want := one.epoch, map[string]int64{"ann": 1_000_000}
	master.Kill()
	master.Restart()
	one.follows()
	one.want("restarted", want)
	host, port, _ := net.SplitHostPort(master.Addr())
	if _, err := replica.Do("REPLICAOF", host, port); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the replica has all", func() bool {
		got, err := replica.Do("GET", "weir:{ledger/llm}:epoch")
		return err == nil && strings.Contains(got, epoch)
	})
	master.Kill()
	if _, err := replica.Do("REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	addr.Store(replica.Addr())
	one.follows()
	one.want("taken over", want)
	if one.epoch != epoch {
		t.Errorf("the epoch is %s, was %s", one.epoch, epoch)
	}
}

// TestOwnIsBounded wants an instance to remember a bounded number of sums, and to forget those that
// have ended.
func TestOwnIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := opened(t, newMemory())
		l.epoch = "E"
		add := func(user string) {
			s := settlement(user, user, 1, limited(t, user, 1))
			s.At = time.Now()
			l.confirmed([]*record{l.recordOf(s)}, nil)
		}
		for i := range maxOwn/2 + 7 {
			add(fmt.Sprint("user", i))
		}
		if n := len(l.own.months) + len(l.own.windows); n != maxOwn || !l.own.full {
			t.Errorf("%d are remembered", n)
		}
		time.Sleep(32 * 24 * time.Hour)
		add("new")
		if n := len(l.own.windows); n != 1 {
			t.Errorf("%d windows are remembered", n)
		}
		time.Sleep(32 * 24 * time.Hour)
		if r := l.own.restoration("F", "I", time.Now()); len(r.charges) > 0 || slices.ContainsFunc(r.records, func(r *record) bool { return r.charges != nil }) {
			t.Errorf("%v is restored in a window that has ended", r.charges)
		}
	})
}
