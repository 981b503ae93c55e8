package ledger

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// now is the instant of most settlements.
var now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// monthly is a limit of so many dollars a month.
func monthly(t testing.TB, dollars int64) *weir.Limit {
	t.Helper()
	l, err := weir.Limit{Algorithm: weir.FixedWindow, Count: dollars * 1e6, Period: 30 * 24 * time.Hour, TimeZone: "UTC", Meter: "usd"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// charge charges micros of a budget of so many dollars to a user.
func charge(t testing.TB, user string, micros, dollars int64) Charge {
	t.Helper()
	window, counts := WindowOf(monthly(t, dollars), now)
	if !counts {
		t.Fatal("a month does not count")
	}
	return Charge{
		Key: "llm/user=" + user + ";user;user", Window: window, Units: micros, Count: dollars * 1e6, Alerts: []int{80, 100},
		About: About{Name: "user", Descriptor: "user=" + user, Meter: "usd", Period: "month"},
	}
}

// settlement is one of a user.
func settlement(id, user string, micros int64, charges ...Charge) *Settlement {
	return &Settlement{ID: id, At: now, User: user, Team: "web", Model: "m", Used: Numbers{Requests: 1, Input: 3, Output: 4, USD: micros}, Charges: charges}
}

// client returns a client of a Redis that ends with the test.
func client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// books are a book in memory and one in Redis.
func books(t testing.TB) map[string]func() book {
	t.Helper()
	addr := testserver.StartRedis(t).Addr()
	c, opened := client(t, addr), new(atomic.Int64)
	return map[string]func() book{
		"memory": func() book { return newMemory() },
		"redis": func() book {
			return &shared{client: c, tag: fmt.Sprintf("%d:{ledger}:", opened.Add(1)), fields: maxFields}
		},
	}
}

// opened returns a ledger that is not started, on a book.
func opened(t testing.TB, b book) *Ledger {
	t.Helper()
	l, err := New(Options{Webhook: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	l.book = b
	return l
}

// flushed writes all that waits.
func (l *Ledger) flushed(t testing.TB) {
	t.Helper()
	for l.Waiting() > 0 {
		if err := l.flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// outbox returns the alerts that are due, and claims them.
func outbox(t testing.TB, b book) (all []string) {
	t.Helper()
	for {
		a, err := b.claim(context.Background(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if a == nil {
			slices.Sort(all)
			return all
		}
		if a.unusable {
			t.Errorf("%q cannot be read", a.id)
		}
		all = append(all, fmt.Sprintf("%s %d of %d: %d", a.about.Descriptor, a.percent, a.count, a.used))
	}
}

// TestLevels wants each alert recorded once for each window, percent and amount in force, by the
// level and not by the edge.
func TestLevels(t *testing.T) {
	t.Parallel()
	for name, open := range books(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open()
			l := opened(t, b)
			for i, c := range []struct {
				micros, dollars int64
				want            []string
			}{
				{790_000, 1, nil},
				{9_999, 1, nil},
				{1, 1, []string{"user=ann 80 of 1000000: 800000"}},
				{100_000, 1, nil},
				{0, 1, nil},
				// A raise makes another amount.
				{100_000, 2, nil},
				{600_000, 2, []string{"user=ann 80 of 2000000: 1600000"}},
				// A lower limit is noticed, although nothing crosses it.
				{1, 1, []string{"user=ann 100 of 1000000: 1600001"}},
				{500_000, 2, []string{"user=ann 100 of 2000000: 2100001"}},
				{500_000, 1, nil},
				{1, 999_999_999, nil},
			} {
				l.Settled(settlement(fmt.Sprint(i), "ann", c.micros, charge(t, "ann", c.micros, c.dollars)))
				l.flushed(t)
				if diff := cmp.Diff(c.want, outbox(t, b)); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestRefusals wants the first refusal for what is settled to be an alert at 100 %, and one for what
// is held to be none.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, open := range books(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open()
			l := opened(t, b)
			l.Settled(settlement("1", "ann", 900_000, charge(t, "ann", 900_000, 1)))
			l.Refused(charge(t, "ann", 0, 1), 1_000_001) // never fits
			l.Refused(charge(t, "ann", 0, 1), 100_000)   // fits beside what is settled
			l.Refused(charge(t, "ann", 0, 1), 100_001)   // too soon after the last one
			l.flushed(t)
			if diff := cmp.Diff([]string{"user=ann 80 of 1000000: 900000"}, outbox(t, b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			clear(l.refusing)
			l.Refused(charge(t, "ann", 0, 1), 100_001)
			l.Refused(charge(t, "bo", 0, 1), 100_001)
			l.flushed(t)
			if diff := cmp.Diff([]string{"user=ann 100 of 1000000: 900000"}, outbox(t, b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			clear(l.refusing)
			l.Refused(charge(t, "ann", 0, 1), 100_001)
			l.flushed(t)
			if got := outbox(t, b); got != nil {
				t.Errorf("again: %v", got)
			}
			used, err := l.Used(t.Context(), []Charge{charge(t, "ann", 0, 1), charge(t, "bo", 0, 1)})
			if err != nil || !slices.Equal(used, []int64{900_000, 0}) {
				t.Errorf("%v %v", used, err)
			}
		})
	}
}

// TestRefusalsAreBounded wants refused requests to cost at most one look at a key in a while, and
// bounded memory.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := opened(t, newMemory())
		for i := range 2 * maxRefusing {
			l.Refused(charge(t, fmt.Sprint("user", i%(maxRefusing+5)), 0, 1), 1)
		}
		if l.Waiting() != maxRefusing || len(l.refusing) != maxRefusing {
			t.Errorf("%d looks, %d remembered", l.Waiting(), len(l.refusing))
		}
		time.Sleep(refusedAgain)
		if l.Refused(charge(t, "new", 0, 1), 1); l.Waiting() != maxRefusing+1 || len(l.refusing) != 1 {
			t.Errorf("%d looks, %d remembered", l.Waiting(), len(l.refusing))
		}
	})
}

// TestTwins wants the scripts and the book in memory to record the same.
func TestTwins(t *testing.T) {
	t.Parallel()
	open := books(t)
	rapid.Check(t, func(r *rapid.T) {
		all := map[string]book{"memory": open["memory"](), "redis": open["redis"]()}
		steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) *Settlement {
			user := rapid.SampledFrom([]string{"ann", "bo", `ü" x`}).Draw(r, "user")
			s := settlement("", user, rapid.Int64Range(0, 900_000).Draw(r, "micros"))
			s.At = now.AddDate(0, rapid.IntRange(0, 1).Draw(r, "month"), 0)
			s.Used.Cached, s.Used.Unsettled = rapid.Int64Range(0, 1).Draw(r, "cached"), rapid.Int64Range(-1, 1).Draw(r, "unsettled")
			for _, who := range rapid.SliceOfN(rapid.SampledFrom([]string{"ann", "bo", "all"}), 0, 2).Draw(r, "charged") {
				c := charge(t, who, rapid.SampledFrom([]int64{0, 1, 300_000, 1e14}).Draw(r, "units"), rapid.SampledFrom([]int64{1, 2, 999_999_999}).Draw(r, "dollars"))
				c.Window, _ = WindowOf(monthly(t, 1), s.At)
				c.Alerts = rapid.SampledFrom([][]int{nil, {1}, {80, 100}}).Draw(r, "alerts")
				s.Charges = append(s.Charges, c)
			}
			return s
		}), 1, 12).Draw(r, "settlements")
		got := map[string][]string{}
		for name, b := range all {
			l := opened(t, b)
			for i, s := range steps {
				one := *s
				one.ID = fmt.Sprint(i)
				l.Settled(&one)
			}
			l.flushed(t)
			for _, month := range []string{"2026-11", "2026-12", "2027-01"} {
				sums, err := b.month(context.Background(), month)
				if err != nil {
					r.Fatal(err)
				}
				got[name] = append(got[name], fmt.Sprint(month, sums))
			}
			for _, who := range []string{"ann", "bo", "all"} {
				used, err := l.Used(context.Background(), []Charge{charge(t, who, 0, 1)})
				if err != nil {
					r.Fatal(err)
				}
				got[name] = append(got[name], fmt.Sprint(who, used))
			}
			got[name] = append(got[name], outbox(t, b)...)
		}
		if diff := cmp.Diff(got["memory"], got["redis"]); diff != "" {
			r.Errorf("(-memory +redis):\n%s", diff)
		}
	})
}

// TestOnce wants a settlement counted once, whatever becomes of the replies.
func TestOnce(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	var sent, broken atomic.Int64
	between := testserver.StartProxy(t, server.Addr(), func(request []byte) testserver.Fault {
		if n := sent.Add(1); strings.Contains(string(request), "evalsha") && n%50 == 0 {
			return []testserver.Fault{testserver.Drop, testserver.Refuse, testserver.Cut, testserver.Reset}[broken.Add(1)%4]
		}
		return testserver.Pass
	})
	l, err := New(Options{Client: client(t, between.Addr()), Webhook: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		l.Settled(settlement(fmt.Sprint(i), "ann", 100, charge(t, "ann", 100, 1)))
	}
	for i := 0; l.Waiting() > 0; i++ {
		if _ = l.flush(t.Context()); i > 1000 {
			t.Fatal("a connection that breaks now and then lets none be written")
		}
	}
	used, err := l.Used(t.Context(), []Charge{charge(t, "ann", 0, 1)})
	if err != nil || used[0] != 30_000 {
		t.Errorf("used %v, %v", used, err)
	}
	sums, err := l.book.month(t.Context(), "2026-11")
	if want := map[string]int64{`requests ["ann","web","m"]`: 300, `input ["ann","web","m"]`: 900, `output ["ann","web","m"]`: 1200, `usd ["ann","web","m"]`: 30_000}; err != nil || !cmp.Equal(want, sums) {
		t.Errorf("%v %v", sums, err)
	}
	if broken.Load() < 6 {
		t.Errorf("only %d replies were lost", broken.Load())
	}
	keys, err := client(t, server.Addr()).Keys(t.Context(), "*").Result()
	if err != nil || slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, "weir:{ledger/}:") }) {
		t.Errorf("%v %v", keys, err)
	}
}

// TestExpires wants everything in Redis to expire.
func TestExpires(t *testing.T) {
	t.Parallel()
	c := client(t, testserver.StartRedis(t).Addr())
	l := opened(t, &shared{client: c, tag: "{x}", fields: maxFields})
	at := time.Now()
	one := charge(t, "ann", 900_000, 1)
	one.Window, _ = WindowOf(monthly(t, 1), at)
	s := settlement("1", "ann", 1, one)
	s.At = at
	l.Settled(s)
	l.flushed(t)
	keys := c.Keys(t.Context(), "*").Val()
	if len(keys) != 6 {
		t.Errorf("%v", keys)
	}
	for _, key := range keys {
		if ttl := c.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > 132*24*time.Hour {
			t.Errorf("%s lives %v", key, ttl)
		}
	}
}

// TestMonthIsBounded wants a month with too many rows to count the others together.
func TestMonthIsBounded(t *testing.T) {
	t.Parallel()
	for name, open := range books(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open()
			l := opened(t, b)
			switch b := b.(type) {
			case *memory:
				b.fields = 6
			case *shared:
				b.fields = 6
			}
			l.Settled(settlement("0", "ann", 4))
			l.Settled(settlement("1", "ann", 5))
			l.Settled(settlement("2", "bo", 6))
			l.flushed(t)
			sums, err := b.month(t.Context(), "2026-11")
			if err != nil || sums["usd "+otherRow] != 6 || sums[`usd ["ann","web","m"]`] != 9 || len(sums) != 8 {
				t.Errorf("%d fields, %d of others, %v", len(sums), sums["usd "+otherRow], err)
			}
		})
	}
}

// TestWaiting wants settlements to wait in bounded memory while the store is unreachable, and the
// others to be counted.
func TestWaiting(t *testing.T) {
	t.Parallel()
	seen := new(counts)
	l, err := New(Options{Client: client(t, testserver.FreeAddr(t)), Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	for i := range maxWaiting + 3 {
		l.Settled(settlement(fmt.Sprint(i), "ann", 1))
	}
	if l.Waiting() != maxWaiting || l.Lost() != 3 || seen.lost.Load() != 3 {
		t.Errorf("%d wait, %d are lost", l.Waiting(), l.Lost())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Stop(ctx); err == nil {
		t.Error("it has stopped with settlements that wait")
	}
	if err := l.Stop(ctx); err == nil {
		t.Error("it has stopped twice with settlements that wait")
	}
}

// counts is an Observer.
type counts struct{ lost, delivered, failed, dropped atomic.Int64 }

func (c *counts) Lost()      { c.lost.Add(1) }
func (c *counts) Delivered() { c.delivered.Add(1) }
func (c *counts) Failed()    { c.failed.Add(1) }
func (c *counts) Dropped()   { c.dropped.Add(1) }

// posted is what a webhook got.
type posted struct{ id, timestamp, signature, body string }

// A webhook keeps what it gets.
type webhook struct {
	*httptest.Server
	status atomic.Int64
	mu     sync.Mutex
	all    []posted
}

func startWebhook(t testing.TB) *webhook {
	t.Helper()
	h := new(webhook)
	h.status.Store(http.StatusNoContent)
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, posted{r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), r.Header.Get("Webhook-Signature"), string(body)})
		if status := int(h.status.Load()); status == http.StatusFound {
			http.Redirect(w, r, "/", status)
		} else {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) got() []posted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// TestDelivered wants an alert posted, signed as Standard Webhooks has it, until the webhook accepts
// it, with the same ID and body each time.
func TestDelivered(t *testing.T) {
	t.Parallel()
	h, seen := startWebhook(t), new(counts)
	// The key of the specification's example.
	secret, err := ParseSecret("whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of more than 24 bytes")))
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, testserver.StartRedis(t).Addr())
	l, err := New(Options{Client: c, Webhook: h.URL, Secret: secret, Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	b := l.book.(*shared)
	l.Settled(settlement("1", "ann", 160_420_000, charge(t, "ann", 160_420_000, 200)))
	l.flushed(t)
	ctx := t.Context()
	for i, status := range []int{http.StatusInternalServerError, http.StatusFound, http.StatusAccepted} {
		h.status.Store(int64(status))
		// The claim is over.
		if err := c.ZAdd(ctx, b.due(), redis.Z{Score: 0, Member: c.ZRange(ctx, b.due(), 0, 0).Val()[0]}).Err(); err != nil {
			t.Fatal(err)
		}
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		if !l.deliverOne(ctx, client) || l.deliverOne(ctx, client) {
			t.Errorf("attempt %d: the alert is not claimed once", i)
		}
	}
	if seen.failed.Load() != 2 || seen.delivered.Load() != 1 || c.Exists(ctx, b.due(), b.outbox()).Val() != 0 {
		t.Errorf("%d failed, %d were delivered", seen.failed.Load(), seen.delivered.Load())
	}
	got := h.got()
	want := `{"text":"ann has used 80 % of $200 a month (user)","limit":"user","descriptor":"user=ann","percent":80,"count":"usd","used_usd":"160.42","of_usd":"200","resets_at":"2026-12-01T00:00:00Z"}` + "\n"
	for _, p := range got {
		if p.id != got[0].id || !strings.HasPrefix(p.id, "alert_") || p.body != want || p.signature != signature(secret, p.id, p.timestamp, []byte(p.body)) {
			t.Errorf("posted %+v", p)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d attempts", len(got))
	}
}

// TestSignature wants the signature of the example of the specification.
func TestSignature(t *testing.T) {
	t.Parallel()
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, wrong := range []string{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_c2hvcnQ=", "whsec_!"} {
		if _, err := ParseSecret(wrong); err == nil || strings.Contains(err.Error(), "MfKQ") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if secret, err := ParseSecret(""); secret != nil || err != nil {
		t.Errorf("%v %v", secret, err)
	}
}

// TestDropped wants an alert that was not accepted for a day dropped, with a line and a count.
func TestDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := new(counts)
		l := opened(t, newMemory())
		l.Observer = seen
		l.Settled(settlement("1", "ann", 1, charge(t, "ann", 900_000, 1)))
		l.flushed(t)
		refusing := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.EOF })}
		for range 3 {
			if !l.deliverOne(t.Context(), refusing) || l.deliverOne(t.Context(), refusing) {
				t.Error("the alert is not claimed once")
			}
			time.Sleep(claimTime)
		}
		time.Sleep(keepAlerts)
		if !l.deliverOne(t.Context(), refusing) || seen.dropped.Load() != 1 || seen.failed.Load() != 3 || seen.delivered.Load() != 0 {
			t.Errorf("%d dropped, %d failed", seen.dropped.Load(), seen.failed.Load())
		}
		if time.Sleep(claimTime); l.deliverOne(t.Context(), refusing) {
			t.Error("the alert is still there")
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestInBackground wants a started ledger to write and to deliver by itself, in memory, and Stop to
// write what waits.
func TestInBackground(t *testing.T) {
	t.Parallel()
	h := startWebhook(t)
	l, err := New(Options{Webhook: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	l.Settled(settlement("1", "ann", 900_000, charge(t, "ann", 900_000, 1)))
	testserver.Eventually(t, "the alert", func() bool { return len(h.got()) == 1 })
	l.Settled(settlement("2", "ann", 1, charge(t, "ann", 1, 1)))
	for range 2 {
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	used, err := l.Used(t.Context(), []Charge{charge(t, "ann", 0, 1)})
	if err != nil || used[0] != 900_001 {
		t.Errorf("%v %v", used, err)
	}
	if m := new(message); json.Unmarshal([]byte(h.got()[0].body), m) != nil || m.Percent != 80 || h.got()[0].signature != "" {
		t.Errorf("%+v", h.got()[0])
	}
}

// TestWindows wants the windows that the ledger counts to be those of the limits, and no others.
func TestWindows(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 10, 25, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		limit      weir.Limit
		start, end string
	}{
		{weir.Limit{Algorithm: weir.FixedWindow, Period: 24 * time.Hour, TimeZone: "Europe/Berlin"}, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{weir.Limit{Algorithm: weir.FixedWindow, Period: 30 * 24 * time.Hour, TimeZone: "Europe/Berlin", AnchorDay: 26}, "2026-09-25T22:00:00Z", "2026-10-25T23:00:00Z"},
		{weir.Limit{Algorithm: weir.FixedWindow, Period: 24 * time.Hour}, "2026-10-25T00:00:00Z", "2026-10-26T00:00:00Z"},
		{weir.Limit{Algorithm: weir.FixedWindow, Period: time.Hour}, "", ""},
		{weir.Limit{Algorithm: weir.FixedWindow, Period: 24 * time.Hour, Anchor: weir.AnchorFirst}, "", ""},
		{weir.Limit{Algorithm: weir.FixedWindow, Period: 24 * time.Hour, ChargeRefused: true}, "", ""},
		{weir.Limit{Algorithm: weir.GCRA, Period: 24 * time.Hour}, "", ""},
	} {
		c.limit.Count = 5
		l, err := c.limit.Compile()
		if err != nil {
			t.Fatal(err)
		}
		w, counts := WindowOf(l, at)
		start, end := time.UnixMicro(w.Start).UTC().Format(time.RFC3339), time.UnixMicro(w.End).UTC().Format(time.RFC3339)
		if counts != (c.start != "") || counts && (start != c.start || end != c.end) {
			t.Errorf("%v: %t, %s to %s", l, counts, start, end)
		}
	}
}

// TestInvalid wants settings refused that cannot work, without the URL, which may be a secret.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"hooks.example/secret", "ftp://hooks.example/secret", "http://", "://secret"} {
		if _, err := New(Options{Webhook: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
