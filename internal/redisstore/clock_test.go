package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// A stepped is a Redis whose wall clock a test steps. Its other clocks, and the
// test's, go on as they do.
type stepped struct {
	t      *testing.T
	client *redis.Client
	offset int64 // µs
	file   *os.File
}

// buildShim builds the shim between Redis and the clock, once for all tests, in the
// folder that TestMain removes.
var buildShim = sync.OnceValues(func() (string, error) {
	shim := filepath.Join(buildDir, "clockshim.so")
	said, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", shim, filepath.Join("testdata", "clockshim.c")).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, said)
	}
	return shim, nil
})

// startStepped starts a Redis that reads the clock through the shim.
func startStepped(t *testing.T) *stepped {
	t.Helper()
	testserver.Require(t, "cc")
	shim, err := buildShim()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "offset")
	opened, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	c := &stepped{t: t, file: opened}
	c.step(0)
	c.client = dial(t, testserver.StartRedisEnv(t, []string{"LD_PRELOAD=" + shim, "CLOCKSHIM_FILE=" + file}).Addr())
	c.step(time.Hour)
	if ahead := time.Until(c.now()); ahead < 59*time.Minute || ahead > 61*time.Minute {
		t.Fatalf("stepped by an hour, Redis is ahead by %v", ahead)
	}
	return c
}

// step moves Redis's wall clock, back if d is negative.
func (c *stepped) step(d time.Duration) {
	c.t.Helper()
	c.offset += d.Microseconds()
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.offset)), 0); err != nil {
		c.t.Fatal(err)
	}
}

func (c *stepped) now() time.Time {
	c.t.Helper()
	now, err := c.client.Time(context.Background()).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	return now
}

// align moves the clock to an instant so far into a minute, and forgets all keys.
func (c *stepped) align(phase time.Duration) {
	c.t.Helper()
	if err := c.client.FlushAll(context.Background()).Err(); err != nil {
		c.t.Fatal(err)
	}
	now := c.now()
	c.step(now.Truncate(time.Minute).Add(time.Minute + phase).Sub(now))
}

// A patience is one limit put through steps of the clock.
type patience struct {
	clock   *stepped
	store   *redisstore.Store
	limit   *weir.Limit
	debt    time.Duration // how long what does not fit takes to drain
	holders int
}

func patient(clock *stepped, store *redisstore.Store, l weir.Limit) *patience {
	limit := l.MustCompile()
	return &patience{clock: clock, store: store, limit: limit, debt: time.Duration(limit.Rule().Drain) * time.Microsecond}
}

// unit asks for one unit, as a holder of its own where there are holders.
func (p *patience) unit() *weir.Act {
	a := storetest.NewAct(weir.Charge{Key: "key", Limit: p.limit, Cost: 1})
	if p.limit.Algorithm == weir.Concurrency {
		p.holders++
		a.ID = fmt.Sprint("holder", p.holders)
	}
	return a
}

// drink takes all units that there are and returns how many there were.
func (p *patience) drink() (int64, error) {
	acts := make([]*weir.Act, p.limit.Capacity()+2)
	for i := range acts {
		acts[i] = p.unit()
	}
	p.store.Take(context.Background(), acts)
	granted := int64(0)
	for _, a := range acts {
		if a.Err != nil {
			return 0, a.Err
		}
		granted += a.Decisions[0].Granted
	}
	return granted, p.lifetimes()
}

// lifetimes finds a key that is never forgotten, or too late: a state after its
// debt and one drain, the record of an id after its life and what the clock was
// set back.
func (p *patience) lifetimes() error {
	ctx := context.Background()
	for _, key := range p.clock.client.Keys(ctx, "*").Val() {
		most := p.debt + time.Duration(p.limit.Rule().Drain)*time.Microsecond + 5*time.Second
		if strings.Contains(key, "}i3:") {
			most = acts.IDLife + time.Hour + time.Minute
		}
		left := p.clock.client.PTTL(ctx, key).Val()
		if left <= 0 && left != -2 || left > most {
			return fmt.Errorf("%s lives for %v, at most %v", key, left, most)
		}
	}
	return nil
}

// through exhausts the limit, brings it into debt if there is such a thing, and
// steps the clock: forward must give at most a burst, back nothing. Then it waits,
// by the clock, for a unit, at most for the debt and one drain, and at last for a
// full burst.
func (p *patience) through(indebted bool, steps ...time.Duration) error {
	if n, err := p.drink(); n != p.limit.Capacity() || err != nil {
		return fmt.Errorf("fresh: granted %d, %v", n, err)
	}
	longest := time.Duration(p.limit.Rule().Drain) * time.Microsecond
	if indebted && p.limit.Algorithm != weir.Concurrency {
		longest *= 2
		debt := storetest.NewAct(weir.Charge{Key: "key", Limit: p.limit, Cost: 10 * p.limit.Capacity()})
		debt.Kind = acts.KindRecord
		if p.store.Take(context.Background(), []*weir.Act{debt}); debt.Err != nil {
			return debt.Err
		}
	}
	for i, d := range steps {
		p.clock.step(d)
		if p.limit.Algorithm == weir.FixedWindow && d < 0 {
			// The time that the clock repeats is in an earlier window, and counts in addition.
			longest += min(-d, p.limit.Period)
		}
		n, err := p.drink()
		if err != nil || n > p.limit.Capacity() || d < 0 && n > 0 {
			return fmt.Errorf("step %d of %v: granted %d, %v", i, steps, n, err)
		}
	}
	if err := p.wait(longest); err != nil {
		return fmt.Errorf("after %v: %w", steps, err)
	}
	return p.rest(steps...)
}

// rest leaves the key alone for long enough and demands a full burst.
func (p *patience) rest(steps ...time.Duration) error {
	p.clock.step(2 * time.Duration(p.limit.Rule().Drain) * time.Microsecond)
	if n, err := p.drink(); n != p.limit.Capacity() || err != nil {
		return fmt.Errorf("after %v and a rest: granted %d, %v", steps, n, err)
	}
	return nil
}

// wait polls for a unit while time passes.
func (p *patience) wait(longest time.Duration) error {
	const polls = 12
	for range polls {
		p.clock.step(longest/polls + time.Microsecond)
		a := p.unit()
		p.store.Take(context.Background(), []*weir.Act{a})
		if a.Err != nil || a.Allowed() {
			return a.Err
		}
	}
	return fmt.Errorf("locked out for more than %v", longest)
}

// punctual repeats what failed and took so long that real time had a part in it.
func (p *patience) punctual(phase time.Duration, run func() error) error {
	var err error
	for range 10 {
		p.clock.align(phase)
		began := time.Now()
		if err = run(); err == nil || time.Since(began) < 100*time.Millisecond {
			return err
		}
	}
	return fmt.Errorf("this machine is too slow to judge: %w", err)
}

// all puts the limit through every step, corrected and not, at the start, in the
// middle and at the end of a window; under -short, at one of the three.
func (p *patience) all() error {
	for j, d := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		for k, steps := range [][]time.Duration{{d}, {-d}, {d, -d}, {-d, d}, {d, -d, d, -d}, {-d, d, -d, d}} {
			for i, phase := range []time.Duration{100 * time.Millisecond, 30 * time.Second, 59 * time.Second} {
				if testing.Short() && i != (j+k)%3 {
					continue
				}
				run := func() error { return p.through(i == 1, steps...) }
				if err := p.punctual(phase, run); err != nil {
					return fmt.Errorf("%v into a minute: %w", phase, err)
				}
			}
		}
	}
	return nil
}

// steppedLimits is every algorithm, and whatever else has windows or capacities
// of its own.
func steppedLimits() []weir.Limit {
	all := []weir.Limit{
		{Algorithm: weir.FixedWindow, Count: 10, Period: time.Minute, Anchor: weir.AnchorFirst},
		{Algorithm: weir.FixedWindow, Count: 10, Period: 24 * time.Hour, TimeZone: "Europe/Paris"},
		{Algorithm: weir.GCRA, Count: 7, Period: time.Minute, Burst: 25},
		{Algorithm: weir.TokenBucket, Count: 7, Period: time.Minute, Burst: 25},
	}
	for id := range algo.Steps {
		all = append(all, weir.Limit{Algorithm: weir.Algorithm(id), Count: 10, Period: time.Minute})
	}
	return all
}

// TestClockSteps steps Redis's clock back and forward under every algorithm.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	for _, l := range steppedLimits() {
		t.Run(fmt.Sprintf("%v %s%v", l.MustCompile(), l.TimeZone, l.Anchor), func(t *testing.T) {
			t.Parallel()
			clock := startStepped(t)
			p := patient(clock, open(t, clock.client, redisstore.Options{}), l)
			if err := p.all(); err != nil {
				t.Error(err)
			}
		})
	}
}

// returns takes all units by ids, steps the clock and gives all of them back: what
// can be taken then is at most what came back, or a burst if time has passed. A
// refusal may be the first to see the stepped clock, or a release.
func (p *patience) returns(refusal bool, steps ...time.Duration) error {
	ctx := context.Background()
	list := make([]*weir.Act, p.limit.Capacity())
	for i := range list {
		list[i] = p.unit()
		list[i].ID = fmt.Sprint("id", i)
	}
	p.store.Take(ctx, list)
	free := int64(0)
	for _, d := range steps {
		p.clock.step(d)
		if d > 0 {
			free = p.limit.Capacity()
		}
		if refusal {
			n, err := p.drink()
			if err != nil || n > free {
				return fmt.Errorf("after %v: granted %d of %d, %v", d, n, free, err)
			}
			free -= n
		}
	}
	for _, a := range list {
		if a.Err != nil || !a.Allowed() {
			return fmt.Errorf("fresh: %+v, %v", a.Decisions, a.Err)
		}
		a.Kind = acts.KindRelease
		if p.store.Take(ctx, []*weir.Act{a}); a.Err == nil {
			free = min(p.limit.Capacity(), free+a.Decisions[0].Granted)
		} else if !errors.Is(a.Err, weir.ErrUnknownID) {
			return a.Err
		}
	}
	if p.limit.Algorithm == weir.GCRA || p.limit.Algorithm == weir.LeakyBucket {
		// Only whole units are said to come back; a moment more may complete
		// another.
		free++
	}
	if n, err := p.drink(); err != nil || n > free {
		return fmt.Errorf("steps %v, all given back: granted %d of %d, %v", steps, n, free, err)
	}
	return p.rest(steps...)
}

// TestClockStepsGiveNothingTwice steps the clock between takes and their releases.
func TestClockStepsGiveNothingTwice(t *testing.T) {
	t.Parallel()
	for _, l := range steppedLimits() {
		t.Run(fmt.Sprintf("%v %s%v", l.MustCompile(), l.TimeZone, l.Anchor), func(t *testing.T) {
			t.Parallel()
			clock := startStepped(t)
			p := patient(clock, open(t, clock.client, redisstore.Options{}), l)
			for _, d := range []time.Duration{time.Second, time.Hour} {
				for _, steps := range [][]time.Duration{{-d}, {d, -d}, {-d, d}} {
					for _, refusal := range []bool{true, false} {
						run := func() error { return p.returns(refusal, steps...) }
						if err := p.punctual(30*time.Second, run); err != nil {
							t.Errorf("refusal %v: %v", refusal, err)
						}
					}
				}
			}
		})
	}
}

// booked books an hour ahead and sets the clock back: the bookings stand, and last
// no longer than they did.
func (p *patience) booked(back time.Duration) error {
	var last weir.Decision
	for {
		a := storetest.NewAct(weir.Charge{Key: "key", Limit: p.limit, Cost: p.limit.Capacity()})
		a.MaxWait = time.Hour
		p.store.Take(context.Background(), []*weir.Act{a})
		if a.Err != nil || !a.Allowed() {
			break
		}
		last = a.Decisions[0]
	}
	if last.Delay < 50*time.Minute {
		return fmt.Errorf("booked no further ahead than %v", last.Delay)
	}
	p.clock.step(-back)
	if n, err := p.drink(); n != 0 || err != nil {
		return fmt.Errorf("booked out: granted %d, %v", n, err)
	}
	p.clock.step(last.Delay - time.Minute)
	if n, err := p.drink(); n != 0 || err != nil {
		return fmt.Errorf("before the bookings are due: granted %d, %v", n, err)
	}
	p.clock.step(time.Minute)
	// A refill that was under way has begun anew.
	return p.wait(last.ResetAfter - last.Delay + time.Second)
}

// TestClockStepsKeepBookings steps the clock back under what is booked ahead.
func TestClockStepsKeepBookings(t *testing.T) {
	t.Parallel()
	clock := startStepped(t)
	store := open(t, clock.client, redisstore.Options{})
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket} {
		p := patient(clock, store, weir.Limit{Algorithm: algorithm, Count: 10, Period: time.Minute})
		p.debt = time.Hour
		for _, back := range []time.Duration{time.Millisecond, time.Second, time.Hour, 24 * time.Hour} {
			if err := p.punctual(30*time.Second, func() error { return p.booked(back) }); err != nil {
				t.Errorf("%v, %v back: %v", algorithm, back, err)
			}
		}
	}
}

// clockMutants are scripts that do not mind, in one way or another, that a state
// lies in the future.
var clockMutants = []struct {
	name, old, with string
	algorithms      []weir.Algorithm
}{
	{
		"not noticed", "clamped = at > ", "clamped = false and at > ",
		[]weir.Algorithm{weir.GCRA, weir.LeakyBucket, weir.TokenBucket, weir.SlidingLog, weir.Concurrency},
	},
	{"windows not noticed", "clamped = at >= ", "clamped = false and at >= ", []weir.Algorithm{weir.SlidingCounter}},
	{"a far window not noticed", "clamped, at = at ~= window_end, window_end", "clamped = false", []weir.Algorithm{weir.FixedWindow}},
	{"counters not noticed", "clamped, used = at > now, total", "clamped, used = false, total", []weir.Algorithm{weir.RollingWindow}},
	{"not written back", "local dirty, aged = clamped, used", "local dirty, aged = false, used", []weir.Algorithm{
		weir.GCRA, weir.LeakyBucket, weir.TokenBucket, weir.FixedWindow, weir.SlidingLog, weir.SlidingCounter,
		weir.RollingWindow, weir.Concurrency,
	}},
	{"forgiven", "at, rem = t, 0\n", "at, used, rem = t, 0, 0\n", []weir.Algorithm{weir.GCRA, weir.LeakyBucket}},
	{"forgiven at once", "if clamped then\n  at = now\n", "if clamped then\n  at, used = now, 0\n", []weir.Algorithm{weir.TokenBucket}},
	{"a window too far", "if at < start then", "if at ~= start then", []weir.Algorithm{weir.FixedWindow}},
	{"the window before is lost", "used, rem = min(used + rem, cap), 0", "used, rem = 0, 0", []weir.Algorithm{weir.SlidingCounter}},
}

// TestClockStepsFindMutants shows that the steps notice each of them.
func TestClockStepsFindMutants(t *testing.T) {
	t.Parallel()
	clock := startStepped(t)
	for _, m := range clockMutants {
		store, err := redisstore.NewMutated(clock.client, redisstore.Options{}, m.old, m.with)
		if err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		for _, algorithm := range m.algorithms {
			p := patient(clock, store, weir.Limit{Algorithm: algorithm, Count: 10, Period: time.Minute})
			if err := p.all(); err == nil {
				t.Errorf("mutant %q of %v was not noticed", m.name, algorithm)
			} else {
				t.Logf("mutant %q of %v: %v", m.name, algorithm, err)
			}
		}
	}
}
