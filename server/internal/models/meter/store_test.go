package meter

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/models/mockmodel"
	"github.com/weirlimit/weir/server/internal/rules"
)

// stores are memory and Redis. Each bench that opens one has limits of its own.
func stores(t *testing.T) map[string]func(*Options) {
	t.Helper()
	addr := testserver.StartRedis(t).Addr()
	var opened atomic.Int64
	return map[string]func(*Options){
		"memory": func(o *Options) { o.Taker = memengine.New(memengine.Options{}) },
		"redis": func(o *Options) {
			o.Taker = redisAt(t, addr, fmt.Sprint(opened.Add(1), ":"))
		},
	}
}

// redisAt returns a store whose client ends with the test.
func redisAt(t *testing.T, addr, prefix string) *redisengine.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisengine.New(client, redisengine.Options{Prefix: prefix, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// wantUsed waits until the key has used so much, and holds no slot.
func (b *bench) wantUsed(requests, input, output int64) {
	b.t.Helper()
	want := [4]int64{requests, input, output, 0}
	var got [4]int64
	for deadline := time.Now().Add(20 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		used := b.used(secretKey, "mock")
		got = [4]int64{used["rpm"], used["input"], used["output"], used["open"]}
	}
	if got != want {
		b.t.Errorf("requests, input, output and slots used are %v, want %v", got, want)
	}
}

// reporting is an upstream that reports usage.
func reporting(input, output int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, input, output)
	})
}

// TestDebt wants a request to be charged beyond its hold, even beyond the limit, and nobody
// to be admitted until that has drained. A limit records one full drain beyond its count.
func TestDebt(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		for _, c := range []struct {
			limit                       string
			output                      int64
			under, unrecorded           int64
			leastRetry, mostRetry, used int64
		}{
			{"requests_per_unit: 100, unit: minute, algorithm: gcra", 150, 70, 0, 60, 79, 100},
			{"requests_per_unit: 100, unit: minute, algorithm: gcra", 900, 820, 700, 60, 108, 100},
			{"requests_per_unit: 100, unit: hour, algorithm: fixed_window, anchor: first", 150, 70, 0, 3500, 3600, 100},
		} {
			t.Run(fmt.Sprintf("%s %s %d", store, c.limit, c.output), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, limited("count: output, "+c.limit), reporting(1, c.output), open)
				if a := b.post(chatPath, chatBody); a.StatusCode != http.StatusOK {
					t.Fatalf("%d %s", a.StatusCode, a.text)
				}
				a := b.post(chatPath, chatBody)
				retry, _ := strconv.ParseInt(a.Header.Get("Retry-After"), 10, 64)
				if a.StatusCode != http.StatusTooManyRequests || retry < c.leastRetry || retry > c.mostRetry {
					t.Errorf("%d after %d s, want one of %d to %d s: %s", a.StatusCode, retry, c.leastRetry, c.mostRetry, a.text)
				}
				if used := b.used(secretKey, "mock")["it"]; used != c.used {
					t.Errorf("%d are used", used)
				}
				b.seen.do(func() {
					if b.seen.under["it"] != c.under || b.seen.unrecorded["it"] != c.unrecorded {
						t.Errorf("underestimated %v, not recorded %v", b.seen.under, b.seen.unrecorded)
					}
				})
			})
		}
	}
}

// TestDescriptors wants the caller, the model and both together charged at once, or none.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	const text = "domain: llm\ndescriptors:\n" +
		"  - {key: key, rate_limit: {name: key, count: output, requests_per_unit: 1000, unit: hour, algorithm: fixed_window}, descriptors: [\n" +
		"      {key: model, rate_limit: {name: both, requests_per_unit: 2, unit: hour, algorithm: fixed_window}}]}\n" +
		"  - {key: model, rate_limit: {name: model, count: input, requests_per_unit: 100000, unit: hour, algorithm: fixed_window}}\n"
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, text, reporting(9, 4), open)
			for _, status := range []int{200, 200, 429} {
				if a := b.post(chatPath, chatBody); a.StatusCode != status || status == 429 && a.Header.Get("Weir-Limit") != "both" {
					t.Errorf("%d %v %s", a.StatusCode, a.Header, a.text)
				}
			}
			for _, c := range []struct {
				key, model string
				want       map[string]int64
			}{
				{secretKey, "mock", map[string]int64{"key": 8, "both": 2, "model": 18}},
				{secretKey, "other", map[string]int64{"key": 8, "both": 0, "model": 0}},
				{"other", "mock", map[string]int64{"key": 0, "both": 0, "model": 18}},
			} {
				if diff := cmp.Diff(c.want, b.used(c.key, c.model)); diff != "" {
					t.Errorf("%s, %s (-want +got):\n%s", c.key, c.model, diff)
				}
			}
		})
	}
}

// TestEachTry wants each try of a client to be a request, with the client's key for
// repeats passed on, and an ID of its own.
func TestEachTry(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if key := r.Header["Idempotency-Key"]; len(key) != 1 || key[0] != "theirs" || r.Header.Get("Weir-Id") != "" {
					t.Errorf("the upstream got %v", r.Header)
				}
				if calls.Add(1) < 3 {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				reporting(9, 4).ServeHTTP(w, r)
			}), open)
			ids := map[string]bool{}
			for try := range 3 {
				r := b.request(http.MethodPost, chatPath, chatBody)
				r.Header.Set("Idempotency-Key", "theirs")
				r.Header.Set("X-Stainless-Retry-Count", fmt.Sprint(try))
				ids[b.send(r).Header.Get("Weir-Id")] = true
			}
			if len(ids) != 3 || ids["theirs"] || ids[""] {
				t.Errorf("IDs %v", ids)
			}
			b.wantUsed(3, 9, 4)
		})
	}
}

// leaving is a store whose caller leaves while it decides.
type leaving struct {
	weir.Taker
	leave context.CancelFunc
}

func (l leaving) Take(ctx context.Context, acts []*weir.Act) {
	l.Taker.Take(ctx, acts)
	l.leave()
}

// TestLeftBefore wants a client that left before its request was forwarded to pay for the
// request only.
func TestLeftBefore(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(t.Context())
			b := newBench(t, testRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("it was forwarded")
			}), open, func(o *Options) { o.Taker = leaving{o.Taker, leave} })
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(chatBody))
			r.Header.Set("Authorization", "Bearer secret")
			b.proxy.ServeHTTP(httptest.NewRecorder(), r)
			b.wantUsed(1, 0, 0)
		})
	}
}

// TestUsageIsLoggedOnce wants answers without usage counted each, and logged once a minute.
func TestUsageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	}), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 5 {
		b.post(chatPath, chatBody)
	}
	b.wantUsed(5, 5*guessed(chatBody), 400)
	b.seen.do(func() {
		if b.seen.missing[UsageAbsent] != 5 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "reason=absent") {
			t.Errorf("%v, %s", b.seen.missing, &log)
		}
	})
}

// interrupted is a store that does not reach so many settlements, and keeps what they were.
type interrupted struct {
	weir.Taker
	failing atomic.Int64
	mu      sync.Mutex
	tried   []string
}

func (i *interrupted) Take(ctx context.Context, all []*weir.Act) {
	passed := make([]*weir.Act, 0, len(all))
	for _, a := range all {
		if a.Kind == acts.KindSettle && i.fails(a) {
			a.Err = fmt.Errorf("settle: %w", weir.ErrAmbiguous)
			continue
		}
		passed = append(passed, a)
	}
	if len(passed) > 0 {
		i.Taker.Take(ctx, passed)
	}
}

// fails notes a settlement, and reports whether the store is not reached.
func (i *interrupted) fails(a *weir.Act) bool {
	text := a.ID
	for _, c := range a.Charges {
		text += fmt.Sprint(" ", c.Cost)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tried = append(i.tried, text)
	return i.failing.Add(-1) >= 0
}

// delivering puts the layer that delivers settlements before a store.
func delivering(t *testing.T, store weir.Taker, o remote.Options) *remote.Remote {
	t.Helper()
	elsewhere, is := store.(calls.Store)
	if !is {
		elsewhere = storetest.Alone{Taker: store}
	}
	r := remote.New(elsewhere, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestSettlementIsRepeated wants a settlement that found no store to be repeated with the
// same ID and numbers.
func TestSettlementIsRepeated(t *testing.T) {
	t.Parallel()
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := new(interrupted)
			store.failing.Store(2)
			b := newBench(t, testRules, reporting(9, 4), open, func(o *Options) {
				store.Taker = o.Taker
				o.Taker = delivering(t, store, remote.Options{Patience: 20 * time.Second})
			})
			if a := b.post(chatPath, chatBody); a.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", a.StatusCode, a.text)
			}
			b.wantUsed(1, 9, 4)
			store.mu.Lock()
			defer store.mu.Unlock()
			if tried := store.tried; len(tried) != 3 || tried[0] != tried[1] || tried[1] != tried[2] || len(tried[0]) < weir.MaxCharges/4 {
				t.Errorf("tried %q", tried)
			}
			b.seen.do(func() {
				if b.seen.unsettled != 0 {
					t.Errorf("%d were not settled", b.seen.unsettled)
				}
			})
		})
	}
}

// TestSettlementReplies breaks the connection to Redis at the settlement, in every way in which no
// reply comes later. It is charged once.
func TestSettlementReplies(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	for fault, name := range []string{
		testserver.Refuse: "refused", testserver.Drop: "dropped", testserver.Reset: "reset", testserver.Cut: "cut",
	} {
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var faults atomic.Int64
			between := testserver.StartProxy(t, redis.Addr(), func([]byte) testserver.Fault {
				if faults.Add(-1) >= 0 {
					return testserver.Fault(fault)
				}
				return testserver.Pass
			})
			store := redisAt(t, between.Addr(), name+":")
			b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				faults.Store(3)
				reporting(9, 4).ServeHTTP(w, r)
			}), func(o *Options) {
				o.Taker, o.Timeout = delivering(t, store, remote.Options{Calls: calls.Options{Silence: time.Minute}}), 2*time.Second
			})
			if a := b.post(chatPath, chatBody); a.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", a.StatusCode, a.text)
			}
			b.eventually("the last fault", func() bool { return faults.Load() <= 0 })
			b.wantUsed(1, 9, 4)
			if n := between.Done(testserver.Fault(fault)); n != 3 {
				t.Errorf("%d faults", n)
			}
		})
	}
}

// heldBy returns what a request of a holder holds.
func heldBy(t *testing.T, h *holder) *held {
	t.Helper()
	r, err := readRequest(chat, &admission.Body{Text: []byte(chatBody)})
	if err != nil {
		t.Fatal(err)
	}
	own, err := h.hold(t.Context(), r, &subject{key: "me"}, 0, func(*rules.Plan) {})
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// holderOf returns a holder of requests that may last half an hour and hold no slots, whose
// renewal would keep a hold alive.
func holderOf(t *testing.T, taker weir.Taker, seen *counted) *holder {
	t.Helper()
	rule, _, _ := strings.Cut(testRules, "      - {name: open")
	set, err := rules.Parse("llm.yaml", []byte(rule))
	if err != nil {
		t.Fatal(err)
	}
	return &holder{Options: &Options{
		Rules: func() *rules.Set { return set }, Domain: "llm", Taker: taker, Timeout: time.Second, UpstreamTimeout: 30 * time.Minute,
		Observer: seen, Logger: slog.New(slog.DiscardHandler),
	}}
}

// usedBy returns the output that a holder's key has used.
func usedBy(t *testing.T, h *holder) int64 {
	t.Helper()
	b := &bench{t: t, set: h.Rules(), taker: h.Taker, proxy: &Proxy{holder: holder{Options: h.Options}}}
	return b.used("me", "mock")["output"]
}

// frozen is a store that answers nothing while it is frozen.
type frozen struct {
	storetest.Alone
	thaw atomic.Pointer[chan struct{}]
}

// freeze has the store answer nothing until the returned function is called.
func (f *frozen) freeze() (thaw func()) {
	c := make(chan struct{})
	f.thaw.Store(&c)
	return func() { close(c) }
}

func (f *frozen) wait(ctx context.Context) error {
	if c := f.thaw.Load(); c != nil {
		select {
		case <-*c:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (f *frozen) Probe(ctx context.Context, _ string) error { return f.wait(ctx) }

func (f *frozen) Take(ctx context.Context, all []*weir.Act) {
	if err := f.wait(ctx); err != nil {
		for _, a := range all {
			a.Err = fmt.Errorf("weir: %v: %w: %w", a.Kind, weir.ErrAmbiguous, err)
		}
		return
	}
	f.Taker.Take(ctx, all)
}

// TestFrozenStore wants requests admitted while the store answers nothing, by the policy local, and
// charged once when it does.
func TestFrozenStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &frozen{Alone: storetest.Alone{Taker: memengine.New(memengine.Options{Now: time.Now})}}
		taker := delivering(t, store, remote.Options{Now: time.Now, Calls: calls.Options{Responsive: func() bool { return true }}})
		seen := newCounted()
		h := holderOf(t, taker, seen)
		thaw := store.freeze()
		var work sync.WaitGroup
		for range 5 {
			work.Go(func() {
				began := time.Now()
				own := heldBy(t, h)
				if took := time.Since(began); took > time.Second {
					t.Errorf("held after %v", took)
				}
				own.settle(usage{input: 9, output: 4, hasInput: true, hasOutput: true}, false)
			})
			time.Sleep(100 * time.Millisecond)
		}
		work.Wait()
		time.Sleep(2 * time.Second)
		thaw()
		for taker.Stats().Outstanding > 0 {
			time.Sleep(time.Millisecond)
		}
		if used := usedBy(t, h); used != 20 || seen.unsettled != 0 {
			t.Errorf("%d used, want 20; %d not settled", used, seen.unsettled)
		}
	})
}

// TestHoldIsRepeated wants a hold that the store does not decide repeated for two seconds.
func TestHoldIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memengine.New(memengine.Options{Now: time.Now})
		tries := 0
		h := holderOf(t, acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
			if store.Take(ctx, all); all[0].Kind == acts.KindTake && all[0].Charges[0].Cost > 0 {
				tries++
				all[len(all)-1].Err = fmt.Errorf("weir: take: %w", weir.ErrNotApplied)
			}
		}), newCounted())
		r, err := readRequest(chat, &admission.Body{Text: []byte(chatBody)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if own, err := h.hold(t.Context(), r, &subject{key: "me"}, 0, func(*rules.Plan) {}); own != nil || err == nil {
			t.Errorf("held %+v, %v", own, err)
		}
		if took := time.Since(began); took < holdFor || took > 2*holdFor || tries < 10 {
			t.Errorf("%d tries in %v", tries, took)
		}
	})
}

// forgetful is a store that loses everything when it is told to.
type forgetful struct {
	atomic.Pointer[memengine.Store]
}

func (f *forgetful) Take(ctx context.Context, acts []*weir.Act) { f.Load().Take(ctx, acts) }

// TestLostHold wants what a request has used charged, although the store has lost its hold.
func TestLostHold(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	memory := new(forgetful)
	memory.Store(memengine.New(memengine.Options{}))
	for name, c := range map[string]struct {
		store weir.Taker
		lose  func() error
	}{
		"memory": {memory, func() error {
			memory.Store(memengine.New(memengine.Options{}))
			return nil
		}},
		"redis": {redisAt(t, server.Addr(), ""), func() error { return client.FlushAll(context.Background()).Err() }},
	} {
		b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := c.lose(); err != nil {
				t.Error(err)
			}
			reporting(9, 4).ServeHTTP(w, r)
		}), func(o *Options) { o.Taker = c.store })
		if a := b.post(chatPath, chatBody); a.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", a.StatusCode, a.text)
		}
		b.wantUsed(1, 9, 4)
		if b.seen.unsettled != 0 {
			t.Errorf("%s: %d were not settled", name, b.seen.unsettled)
		}
	}
}

// TestMemoryOfBodies wants a body held against the budget until it is sent, and no longer.
func TestMemoryOfBodies(t *testing.T) {
	t.Parallel()
	body := `{"model":"mock","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("a", 150_000) + `"}]}`
	arrived, answer := make(chan struct{}, 9), make(chan struct{}, 9)
	budget := admission.NewBudget(325_000) // room for one of them
	b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(o *Options) { o.Budget = budget })
	open := func(heads chan<- *http.Response) {
		head, err := http.DefaultClient.Do(b.request(http.MethodPost, chatPath, body))
		if err != nil {
			t.Error(err)
			head = nil
		}
		heads <- head
	}
	heads := make(chan *http.Response, 9)
	for range 2 { // the second one finds the memory of the first one free
		go open(heads)
		select {
		case <-arrived:
		case head := <-heads:
			t.Fatalf("%+v", head)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if a := b.send(b.request(http.MethodPost, chatPath, body).WithContext(ctx)); a.StatusCode != http.StatusServiceUnavailable || errorOf(t, a.text)["code"] != "request_memory" {
			t.Errorf("%d %s", a.StatusCode, a.text)
		}
		answer <- struct{}{}
		if head := <-heads; head != nil {
			defer head.Body.Close()
		}
		if n := budget.Held(); n != 0 {
			t.Errorf("%d bytes are held by a stream", n)
		}
	}
}

// TestWhatIsUsedIsSeen wants the observer to learn what each caller used of each model.
func TestWhatIsUsedIsSeen(t *testing.T) {
	t.Parallel()
	mock := new(mockmodel.Server)
	b := newBench(t, testRules, mock)
	b.post(chatPath, bodies[chatPath])
	b.post(messagePath, bodies[messagePath])
	b.post(messagePath+"/count_tokens", bodies[messagePath+"/count_tokens"])
	truth := mock.Used()
	want := map[string]map[string]int64{secretKey + " mock-7": {
		"requests": 3, "input": truth.Input, "cached": 0, "output": 14, "tokens": truth.Input + 14,
		// A millionth of a dollar for each token of the input, and two for one of the output.
		"usd": truth.Input + 28,
	}}
	if diff := cmp.Diff(want, b.seen.settled); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Limits of what was not used are not charged.
	charged := map[string]int64{
		"rpm mock* requests": 3, "input mock* input": truth.Input, "output mock* output": 14, "tokens mock* tokens": truth.Input + 14,
	}
	if diff := cmp.Diff(charged, b.seen.charged); diff != "" {
		t.Errorf("charged (-want +got):\n%s", diff)
	}
}
