package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/weirhttp"
)

var lateNodes = []lateness{
	{
		"one of three masters killed", "what the others have is decided by them, the rest by policy; charged is what was granted",
		oneMaster,
	},
	{
		"Redis stopped under weirhttp and stack in a program", "first answers within 260 ms, later ones 1 ms at p99; from Redis 1 s after its return",
		inAProgram,
	},
}

// oneMaster kills one master of three, which keep on disk what they answer.
func oneMaster(t *testing.T) verdict {
	t.Helper()
	cluster := testserver.StartCluster(t, 3, append(slices.Clone(kept), "--cluster-require-full-coverage", "no")...)
	for _, r := range cluster.Masters[1:] {
		// A slow disk would be an outage of theirs.
		if _, err := r.Do("CONFIG", "SET", "appendonly", "no"); err != nil {
			t.Fatal(err)
		}
	}
	f, h, c := openFront(t, "redis+cluster://"+strings.Join(cluster.Addrs(), ","), remote.Options{}), newHistory(), startControl()
	straight := straight(t, place{addrs: cluster.Addrs(), cluster: true})
	keys, dead := make([]string, 60), map[string]bool{}
	dies := cluster.Masters[0].Addr()
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
		// The first call finds out where keys are. Until then the client guesses, differently
		// each time.
		look := op{subject: booked, key: keys[i]}
		node := func() string {
			name, _, _ := straight.(remote.Store).Locate(storetest.NewAct(weir.Charge{Key: keys[i], Limit: booked.limit, Cost: 1}))
			return name
		}
		guessed := func() bool {
			first := node()
			return slices.ContainsFunc(make([]int, 64), func(int) bool { return node() != first })
		}
		for deadline := time.Now().Add(startTimeout); ; time.Sleep(lead / 10) {
			if look = h.ask(t.Context(), straight, look); look.err == nil && !guessed() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(look.err)
			}
		}
		dead[keys[i]] = node() == dies
	}
	// A server is ready once its client knows where keys are.
	h.note(h.ask(t.Context(), f, op{subject: booked, key: keys[0], cost: 1}))
	enough := h.crowdOf(16, 2*time.Millisecond, func(number int) op {
		o := op{caller: number, subject: booked, key: keys[rand.IntN(len(keys))], cost: 1, id: fmt.Sprint(number, "/", h.now())}
		o, _ = h.decided(f, o)
		return o
	})
	time.Sleep(300 * time.Millisecond)
	cluster.Masters[0].Kill()
	back := h.absent()
	time.Sleep(more(time.Second, 5))
	back()
	cluster.Masters[0].Restart()
	wellAgain(t, cluster)
	time.Sleep(backAgain)
	enough()
	f.settle(t)
	v := verdict{late: c.end(), most: 40 * time.Millisecond}
	v.measured, v.wrong = h.balance(t, straight, keys...)
	asked, elsewhere, meanwhile, theirs := 0, 0, 0, 0
	for i := range h.ops {
		o := &h.ops[i]
		if o.cost == 0 {
			continue
		}
		if asked++; o.byPolicy() && dead[o.key] {
			meanwhile++
		} else if o.byPolicy() {
			theirs++
		} else if dead[o.key] && o.call > h.away[0].from && o.ret < h.away[0].to {
			elsewhere++
		}
	}
	v.measured += fmt.Sprintf(" in %d calls; %d by policy of the dead master's, %d of the others'; %+v", asked, meanwhile, theirs, f.Stats())
	if meanwhile == 0 || elsewhere > 0 || 2*meanwhile > asked {
		v.wrong = errors.Join(v.wrong, errors.New(v.measured))
	}
	if theirs > 0 {
		v.slow = errors.New(v.measured)
	}
	return v
}

// wellAgain waits until the master that was killed serves.
func wellAgain(t *testing.T, c *testserver.Cluster) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(lead / 10) {
		if info, err := c.Masters[0].Do("CLUSTER", "INFO"); err == nil && strings.Contains(info, "cluster_state:ok") {
			return
		}
	}
	t.Error("the master that was killed does not serve again")
}

// inAProgram stops Redis under a program that has the library, with a client as it
// comes.
func inAProgram(t *testing.T) verdict {
	t.Helper()
	r := testserver.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	raw, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits := stack.New(raw, stack.Options{Remote: remote.Options{Policy: erring}})
	limiter, err := weir.NewLimiter(limits, "test", ledger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		_ = limits.Stop(ctx)
	})
	handler := weirhttp.Middleware(limiter, weirhttp.Options{Key: weirhttp.KeyByPath, FailClosed: true})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h, c := newHistory(), startControl()
	enough := h.crowdOf(8, 4*time.Millisecond, func(number int) op {
		if number%2 == 0 {
			return h.books(limits)(number)
		}
		return h.serves(handler, number)
	})
	time.Sleep(200 * time.Millisecond)
	r.Pause()
	back := h.absent()
	time.Sleep(more(600*time.Millisecond, 5))
	back()
	redisStops.end(t, r)
	time.Sleep(backAgain + 200*time.Millisecond)
	enough()
	p99 := c.percentile(99)
	v := verdict{late: c.end(), most: answeredWithin / 2}
	a := h.answers(v.late)
	v.measured, v.slow = a.judge(v.late, p99)
	if a.elsewhere > 0 {
		v.wrong = fmt.Errorf("%d answers by Redis while it was stopped", a.elsewhere)
	}
	return v
}

// serves has a handler serve one request.
func (h *history) serves(handler http.Handler, number int) op {
	o := op{caller: number, subject: booked, key: booked.name, cost: 1, call: h.now(), outcome: unapplied}
	answer := httptest.NewRecorder()
	began := time.Now()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	o.took, o.ret = time.Since(began), h.now()
	if answer.Code == http.StatusOK {
		o.outcome, o.Source = granted, acts.SourceStore
	}
	return o
}
