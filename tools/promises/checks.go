package promises

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A Finding is what a check measured.
type Finding struct {
	Text   string
	Broken bool // the promise does not hold
}

// A Check measures one promise of a limiter.
type Check struct {
	Name, Question string
	Run            func(t testing.TB, l Limiter) Finding
	// Ours is set if others need not promise it.
	Ours bool
}

// Checks are all, in the order of the table.
var Checks = []Check{
	{"exact", "a random schedule of 6 keys against a model in whole numbers, with a limit of 7 in 2 s and a burst of 5: wrong answers, or the most that was granted in 2 s where the limiter counts in windows", exact, false},
	{"refused is free", "of 5 units 3 are granted, 3 are refused, 2 are granted", refusedIsFree, false},
	{"retry", "a retry at the time that a refusal tells is granted; one 5 ms earlier is refused", retry, false},
	{"several instances", "3 instances and 16 callers on one Redis, a limit of 200: granted", shared, false},
	{"lost reply", "the reply of Redis is lost, and the caller repeats its call, with an ID where there is one: charged for one grant", lostReply, false},
	{"Redis hangs", "Redis stops for 2 s, a limit of 300: the longest call, and granted in all", hangs, false},
	{"Redis restarts empty", "after 0.5 s without Redis: errors", restarts, false},
	{"another limit", "used 10 of 10; 20, then 8, then 20 are granted: units granted after each change, where 10, 0 and 0 are right", anotherLimit, true},
	{"many keys", "a used-up key after 20 000 others, and two keys of 64 KiB that differ in their last byte", manyKeys, false},
}

const notApplicable = "–"

var clock = time.Now()

func now() int64 { return int64(time.Since(clock)) }

// A bench is a limiter with a store of its own.
type bench struct {
	t     testing.TB
	l     Limiter
	redis *testserver.Redis
}

func newBench(t testing.TB, l Limiter) *bench {
	b := &bench{t: t, l: l}
	if l.Redis {
		b.redis = testserver.StartRedis(t, l.RedisArgs...)
	}
	return b
}

func (b *bench) open(count, burst int, period time.Duration) Target {
	s := Setting{Count: count, Burst: burst, Period: period}
	if b.redis != nil {
		s.Redis = b.redis.Addr()
	}
	return b.l.Open(b.t, s, direct)
}

// takeAll takes single units until one is refused or fails.
func takeAll(d Target, key string, most int) (n int, err error) {
	for range most {
		a := d.Take(key, 1, "")
		if a.Err != nil || !a.Granted {
			return n, a.Err
		}
		n++
	}
	return n, nil
}

const day = 24 * time.Hour

func exact(t testing.TB, l Limiter) Finding {
	count, burst, period := 7, 5, 2*time.Second
	if l.WholeSeconds {
		period = time.Second
	}
	d := newBench(t, l).open(count, burst, period)
	var mu sync.Mutex
	var all sync.WaitGroup
	calls, wrong, most, first, failures := 0, 0, int64(0), "", 0
	for key := range 6 {
		all.Go(func() {
			m := newModel(Setting{Count: count, Burst: burst, Period: period})
			made, errs := schedule(d, fmt.Sprintf("key %d", key), uint64(key), period, l.NoCosts)
			mu.Lock()
			defer mu.Unlock()
			most = max(most, mostIn(made, period))
			failures += errs
			for _, c := range made {
				calls++
				if l.Family != Steady {
					continue
				}
				if why := m.judge(c); why != "" {
					wrong++
					first = why
				}
			}
		})
	}
	all.Wait()
	f := Finding{}
	switch l.Family {
	case Steady:
		f = Finding{fmt.Sprintf("%d of %d wrong", wrong, calls), wrong > 0}
		if wrong > 0 {
			f.Text += ", such as " + first
		}
	default:
		f = Finding{fmt.Sprintf("%d of %d in %v", most, count, period), most > int64(count)}
	}
	if failures > 0 {
		f.Text += fmt.Sprintf("; %d errors", failures)
	}
	return f
}

// schedule makes calls of a key at random times for about six seconds.
func schedule(d Target, key string, seed uint64, period time.Duration, single bool) (made []call, errs int) {
	r := rand.New(rand.NewPCG(seed, 42))
	for end := now() + int64(6*time.Second); now() < end; {
		cost := 1
		if !single && r.IntN(4) == 0 {
			cost += r.IntN(3)
		}
		began := now()
		a := d.Take(key, cost, "")
		returned := now()
		if a.Err != nil {
			errs++
		} else {
			made = append(made, call{began, returned, int64(cost), a.Granted})
		}
		switch p := r.Float64(); {
		case p < 0.05:
			time.Sleep(time.Duration((0.3 + r.Float64()) * float64(period)))
		case p < 0.5:
			time.Sleep(time.Duration(r.ExpFloat64() * float64(60*time.Millisecond)))
		}
	}
	return made, errs
}

func refusedIsFree(t testing.TB, l Limiter) Finding {
	if l.NoCosts {
		return Finding{Text: notApplicable}
	}
	d := newBench(t, l).open(5, 5, day)
	a, b, c := d.Take("key", 3, ""), d.Take("key", 3, ""), d.Take("key", 2, "")
	if err := errors.Join(a.Err, b.Err, c.Err); err != nil {
		return Finding{short(err), true}
	}
	if !a.Granted || b.Granted {
		return Finding{"another bound", true}
	}
	if !c.Granted {
		return Finding{"no: refused calls are charged", true}
	}
	return Finding{Text: "yes"}
}

func retry(t testing.TB, l Limiter) Finding {
	period := 2 * time.Second
	if l.WholeSeconds {
		period = time.Second
	}
	d := newBench(t, l).open(7, 5, period)
	var mu sync.Mutex
	var all sync.WaitGroup
	told, granted, early, refused, least, whole := 0, 0, 0, 0, time.Hour, true
	for i := range 12 {
		all.Go(func() {
			time.Sleep(time.Duration(i*37) * time.Millisecond)
			key := fmt.Sprintf("key %d", i)
			var a Answer
			var began, returned int64
			for range 100 {
				began = now()
				a = d.Take(key, 1, "")
				returned = now()
				if a.Err != nil || !a.Granted {
					break
				}
			}
			if a.Err != nil || a.Granted || a.Retry < 0 {
				return
			}
			mu.Lock()
			told, least, whole = told+1, min(least, a.Retry), whole && a.Retry%time.Second == 0
			mu.Unlock()
			if wait := a.Retry - 12*time.Millisecond; wait > 0 {
				sleepUntil(began + int64(wait))
				b := d.Take(key, 1, "")
				if now() < began+int64(a.Retry-5*time.Millisecond) { // else the machine was too slow to tell
					mu.Lock()
					early++
					if !b.Granted {
						refused++
					}
					mu.Unlock()
				}
				if b.Granted {
					return
				}
			}
			sleepUntil(returned + int64(a.Retry+time.Millisecond))
			b := d.Take(key, 1, "")
			mu.Lock()
			defer mu.Unlock()
			if b.Granted {
				granted++
			} else {
				granted -= 1000
			}
		})
	}
	all.Wait()
	if told == 0 {
		return Finding{"tells no time", true}
	}
	switch {
	case granted < 0:
		return Finding{fmt.Sprintf("too early, such as %v", least), true}
	case whole:
		return Finding{Text: "true, in whole seconds"}
	case refused < early:
		return Finding{fmt.Sprintf("later than needed: %d of %d were granted before", early-refused, early), true}
	}
	return Finding{Text: "true"}
}

func sleepUntil(instant int64) { time.Sleep(time.Duration(instant - now())) }

func shared(t testing.TB, l Limiter) Finding {
	if !l.Redis {
		return Finding{Text: notApplicable}
	}
	const limit, callers = 200, 16
	b := newBench(t, l)
	var targets []Target
	for range 3 {
		targets = append(targets, b.open(limit, limit, day))
	}
	var granted, errs atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range 40 {
				switch a := targets[(caller+i)%len(targets)].Take("key", 1, ""); {
				case a.Err != nil:
					errs.Add(1)
				case a.Granted:
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	f := Finding{fmt.Sprintf("%d of %d", granted.Load(), limit), granted.Load() != limit}
	if n := errs.Load(); n > 0 {
		f.Text += fmt.Sprintf(", %d errors", n)
	}
	return f
}

// charges reports whether a request may charge: it is not the upload of a script, nor a question.
func charges(request []byte) bool {
	upper := bytes.ToUpper(request)
	return slices.ContainsFunc([]string{"EVAL", "FCALL", "INCRBY", "THROTTLE", "\r\nSET\r\n"}, func(c string) bool { return bytes.Contains(upper, []byte(c)) })
}

func lostReply(t testing.TB, l Limiter) Finding {
	if l.Cached {
		return Finding{Text: notApplicable}
	}
	if !l.Redis {
		return lostAnswer(t, l)
	}
	b := newBench(t, l)
	var armed atomic.Bool
	proxy := testserver.StartProxy(t, b.redis.Addr(), func(request []byte) testserver.Fault {
		if charges(request) && armed.CompareAndSwap(true, false) {
			return testserver.Drop
		}
		return testserver.Pass
	})
	d := l.Open(t, Setting{Count: 10, Burst: 10, Period: day, Redis: proxy.Addr()}, direct)
	for range 2 {
		_ = d.Take("another", 1, "") // scripts are uploaded, connections made
	}
	time.Sleep(1200 * time.Millisecond)
	armed.Store(true)
	return repeat(d, func() bool { return proxy.Done(testserver.Drop) == 1 })
}

// lostAnswer loses the answer of the listener itself.
func lostAnswer(t testing.TB, l Limiter) Finding {
	var drop atomic.Bool
	var lost atomic.Int64
	behind := false
	d := newBench(t, l).l.Open(t, Setting{Count: 10, Burst: 10, Period: day}, func(address string) string {
		behind = true
		return loseOne(t, address, &drop, &lost)
	})
	if !behind {
		return Finding{Text: notApplicable}
	}
	_ = d.Take("another", 1, "")
	drop.Store(true)
	return repeat(d, func() bool { return lost.Load() == 1 })
}

// repeat makes a call until it has an answer, and counts what it was charged.
func repeat(d Target, lost func() bool) Finding {
	a := d.Take("key", 1, "call 1")
	tries := 1
	for ; a.Err != nil && tries < 4; tries++ {
		time.Sleep(300 * time.Millisecond)
		a = d.Take("key", 1, "call 1")
	}
	if !lost() {
		return Finding{"no reply was lost", true}
	}
	left, err := takeAll(d, "key", 30)
	if err != nil {
		return Finding{short(err), true}
	}
	charged := 10 - left
	text := fmt.Sprint(charged)
	if charged > 1 && tries == 1 {
		text += ", without an error"
	}
	return Finding{text, charged != 1}
}

// loseOne returns the address of a proxy that closes a connection instead of one answer.
func loseOne(t testing.TB, to string, drop *atomic.Bool, lost *atomic.Int64) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			open.Go(func() { forward(server, client, func([]byte) bool { return true }) })
			open.Go(func() {
				forward(client, server, func([]byte) bool {
					if drop.CompareAndSwap(true, false) {
						lost.Add(1)
						return false
					}
					return true
				})
			})
		}
	}()
	return listener.Addr().String()
}

// forward copies until either side closes, or pass refuses.
func forward(to, from net.Conn, pass func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	p := make([]byte, 64<<10)
	for {
		n, err := from.Read(p)
		if err != nil || !pass(p[:n]) {
			return
		}
		if _, err := to.Write(p[:n]); err != nil {
			return
		}
	}
}

// underLoad has four callers take single units until the function returns. It returns how many
// were granted, the longest call, and the calls that ended with an error.
func underLoad(d Target, during func()) (granted, errs int64, longest time.Duration) {
	var stop atomic.Bool
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				began := now()
				a := d.Take("key", 1, "")
				took := time.Duration(now() - began)
				mu.Lock()
				longest = max(longest, took)
				switch {
				case a.Err != nil:
					errs++
				case a.Granted:
					granted++
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	during()
	stop.Store(true)
	all.Wait()
	return granted, errs, longest
}

func hangs(t testing.TB, l Limiter) Finding {
	if !l.Redis {
		return Finding{Text: notApplicable}
	}
	const limit = 300
	b := newBench(t, l)
	d := b.open(limit, limit, day)
	_, _ = takeAll(d, "key", 50)
	granted, errs, longest := underLoad(d, func() {
		time.Sleep(300 * time.Millisecond)
		b.redis.Pause()
		time.Sleep(2 * time.Second)
		b.redis.Resume()
		time.Sleep(2500 * time.Millisecond)
	})
	rest, err := takeAll(d, "key", 2*limit)
	total := 50 + int(granted) + rest
	f := Finding{fmt.Sprintf("%.2f s; %d of %d", longest.Seconds(), total, limit), total > limit}
	if errs > 0 {
		f.Text += fmt.Sprintf("; %d errors", errs)
	}
	if err != nil {
		f.Text += ", then " + short(err)
	}
	return f
}

func restarts(t testing.TB, l Limiter) Finding {
	if !l.Redis {
		return Finding{Text: notApplicable}
	}
	b := newBench(t, l)
	d := b.open(300, 300, day)
	_, _ = takeAll(d, "key", 50)
	_, errs, longest := underLoad(d, func() {
		time.Sleep(300 * time.Millisecond)
		b.redis.Kill()
		time.Sleep(500 * time.Millisecond)
		b.redis.Restart()
		time.Sleep(2 * time.Second)
	})
	if errs == 0 {
		return Finding{Text: fmt.Sprintf("none; longest call %.2f s", longest.Seconds())}
	}
	return Finding{Text: fmt.Sprintf("%d; longest call %.2f s", errs, longest.Seconds())}
}

func anotherLimit(t testing.TB, l Limiter) Finding {
	b := newBench(t, l)
	d := b.open(10, 10, day)
	_, _ = takeAll(d, "key", 30)
	how := ""
	var got []int
	for _, count := range []int{20, 8, 20} {
		s := Setting{Count: count, Burst: count, Period: day}
		if b.redis != nil {
			s.Redis = b.redis.Addr()
		}
		if !d.Change(s) {
			if !l.Redis {
				return Finding{Text: "takes a new one, which has forgotten"}
			}
			how = ", by a new one"
			d = l.Open(t, s, direct)
		}
		n, err := takeAll(d, "key", 60)
		if err != nil {
			return Finding{short(err), true}
		}
		got = append(got, n)
	}
	return Finding{fmt.Sprintf("%d, %d, %d%s", got[0], got[1], got[2], how), !slices.Equal(got, []int{10, 0, 0})}
}

func manyKeys(t testing.TB, l Limiter) Finding {
	d := newBench(t, l).open(3, 3, day)
	_, _ = takeAll(d, "victim", 5)
	var all sync.WaitGroup
	var errs atomic.Int64
	for w := range 16 {
		all.Go(func() {
			for i := range 1250 {
				if d.Take(fmt.Sprintf("key %d %d", w, i), 1, "").Err != nil {
					errs.Add(1)
				}
			}
		})
	}
	all.Wait()
	again, err := takeAll(d, "victim", 5)
	long := strings.Repeat("L", 65535)
	first, firstErr := takeAll(d, long+"1", 5)
	second, secondErr := takeAll(d, long+"2", 5)
	f := Finding{Text: "remembered"}
	switch {
	case err != nil:
		f = Finding{short(err), true}
	case again > 0:
		f = Finding{fmt.Sprintf("forgotten: %d more", again), true}
	}
	switch {
	case firstErr != nil && secondErr != nil && first+second == 0:
		f.Text += "; long keys are refused"
	case first != 3 || second != 3:
		f.Text, f.Broken = f.Text+fmt.Sprintf("; long keys share: %d and %d", first, second), true
	default:
		f.Text += "; apart"
	}
	if n := errs.Load(); n > 0 {
		f.Text += fmt.Sprintf("; %d errors", n)
	}
	return f
}

// short returns an error in a few words.
func short(err error) string {
	text := strings.NewReplacer("|", "/", "\n", " ").Replace(err.Error())
	if len(text) > 60 {
		text = text[:60] + "…"
	}
	return text
}
