package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

const (
	instances = 2
	callers   = 4 // of each instance

	patience = 100 * time.Millisecond // of a caller, for one answer
	think    = 2 * time.Millisecond   // between two acts, twice that at most
	insist   = 20 * time.Second       // how long an id is repeated
	lead     = 100 * time.Millisecond
	tail     = 500 * time.Millisecond // more than the longest window of a subject
	recovery = 20 * time.Second       // on a busy machine; a mutant is given less
)

// A world is a Redis, the instances that use it, and their callers.
type world struct {
	t        *testing.T
	server   *testserver.Redis
	proxy    *testserver.Proxy // before it; nil without one
	admin    *redis.Client     // past the proxy
	direct   weir.Taker        // so
	takers   []weir.Taker      // what most callers ask, an instance each
	chained  []weir.Taker      // without memory of refusals, which is not one sequence with others' resets
	ask      []*subject
	tail     time.Duration
	recovery time.Duration
	links    map[*subject]*link
	history  *history
	back     comeback

	proxied atomic.Pointer[func([]byte) testserver.Fault]
	clock   *steppedClock // nil unless the makeup has it
}

// A makeup says how a world is made; the zero value is the usual one.
type makeup struct {
	args     []string                               // of redis-server
	clock    bool                                   // whose wall clock can be stepped
	start    func(*world) (addr string)             // of the one redis-server; nil: startOne
	prefix   string                                 // of keys
	hook     func(instance int) redis.Hook          // on connections to Redis
	over     func(store, raw weir.Taker) weir.Taker // around the stack
	ask      []*subject                             // nil: all
	tail     time.Duration                          // how long everybody goes on afterwards; zero: tail
	recovery time.Duration                          // how long they are waited for then; zero: recovery
}

func newWorld(t *testing.T, m makeup) *world {
	t.Helper()
	w := &world{
		t: t, ask: m.ask,
		tail: cmp.Or(m.tail, tail), recovery: cmp.Or(m.recovery, recovery), links: map[*subject]*link{},
	}
	if w.ask == nil {
		w.ask = subjects
	}
	start := func(w *world) string { return w.startOne(m) }
	if m.start != nil {
		start = m.start
	}
	addr := start(w)
	hook := func(int) redis.Hook { return nil }
	if m.hook != nil {
		hook = m.hook
	}
	w.admin = redis.NewClient(options(w.server.Addr(), 5*time.Second))
	w.t.Cleanup(func() { _ = w.admin.Close() })
	w.direct = store(t, w.server.Addr(), 5*time.Second, hook(0), m.prefix)
	for i := range instances {
		raw := store(t, addr, patience, hook(i), m.prefix)
		// A layer that settles gives back what its callers got an error for: their acts
		// are made and unmade, which is not one sequence.
		all := stopped(t, weir.Taker(stack.New(raw, stack.Options{Remote: remote.Options{Policy: erring}})))
		plain := stopped(t, weir.Taker(calls.New(raw, calls.Options{Silence: time.Minute})))
		if m.over != nil {
			all, plain = stopped(t, m.over(all, raw)), stopped(t, m.over(plain, raw))
		}
		w.takers, w.chained = append(w.takers, all), append(w.chained, plain)
	}
	for _, s := range w.ask {
		w.links[s] = new(link)
	}
	w.history = newHistory()
	return w
}

// erring is the policy by which callers get the store's error.
func erring(*weir.Charge) remote.Policy { return remote.Error }

// stopped stops a taker when the test ends. Their errors are
// the world's: its Redis may be gone by then.
func stopped[T weir.Taker](t *testing.T, top T) T {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if layer, ok := weir.Taker(top).(interface{ Stop(context.Context) error }); ok {
			_ = layer.Stop(ctx)
		}
	})
	return top
}

var calm = func([]byte) testserver.Fault { return testserver.Pass }

// startOne starts the one Redis of a world, with a proxy before it.
func (w *world) startOne(m makeup) (addr string) {
	w.t.Helper()
	var env []string
	if m.clock {
		w.clock = newSteppedClock(w.t)
		env = w.clock.env
	}
	w.server = testserver.Spec{Env: env}.Redis(w.t, m.args...)
	w.proxied.Store(&calm)
	w.proxy = testserver.StartProxy(w.t, w.server.Addr(), func(request []byte) testserver.Fault { return (*w.proxied.Load())(request) })
	return w.proxy.Addr()
}

// options are those of a client that fails at once and never repeats anything. Dialing may
// take as long as the server allows: on a busy machine, connections that are opened together
// would all time out, and be opened again without end.
func options(addr string, timeout time.Duration) *redis.Options {
	return &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: max(timeout, 500*time.Millisecond), ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout, PoolSize: 32,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 8 * time.Millisecond,
		DisableIdentity: true, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// store is a store at an address, with a hook on its connections unless that is nil.
func store(t testing.TB, addr string, timeout time.Duration, hook redis.Hook, prefix string) *redisengine.Store {
	t.Helper()
	client := redis.NewClient(options(addr, timeout))
	if hook != nil {
		client.AddHook(hook)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisengine.New(client, redisengine.Options{Timeout: timeout, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run lets everybody ask while a fault strikes, some times over, and returns what
// the oracles say.
func (w *world) run(rounds int, strike func(*world)) map[string]error {
	w.t.Helper()
	w.load(rounds, strike)
	verdicts := map[string]error{}
	for _, o := range oracles {
		verdicts[o.name] = o.judge(w.t.Context(), w)
	}
	return verdicts
}

// load lets everybody ask while a fault strikes, some times over.
func (w *world) load(rounds int, strike func(*world)) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	var crowd sync.WaitGroup
	for i := range instances * callers {
		crowd.Go(func() { w.history.note((&caller{world: w, number: i}).run(ctx)...) })
	}
	for range rounds {
		time.Sleep(lead)
		strike(w)
	}
	w.history.heal()
	time.Sleep(w.tail)
	w.recover()
	stop()
	crowd.Wait()
	w.recover() // the last ones may have met with trouble of their own
	if w.proxy != nil {
		w.proxy.Close()
	}
	// What was still on its way is with Redis now; it answers later comers last.
	for range 3 {
		if err := w.admin.Ping(w.t.Context()).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// recover waits until everybody was granted something again, or too long: a client
// of Redis that could not connect tries again once a second.
func (w *world) recover() {
	for deadline := time.Now().Add(w.recovery); w.back.missing(w.ask) != "" && time.Now().Before(deadline); {
		time.Sleep(lead / 10)
	}
}

// A comeback is when each subject was granted something after the last fault.
type comeback struct {
	mu    sync.Mutex
	first map[*subject]int64 // ns since the history began
}

func (c *comeback) note(o *op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = map[*subject]int64{}
	}
	if c.first[o.subject] == 0 {
		c.first[o.subject] = o.ret
	}
}

// missing names one that was granted nothing yet.
func (c *comeback) missing(subjects []*subject) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range subjects {
		if s.how <= repeat && c.first[s] == 0 {
			return s.name
		}
	}
	return ""
}

// last is when the last one was.
func (c *comeback) last() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Max(slices.Collect(maps.Values(c.first)))
}

// used is how many units the store has charged to a subject's own key.
func (w *world) used(ctx context.Context, s *subject) (int64, error) {
	o := w.history.ask(ctx, w.direct, op{subject: s, key: s.name})
	return s.limit.Count - o.Remaining, o.err
}

// A caller asks one thing after another.
type caller struct {
	*world
	number int
	asked  int
	ops    []op
}

func (c *caller) run(ctx context.Context) []op {
	rng := rand.New(rand.NewPCG(uint64(c.number), 1))
	for ctx.Err() == nil {
		c.send(ctx, rng, c.ask[rng.IntN(len(c.ask))])
		pause(ctx, time.Duration(rng.Int64N(int64(2*think))))
	}
	return c.ops
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// send sends one act, and with an id again until it is answered.
func (c *caller) send(ctx context.Context, rng *rand.Rand, s *subject) {
	c.asked++
	o := op{caller: c.number, subject: s, key: s.name, cost: 1 + rng.Int64N(3)}
	taker := c.takers[c.number%instances]
	if s.how == chain || s.how == rope {
		o.key, taker = c.links[s].key(s), c.chained[c.number%instances]
	}
	switch {
	case s.how == holder:
		o.cost, o.id = 1, c.id()
	case s.how == repeat || s.how == rope:
		o.id = c.id()
	case s.how == chain && rng.IntN(20) == 0:
		o.kind, o.cost = acts.KindReset, 0
	}
	o = c.once(taker, o)
	for end := time.Now().Add(insist); o.outcome > refused && (s.how == repeat || s.how == rope) && time.Now().Before(end); {
		o.doubt = o.doubt || o.outcome == unknown
		pause(context.Background(), 2*think)
		o = c.once(taker, o)
	}
	c.links[s].note(&o)
	if healed := c.history.healed.Load(); healed > 0 && o.call > healed && o.outcome == granted {
		c.back.note(&o)
	}
	c.ops = append(c.ops, o)
}

func (c *caller) id() string { return fmt.Sprintf("%d/%d", c.number, c.asked) }

// once sends an act once. What is on its way is waited for also when the run is
// over.
func (c *caller) once(taker weir.Taker, o op) op {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.tries++
	return c.history.ask(ctx, taker, o)
}

// do runs a command of an administrator.
func (w *world) do(command ...any) {
	w.t.Helper()
	if err := w.admin.Do(w.t.Context(), command...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		w.t.Fatalf("%v: %v", command, err)
	}
}
