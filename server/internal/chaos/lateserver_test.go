package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

var lateProcesses = []lateness{
	{
		"24 HTTP clients and 4 busy loops on the cores of a server, Redis is well", "of each algorithm's limit neither more nor less",
		busyCores,
	},
	{
		"a server frozen for 90 ms, at random, HTTP", "of each algorithm's limit neither more nor less; no outage",
		frozenServer,
	},
	{
		"a server frozen for 90 ms, at random, gRPC with a deadline of 20 ms", "no more than each algorithm's limit, and no less with the calls that had no answer",
		frozenRLS,
	},
	{
		"Redis takes 30 ms a call, HTTP", "all answers by Redis, of each algorithm's limit neither more nor less",
		slowRedis,
	},
	{
		"Redis stopped under RESP", "first answers within 260 ms, later ones 1 ms at p99",
		overRESP,
	},
}

// serveOn starts a server on the Redis at an address, as it is by default.
func serveOn(t *testing.T, addr string, more ...string) *instance {
	t.Helper()
	args := append([]string{"--timeout", "1s", "--store-timeout", "250ms"}, more...)
	return serve(t, "redis://"+addr, args...)
}

// exactly are keys of the rules file and how many units each has for ever.
var exactly = map[string]int{
	"late_concurrency": 11, "late_gcra": 31, "late_leaky_bucket": 1, "late_token_bucket": 19, "late_fixed_window": 29,
	"late_sliding_log": 23, "late_sliding_counter": 21, "late_rolling_window": 17,
}

const (
	lateClients = 24
	lateAsked   = 100 // of each limit
)

// A poll is what clients were told under one limit.
type poll struct{ granted, refused, unanswered, undecided, other atomic.Int64 }

// poll has clients ask each limit in turn, more often than it has units, and compares
// what they were granted. It returns how many decisions were by policy.
func (i *instance) poll(t *testing.T, v *verdict, limits map[string]int, rounds int, ask func(key, value string, p *poll)) (local int) {
	t.Helper()
	var beyond, left error
	tooMany, tooFew, calls, unanswered, undecided := 0, 0, 0, 0, 0
	for round := range rounds {
		for key, n := range limits {
			var p poll
			var clients sync.WaitGroup
			var asked atomic.Int64
			for range lateClients {
				clients.Go(func() {
					for asked.Add(1) <= lateAsked {
						ask(key, strconv.Itoa(round), &p)
					}
				})
			}
			clients.Wait()
			calls += lateAsked
			granted, missing := int(p.granted.Load()), int(p.unanswered.Load())
			unanswered += missing
			tooMany += max(0, granted-n)
			late := int(p.undecided.Load())
			undecided += late
			tooFew += max(0, n-granted-missing-late)
			err := fmt.Errorf("%s: %d of %d granted, %d refused, %d unanswered, %d undecided, %d something else",
				key, granted, n, p.refused.Load(), missing, late, p.other.Load())
			if granted > n || p.other.Load() > 0 || late > lateClients {
				beyond = errors.Join(beyond, err)
			} else if late > 0 || granted+missing < n {
				left = errors.Join(left, err)
			}
		}
	}
	local = i.figure(t, "weir_fallback_local_total")
	v.poll(beyond, left, local+undecided)
	v.measured = fmt.Sprintf("%d calls, %d too many, %d too few, %d decisions by policy", calls, tooMany, tooFew, local)
	if unanswered > 0 {
		v.measured += fmt.Sprintf(", %d without an answer in time", unanswered)
	}
	return local
}

// asksHTTP asks as nginx does.
func (i *instance) asksHTTP(t *testing.T) func(key, value string, p *poll) {
	clients := newClient(t)
	return func(key, value string, p *poll) {
		status, _, err := get(context.Background(), clients, fmt.Sprintf("http://%s/v1/auth?domain=chaos&%s=%s", i.http, key, value))
		p.note(t, status, err)
	}
}

func (p *poll) note(t *testing.T, status int, err error) {
	switch {
	case status == http.StatusNoContent:
		p.granted.Add(1)
	case status == http.StatusTooManyRequests || status == http.StatusForbidden:
		p.refused.Add(1)
	case status == http.StatusServiceUnavailable:
		// Only the store decides a take with an ID, and on a late machine some replies are late.
		p.undecided.Add(1)
	default:
		t.Logf("status %d, %v", status, err)
		p.other.Add(1)
	}
}

// figure is a metric of the server.
func (i *instance) figure(t *testing.T, name string) int {
	t.Helper()
	_, body, err := get(t.Context(), newClient(t), "http://"+i.admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(body), "\n"+name+" ")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(text, 64)
	if !found || err != nil {
		t.Fatalf("%s: %q, %v", name, text, err)
	}
	return int(n)
}

// busyCores asks while loops take the processors.
func busyCores(t *testing.T) verdict {
	t.Helper()
	i := serveOn(t, testserver.StartRedis(t).Addr())
	for range 4 {
		start(t, "sh", "-c", "while :; do :; done")
	}
	ask := i.asksHTTP(t)
	if *full {
		ask = i.asksCurl(t)
	}
	c := startControl()
	v := verdict{most: answeredWithin}
	i.poll(t, &v, exactly, more(1, 20), ask)
	v.measured += fmt.Sprintf("; %d outages", i.figure(t, "weir_store_outages_total"))
	v.late = c.end()
	return v
}

// asksCurl asks by a process for each call.
func (i *instance) asksCurl(t *testing.T) func(key, value string, p *poll) {
	t.Helper()
	curl := testserver.Require(t, "curl")
	return func(key, value string, p *poll) {
		out, err := exec.Command(curl, "-s", "-o", "/dev/null", "-w", "%{http_code}",
			fmt.Sprintf("http://%s/v1/auth?domain=chaos&%s=%s", i.http, key, value)).Output()
		status, _ := strconv.Atoi(string(out))
		p.note(t, status, err)
	}
}

// freeze stops the server for 90 ms over and over, until the function that it returns is
// called.
func (i *instance) freeze() (enough func() int) {
	ctx, stop := context.WithCancel(context.Background())
	var freezing sync.WaitGroup
	times := 0
	freezing.Go(func() {
		for ; ctx.Err() == nil; times++ {
			pause(ctx, 10*time.Millisecond+rand.N(150*time.Millisecond))
			_ = i.Cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(90 * time.Millisecond)
			_ = i.Cmd.Process.Signal(syscall.SIGCONT)
		}
	})
	return func() int {
		stop()
		freezing.Wait()
		return times
	}
}

// frozenServer stops the server now and then.
func frozenServer(t *testing.T) verdict {
	t.Helper()
	i := serveOn(t, testserver.StartRedis(t).Addr())
	ask, c, thaw := i.asksHTTP(t), startControl(), i.freeze()
	v := verdict{most: 40 * time.Millisecond}
	i.poll(t, &v, exactly, more(3, 10), func(key, value string, p *poll) {
		time.Sleep(rand.N(8 * time.Millisecond))
		ask(key, value, p)
	})
	return v.frozen(t, i, thaw(), c)
}

// frozen adds what the server says of itself: there was no outage.
func (v verdict) frozen(t *testing.T, i *instance, times int, c *control) verdict {
	t.Helper()
	outages := i.figure(t, "weir_store_outages_total")
	if v.late = c.end(); outages > 0 {
		v.slow = errors.Join(v.slow, fmt.Errorf("%d outages of a Redis that was well", outages))
	}
	v.measured += fmt.Sprintf("; %d times frozen, %d outages", times, outages)
	return v
}

// frozenRLS does the same under clients that wait for 20 ms.
func frozenRLS(t *testing.T) verdict {
	t.Helper()
	i := serveOn(t, testserver.StartRedis(t).Addr())
	clients, limits := map[string]loadtest.Client{}, maps.Clone(exactly)
	delete(limits, "late_concurrency") // whose holders have no names here
	for key := range limits {
		c, err := loadtest.DialRLS(i.grpc, loadtest.ClientOptions{Connections: 4, Domain: "chaos", Entry: key})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Allow(t.Context(), "connected"); err != nil {
			t.Fatal(err)
		}
		clients[key] = c
	}
	c, thaw := startControl(), i.freeze()
	v := verdict{most: 40 * time.Millisecond}
	i.poll(t, &v, limits, more(3, 10), func(key, value string, p *poll) {
		time.Sleep(rand.N(8 * time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		switch passes, err := clients[key].Allow(ctx, value); {
		case err != nil:
			p.unanswered.Add(1)
		case passes:
			p.granted.Add(1)
		default:
			p.refused.Add(1)
		}
	})
	return v.frozen(t, i, thaw(), c)
}

// slowRedis has every request wait.
func slowRedis(t *testing.T) verdict {
	t.Helper()
	var slow atomic.Bool
	proxy := testserver.StartProxy(t, testserver.StartRedis(t).Addr(), func([]byte) testserver.Fault {
		if slow.Load() {
			time.Sleep(30 * time.Millisecond)
		}
		return testserver.Pass
	})
	i := serveOn(t, proxy.Addr())
	slow.Store(true)
	c := startControl()
	v := verdict{most: 100 * time.Millisecond}
	local := i.poll(t, &v, exactly, more(1, 10), i.asksHTTP(t))
	if v.late = c.end(); local > 0 {
		v.slow = errors.Join(v.slow, errors.New(v.measured))
	}
	return v
}

// overRESP stops Redis under clients that ask as they ask Redis.
func overRESP(t *testing.T) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	addr := testserver.FreeAddr(t)
	serveOn(t, r.Addr(), "--resp", addr)
	clients := redis.NewClient(options(addr, startTimeout))
	defer clients.Close()
	h, c := newHistory(), startControl()
	enough := h.crowdOf(8, 4*time.Millisecond, func(number int) op {
		o := op{caller: number, subject: booked, key: booked.name, cost: 1, call: h.now(), outcome: failed}
		began := time.Now()
		if o.err = clients.Do(context.Background(), "CL.THROTTLE", "k", 1_000_000, 1_000_000, 60).Err(); o.err == nil {
			o.outcome, o.Source = granted, acts.SourceStore // who decided is not told
		}
		o.took, o.ret = time.Since(began), h.now()
		return o
	})
	time.Sleep(200 * time.Millisecond)
	r.Pause()
	back := h.absent()
	time.Sleep(more(600*time.Millisecond, 5))
	back()
	redisStops.end(t, r)
	time.Sleep(backAgain)
	enough()
	p99 := c.percentile(99)
	v := verdict{late: c.end(), most: answeredWithin / 2}
	a := h.answers(v.late)
	if v.measured, v.slow = a.judge(v.late, p99); h.count(failed) > 0 {
		v.wrong = fmt.Errorf("%d calls failed", h.count(failed))
	}
	return v
}
