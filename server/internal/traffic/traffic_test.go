package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 5, unit: minute, algorithm: gcra}
  - key: watched
    shadow_mode: true
    rate_limit: {requests_per_unit: 1, unit: minute, algorithm: gcra}
  - key: both
    rate_limits:
      - {name: narrow, requests_per_unit: 1, unit: minute, algorithm: gcra}
      - {name: wide, requests_per_unit: 10, unit: minute, algorithm: gcra}
  - key: tried
    rate_limit: {requests_per_unit: 5, unit: day, algorithm: gcra}
    trial: {requests_per_unit: 2, unit: day, algorithm: gcra}
  - key: none
    enforce: 0%
    rate_limit: {requests_per_unit: 1, unit: day, algorithm: gcra}
`

// fixture is a recorder in front of a store.
type fixture struct {
	*traffic.Recorder
	set   *rules.Set
	taker weir.Taker
}

func newFixture(tb testing.TB, text string, o traffic.Options) *fixture {
	tb.Helper()
	set := rules.MustParse("shop.yaml", text)
	r, err := traffic.New(set, o)
	if err != nil {
		tb.Fatal(err)
	}
	return &fixture{r, set, observe.Wrap(memengine.New(memengine.Options{}), observe.Options{Observer: r})}
}

func (f *fixture) take(tb testing.TB, key, value string, cost int64) {
	tb.Helper()
	plan, err := f.set.Plan(&rules.Request{Domain: "shop", Descriptors: [][]rules.Entry{{{Key: key, Value: value}}}, Cost: cost})
	if err != nil {
		tb.Fatal(err)
	}
	plan.Take(context.Background(), f.taker)
}

func (f *fixture) totals() string {
	var b strings.Builder
	for _, n := range f.Totals() {
		if n.Count > 0 {
			fmt.Fprintf(&b, "%s/%s %v by %v: %d", n.Domain, n.Rule, n.Decision, n.Source, n.Count)
			if n.Trial {
				b.WriteString(" on trial")
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestTotals: what a trial decides is counted under the name of its rule, as if it refused,
// and has no part in what was granted.
func TestTotals(t *testing.T) {
	t.Parallel()
	f := newFixture(t, shop, traffic.Options{})
	for range 7 {
		f.take(t, "user", "a", 1)
	}
	f.take(t, "user", "b", 3)
	f.take(t, "user", "b", 0) // a look
	for range 2 {
		f.take(t, "watched", "a", 1)
		f.take(t, "both", "a", 1)
	}
	f.take(t, "nothing", "a", 1)
	for range 6 {
		f.take(t, "tried", "a", 1)
	}
	for range 3 {
		f.take(t, "none", "a", 1)
	}
	want := `shop/user granted by store: 6
shop/user refused by store: 2
shop/watched granted by store: 1
shop/watched shadow_refused by store: 1
shop/narrow granted by store: 1
shop/narrow refused by store: 1
shop/wide granted by store: 1
shop/wide not_charged by store: 1
shop/tried granted by store: 5
shop/tried refused by store: 1
shop/tried granted by store: 2 on trial
shop/tried refused by store: 4 on trial
shop/none granted by store: 1
shop/none shadow_refused by store: 2
`
	if diff := cmp.Diff(want, f.totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	usage := f.Usage()
	if got := usage[1]; got != (traffic.Usage{Domain: "shop", Rule: "user", Units: 8, NearLimit: 1}) {
		t.Errorf("usage: %+v", got)
	}
	if got := usage[5]; got.Rule != "tried" || got.Units != 5 || len(usage) != 7 {
		t.Errorf("usage: %+v", usage)
	}
	for _, k := range append(f.TopUsed(20), f.TopRefused(20)...) {
		if strings.HasSuffix(k.Key, "#trial") {
			t.Errorf("among the top keys: %+v", k)
		}
	}
}

// TestErrorsAreCounted: a take that failed counts as an error, and as nothing else.
func TestErrorsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, shop, traffic.Options{})
	limit := f.set.Rules()[0].Limits[0].Limit
	for _, test := range []struct {
		name  string
		act   weir.Act
		count bool
	}{
		{"no reply", weir.Act{Err: weir.ErrAmbiguous}, true},
		{"no answer", weir.Act{Err: fmt.Errorf("weir: take: %w", weir.ErrNotApplied)}, true},
		{"the caller's mistake", weir.Act{Err: weir.ErrInvalid}, false},
		{"a reset that failed", weir.Act{Kind: acts.KindReset, Err: weir.ErrNotApplied}, false},
		{"a reset", weir.Act{Kind: acts.KindReset}, false},
	} {
		before := f.totals()
		test.act.Charges = []weir.Charge{{Limit: limit, Cost: 1}}
		test.act.Decisions = []weir.Decision{{Outcome: weir.Granted}}
		f.Observe(&observe.Call{Acts: []*weir.Act{&test.act}, Limits: []*weir.Limit{limit}})
		if counted := f.totals() != before; counted != test.count {
			t.Errorf("%s: counted %v", test.name, counted)
		}
	}
	if got := f.totals(); got != "shop/user error by store: 2\n" {
		t.Errorf("counted:\n%s", got)
	}
	if got := f.TopUsed(1); len(got) > 0 {
		t.Errorf("used: %v", got)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, shop, traffic.Options{})
	f.take(t, "user", "a", 1)
	f.take(t, "watched", "a", 1)
	before := f.set
	f.set = rules.MustParse("shop.yaml", "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {requests_per_unit: 9, unit: minute, algorithm: gcra}\n")
	f.Follow(f.set)
	f.take(t, "user", "a", 1)
	// An act that was planned before and is decided now.
	now := f.set
	f.set = before
	f.take(t, "user", "a", 1)
	f.take(t, "watched", "a", 1)
	f.set = now
	want := "(request)/* refused by store: 1\nshop/user granted by store: 3\n"
	if diff := cmp.Diff(want, f.totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, shop, traffic.Options{})
		f.Start()
		time.Sleep(500 * time.Millisecond) // between two ticks
		for second := range 30 {
			for range second%3 + 1 {
				f.take(t, "user", fmt.Sprint(second), 1)
			}
			time.Sleep(time.Second)
		}
		w := f.History(10 * time.Second)
		if w.Step != time.Second || w.Points != 10 || len(w.Series) != 1 {
			t.Fatalf("got %+v", w)
		}
		sum, most := uint32(0), uint32(0)
		for _, n := range w.Series[0].Counts {
			sum, most = sum+n, max(most, n)
		}
		if sum < 18 || sum > 22 || most != 3 {
			t.Errorf("ten seconds: %v", w.Series[0].Counts)
		}
		if got := w.Latency[9]; got.P50 <= 0 || got.P99 < got.P50 {
			t.Errorf("latency %+v", got)
		}
		time.Sleep(3 * time.Hour)
		if w = f.History(4 * time.Hour); w.Step != time.Minute || w.Points != 240 {
			t.Fatalf("four hours: %d points of %v", w.Points, w.Step)
		}
		sum = 0
		for _, n := range w.Series[0].Counts {
			sum += n
		}
		if sum != 60 {
			t.Errorf("four hours: %d takes, want all 60", sum)
		}
		if w = f.History(5 * time.Minute); w.Series[0].Counts[0] != 0 {
			t.Errorf("the ring still has what is over: %v", w.Series[0].Counts)
		}
		if err := f.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestTop compares the sketch with an exact count under skewed keys.
func TestTop(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {requests_per_unit: 1000000, unit: minute, algorithm: gcra}\n", traffic.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.3, 1, 20_000)
	exact := map[string]uint64{}
	for range 40_000 {
		user := fmt.Sprint(zipf.Uint64())
		exact["shop/user="+user]++
		f.take(t, "user", user, 1)
	}
	top := f.TopUsed(10)
	if len(top) != 10 {
		t.Fatalf("%d keys", len(top))
	}
	for i, k := range top {
		key, _, _ := strings.Cut(k.Key, ";")
		if n := exact[key]; k.Count < n || k.Count-k.Error > n || k.Rule != "user" {
			t.Errorf("%d: %+v, exactly %d", i, k, n)
		}
	}
	if key, _, _ := strings.Cut(top[0].Key, ";"); key != "shop/user=0" {
		t.Errorf("first is %s", key)
	}
	if got := f.TopRefused(10); len(got) != 0 {
		t.Errorf("refused: %v", got)
	}
}

func TestLongKeysAreCut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, shop, traffic.Options{})
	long := strings.Repeat("x", 1000)
	f.take(t, "user", long+"1", 1)
	f.take(t, "user", long+"2", 1)
	top := f.TopUsed(10)
	if len(top) != 2 || len(top[0].Key) > 300 || top[0].Key == top[1].Key {
		t.Errorf("got %v", top)
	}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	f := newFixture(t, shop, traffic.Options{})
	s, err := f.Subscribe(2)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		f.take(t, "both", "a", 1)
	}
	got := <-s.Refusals()
	if got.Domain != "shop" || got.Rule != "narrow" || !strings.HasPrefix(got.Key, "shop/both=a") || got.RetryAfter <= 0 || got.Source != acts.SourceStore {
		t.Errorf("got %+v", got)
	}
	if s.Missed() != 2 {
		t.Errorf("missed %d of 4 with room for 2", s.Missed())
	}
	s.Close()
	s.Close()
	f.take(t, "both", "a", 1)
	if s.Missed() != 2 {
		t.Error("a closed subscription still hears")
	}
	if s, err = f.Subscribe(1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.take(t, "tried", "a", 1)
	}
	if r := <-s.Refusals(); !r.Trial || !r.Shadow || r.Key != "shop/tried=a;tried#trial" {
		t.Errorf("heard %+v", r)
	}
	for range 31 {
		if _, err := f.Subscribe(1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Subscribe(1); !errors.Is(err, traffic.ErrListeners) {
		t.Errorf("got %v", err)
	}
}

// lines keeps what is logged.
type lines struct{ testserver.Output }

// after waits and returns what was logged until then.
func (l *lines) after(wait time.Duration) []string {
	time.Sleep(wait)
	synctest.Wait()
	return slices.Collect(strings.Lines(l.String()))
}

// logged returns a fixture that was started, and its log.
func logged(t *testing.T, text string) (*fixture, *lines) {
	t.Helper()
	log := new(lines)
	f := newFixture(t, text, traffic.Options{Refusals: slog.New(slog.NewTextHandler(log, nil))})
	f.Start()
	return f, log
}

func TestJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, log := logged(t, shop)
		defer f.Stop(context.Background())
		for range 30 {
			f.take(t, "both", "secret\nname", 1)
		}
		got := log.after(30 * time.Second)
		if len(got) != 1 || !strings.Contains(got[0], "msg=refused domain=shop rule=narrow key_hash=") || !strings.Contains(got[0], "suppressed=28") {
			t.Fatalf("logged %q", got)
		}
		for range 3 {
			f.take(t, "both", "secret\nname", 1)
		}
		if got = log.after(20 * time.Second); len(got) != 1 {
			t.Fatalf("the period is not over: %q", got)
		}
		if got = log.after(20 * time.Second); len(got) != 2 || !strings.Contains(got[1], "suppressed=2") {
			t.Fatalf("logged %q", got)
		}
		if strings.Contains(strings.Join(got, ""), "secret") {
			t.Errorf("the log has keys: %q", got)
		}
		for range 3 {
			f.take(t, "tried", "a", 1)
		}
		if got = log.after(2 * time.Second); len(got) != 3 || !strings.Contains(got[2], `msg="would be refused" domain=shop rule=tried`) || !strings.Contains(got[2], "trial=true") {
			t.Errorf("logged %q", got)
		}
	})
}

// TestJournalOfShadows: what passes is not logged as refused: under a rule in shadow mode, for a
// key that the rule is not enforced for, and by a front end that refuses nothing. A limit that
// refuses other requests has a line for each.
func TestJournalOfShadows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, log := logged(t, shop)
		defer f.Stop(context.Background())
		watching := &fixture{f.Recorder, f.set, observe.Wrap(memengine.New(memengine.Options{}), observe.Options{Observer: unenforced{f.Recorder}})}
		for range 3 {
			f.take(t, "watched", "a", 1)
			f.take(t, "none", "a", 1)
			f.take(t, "both", "a", 1)
			watching.take(t, "both", "a", 1)
		}
		got := strings.Join(log.after(2*time.Second), "")
		for _, want := range []string{
			`msg="would be refused" domain=shop rule=watched key_hash=`, `msg="would be refused" domain=shop rule=none key_hash=`,
			`msg="would be refused" domain=shop rule=narrow key_hash=`, `msg=refused domain=shop rule=narrow key_hash=`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		if strings.Count(got, "\n") != 4 || strings.Count(got, "suppressed=1\n") != 4 {
			t.Errorf("logged\n%s", got)
		}
		if want := "shop/narrow shadow_refused by store: 2\n"; !strings.Contains(f.totals(), want) {
			t.Errorf("no %s in\n%s", want, f.totals())
		}
	})
}

// unenforced is the observer of a front end that refuses nothing.
type unenforced struct{ *traffic.Recorder }

func (u unenforced) Observe(c *observe.Call) { u.ObserveUnenforced(c) }

// TestJournalIsBounded: however many limits refuse at once.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		text.WriteString("domain: shop\ndescriptors:\n")
		for i := range 200 {
			fmt.Fprintf(&text, "  - key: k%d\n    rate_limit: {requests_per_unit: 0, unit: minute, algorithm: gcra}\n", i)
		}
		f, log := logged(t, text.String())
		defer f.Stop(context.Background())
		for i := range 200 {
			f.take(t, fmt.Sprintf("k%d", i), "a", 1)
		}
		if n := len(log.after(1500 * time.Millisecond)); n != 20 {
			t.Errorf("%d lines in a second", n)
		}
		if n := len(log.after(20 * time.Second)); n != 200 {
			t.Errorf("%d lines in all: each limit has its own", n)
		}
	})
}

// TestStuckLog: a log that takes no line keeps neither counts nor history nor Stop.
func TestStuckLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(stuckWriter)
		f := newFixture(t, shop, traffic.Options{Refusals: slog.New(slog.NewTextHandler(stuck, nil))})
		f.Start()
		for range 10 {
			f.take(t, "both", "a", 1)
		}
		time.Sleep(3 * time.Second)
		if w := f.History(10 * time.Second); len(w.Series) == 0 {
			t.Error("there is no history")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := f.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(stuck)
		if err := f.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

type stuckWriter chan struct{}

func (w stuckWriter) Write(line []byte) (int, error) {
	<-w
	return len(line), nil
}

func TestNearLimitRatio(t *testing.T) {
	t.Parallel()
	if _, err := traffic.New(rules.Demo(), traffic.Options{NearLimitRatio: 1.5}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	f := newFixture(t, shop, traffic.Options{NearLimitRatio: 0.4})
	for range 5 {
		f.take(t, "user", "a", 1)
	}
	if got := f.Usage()[1].NearLimit; got != 3 {
		t.Errorf("%d of 5 were near, want the last 3", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, shop, traffic.Options{Refusals: slog.New(slog.DiscardHandler)})
	f.Start()
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for j := range 300 {
				f.take(t, "both", fmt.Sprint(i, j%7), 1)
			}
		})
	}
	running.Go(func() {
		for range 50 {
			f.History(time.Hour)
			f.TopRefused(5)
			f.Totals()
			f.Follow(f.set)
			s, err := f.Subscribe(1)
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		}
	})
	running.Wait()
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	n := uint64(0)
	for _, total := range f.Totals() {
		n += total.Count
	}
	if n != 2400 {
		t.Errorf("%d charges were counted of 2400", n)
	}
}
