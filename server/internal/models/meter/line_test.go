package meter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// TestLineIsFair wants callers to take turns, requests of one caller to go in their order, and one
// that was refused again to go first.
func TestLineIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l line
		var mu sync.Mutex
		var order []string
		until := time.Now().Add(time.Hour)
		join := func(name string, tried bool) {
			w := &waiter{caller: name[:1], tried: tried}
			go func() {
				if l.wait(t.Context(), nil, "k", w, 0, time.Hour, until) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		join("a0", true)
		for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
			join(name, false)
		}
		if l.busy([]string{"x", "k"}) != "k" || l.busy([]string{"x"}) != "" {
			t.Error("the line is not known")
		}
		for range 8 {
			l.wake("k", "x")
			synctest.Wait()
		}
		if got, want := fmt.Sprint(order), "[a0 a1 b1 c1 a2 b2 a3]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if len(l.queues) > 0 || len(l.callers) > 0 || l.waiting > 0 {
			t.Errorf("%d wait still", l.waiting)
		}
	})
}

// TestLineIsLeft wants a request to leave the line with its client, at its deadline and at a stop,
// and to hand its turn on; one that has never tried tries at its deadline.
func TestLineIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name    string
			tried   bool
			end     func(cancel context.CancelFunc, stop chan struct{})
			again   bool
			seconds float64
		}{
			{"the client leaves", true, func(cancel context.CancelFunc, _ chan struct{}) { cancel() }, false, 0},
			{"a stop", true, func(_ context.CancelFunc, stop chan struct{}) { close(stop) }, false, 0},
			{"the deadline", true, func(context.CancelFunc, chan struct{}) {}, false, 10},
			{"the deadline of one that has not tried", false, func(context.CancelFunc, chan struct{}) {}, true, 10},
		} {
			var l line
			ctx, cancel := context.WithCancel(t.Context())
			stop, began := make(chan struct{}), time.Now()
			until := began.Add(10 * time.Second)
			ahead := make(chan bool, 1)
			if !c.tried {
				go func() {
					ahead <- l.wait(ctx, nil, "k", &waiter{caller: "z", tried: true}, 0, time.Hour, began.Add(time.Hour))
				}()
				synctest.Wait()
			}
			result := make(chan bool, 1)
			go func() { result <- l.wait(ctx, stop, "k", &waiter{caller: "a", tried: c.tried}, 0, time.Hour, until) }()
			synctest.Wait()
			next := make(chan bool, 1)
			go func() { next <- l.wait(t.Context(), nil, "k", &waiter{caller: "b"}, 0, 0, began.Add(time.Hour)) }()
			synctest.Wait()
			c.end(cancel, stop)
			if again := <-result; again != c.again || time.Since(began).Seconds() != c.seconds {
				t.Errorf("%s: %t after %v", c.name, again, time.Since(began))
			}
			synctest.Wait()
			if c.tried && (len(next) != 1 || !<-next) {
				t.Errorf("%s: the next one does not try", c.name)
			}
			cancel()
			synctest.Wait()
			l.wake("k")
			synctest.Wait()
			if l.waiting > 0 {
				t.Errorf("%s: %d wait still", c.name, l.waiting)
			}
		}
		var l line
		// A hold ended between the refusal and the wait.
		l.endedAt(nil)
		if !l.wait(t.Context(), nil, "k", &waiter{caller: "a", tried: true}, 0, time.Hour, time.Now().Add(time.Hour)) || l.waiting > 0 {
			t.Error("room that came is missed")
		}
		// There is room for so many of one caller, and so many in all.
		for i := range maxWaitingOfOne + 1 {
			if entered := l.enter("k", &waiter{caller: "a"}); entered != (i < maxWaitingOfOne) {
				t.Errorf("request %d: %t", i, entered)
			}
		}
		for i := range maxWaiting - maxWaitingOfOne + 1 {
			if entered := l.enter("k", &waiter{caller: fmt.Sprint(i)}); entered != (i < maxWaiting-maxWaitingOfOne) {
				t.Errorf("caller %d: %t", i, entered)
			}
		}
	})
}

// TestWait wants requests that fit to get in, all of them, though they come at once, and nobody to
// wait for what cannot come.
func TestWait(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		for _, c := range []struct {
			name, rules string
			requests    int
			output      int64
			granted     int // of them, and the same without a line if they come one by one
			code        string
		}{
			{"slots", limited("requests_per_unit: 3, period: 30s, algorithm: concurrency"), 30, 1, 30, ""},
			// 80 are held of 100 and 10 used: one at a time until 20 and less are left.
			{"dollars of a day", limited("count: usd, dollars: 0.5, unit: day, algorithm: fixed_window, anchor: first"), 60, 9, 41, "insufficient_quota"},
			{"a limit that drains", limited("requests_per_unit: 20, unit: second, burst: 1, algorithm: gcra"), 20, 1, 20, ""},
		} {
			t.Run(store+" "+c.name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, c.rules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					fmt.Fprintf(w, `{"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, c.output)
				}), open, func(o *Options) { o.Wait = time.Minute })
				var granted, others atomic.Int64
				var done sync.WaitGroup
				for range c.requests {
					done.Go(func() {
						switch a := b.post(chatPath, chatBody); {
						case a.StatusCode == http.StatusOK:
							granted.Add(1)
						case a.StatusCode != http.StatusTooManyRequests || c.code == "" || errorOf(t, a.text)["code"] != c.code:
							t.Errorf("%d %s", a.StatusCode, a.text)
						default:
							others.Add(1)
						}
					})
				}
				done.Wait()
				if granted.Load() != int64(c.granted) || others.Load() != int64(c.requests-c.granted) {
					t.Errorf("%d are granted and %d refused, want %d of %d", granted.Load(), others.Load(), c.granted, c.requests)
				}
				b.seen.do(func() {
					if b.seen.waiting != 0 {
						t.Errorf("%d wait still", b.seen.waiting)
					}
				})
				if b.proxy.line.waiting > 0 || len(b.proxy.line.queues) > 0 {
					t.Errorf("%d are in the line", b.proxy.line.waiting)
				}
			})
		}
	}
}

// TestWaitHeader wants a client to wait for less, and never for more, than the operator allows, and
// the header to go no further.
func TestWaitHeader(t *testing.T) {
	t.Parallel()
	release := make(chan bool)
	arrived := make(chan http.Header, 3)
	b := newBench(t, limited("requests_per_unit: 1, period: 30s, algorithm: concurrency"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		<-release
	}), func(o *Options) { o.Wait = time.Minute })
	send := func(wait string) answered {
		r := b.request(http.MethodPost, chatPath, chatBody)
		r.Header.Set(waitHeader, wait)
		return b.send(r)
	}
	var done sync.WaitGroup
	done.Go(func() { send("50s") })
	if header := <-arrived; header.Get(waitHeader) != "" {
		t.Error("the header is forwarded")
	}
	if a := send("0s"); a.StatusCode != http.StatusTooManyRequests || !strings.Contains(a.text, "1 at once") {
		t.Errorf("%d %s", a.StatusCode, a.text)
	}
	if a := send("1ms"); a.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%d %s", a.StatusCode, a.text)
	}
	for _, wrong := range []string{"5", "-1s", "soon"} {
		if a := send(wrong); a.StatusCode != http.StatusBadRequest || !strings.Contains(a.text, "Weir-Wait") {
			t.Errorf("%s: %d %s", wrong, a.StatusCode, a.text)
		}
	}
	close(release)
	done.Wait()
	if d, err := b.proxy.waitOf(&http.Request{Header: http.Header{waitHeader: {"1h"}}}); d != time.Minute || err != nil {
		t.Errorf("%v, %v", d, err)
	}
}

// TestWaitElsewhere wants requests that wait at two instances to get the slots that the other one
// releases.
func TestWaitElsewhere(t *testing.T) {
	t.Parallel()
	text := limited("requests_per_unit: 2, period: 30s, algorithm: concurrency")
	var store weir.Taker
	waits := func(o *Options) { o.Wait = time.Minute }
	one := newBench(t, text, reporting(1, 1), stores(t)["redis"], waits, func(o *Options) { store = o.Taker })
	other := newBench(t, text, reporting(1, 1), func(o *Options) { o.Taker = store }, waits)
	var done sync.WaitGroup
	for i := range 24 {
		done.Go(func() {
			if a := []*bench{one, other}[i%2].post(chatPath, chatBody); a.StatusCode != http.StatusOK {
				t.Errorf("%d %s", a.StatusCode, a.text)
			}
		})
	}
	done.Wait()
}

// TestRightsLostInLine wants a caller that is removed from the file while its request waits
// refused.
func TestRightsLostInLine(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan bool), make(chan bool)
	with, name := withCallersIn(t, people(map[string]string{"ann": "company: acme", "bo": "company: acme"}))
	text := "domain: llm\ndescriptors: [{key: company, rate_limit: {name: open, requests_per_unit: 1, period: 30s, algorithm: concurrency}}]\n"
	b := newBench(t, text, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- true
		<-release
	}), with, func(o *Options) { o.Wait = time.Minute })
	var done sync.WaitGroup
	done.Go(func() { b.as("bo", chatBody) })
	<-arrived
	done.Go(func() {
		if a := b.as("ann", chatBody); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "lost its rights") {
			t.Errorf("%d %s", a.StatusCode, a.text)
		}
	})
	b.eventually("the wait", func() (waits bool) {
		b.seen.do(func() { waits = b.seen.waiting == 1 })
		return waits
	})
	if err := os.WriteFile(name, []byte(people(map[string]string{"bo": "company: acme"})), 0o600); err != nil {
		t.Fatal(err)
	}
	b.eventually("the new file", func() bool {
		r := b.request(http.MethodGet, "/v1/me", "")
		r.Header.Set("Authorization", "Bearer "+tokenOf("ann"))
		return b.send(r).StatusCode == http.StatusUnauthorized
	})
	close(release)
	done.Wait()
}
