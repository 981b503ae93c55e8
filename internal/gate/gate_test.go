package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
)

// place is a limit of one request at a time.
var place = weir.Limit{Name: "places", Algorithm: weir.Concurrency, Count: 1, Period: time.Minute}

func limiter(t *testing.T, taker weir.Taker, more ...weir.Limit) *weir.Limiter {
	t.Helper()
	day := weir.Limit{Name: "day", Count: 20, Period: 24 * time.Hour, Algorithm: weir.SlidingLog}
	l, err := weir.NewLimiter(taker, "test", append([]weir.Limit{weir.PerHour(10), day}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// remaining is what each limit has left for the key p:k.
func remaining(t *testing.T, l *weir.Limiter) []int64 {
	t.Helper()
	act := l.Act(acts.KindTake, "k", 0)
	if l.Take(context.Background(), []*weir.Act{act}); act.Err != nil {
		t.Fatal(act.Err)
	}
	var left []int64
	for _, d := range act.Decisions {
		left = append(left, d.Remaining)
	}
	return left
}

func TestLeaveAt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, after, remains int64 }{
		"as charged":         {3, 3, 7},
		"less":               {3, 1, 9},
		"nothing":            {3, 0, 10},
		"more":               {3, 4, 6},
		"more than there is": {3, 15, 0},
		"below nothing":      {3, -5, 10},
		"from a look":        {0, 2, 8},
	} {
		for kind, more := range map[string][]weir.Limit{"units": nil, "a place too": {place}} {
			l := limiter(t, memengine.New(memengine.Options{}), more...)
			g := Gate{}
			v := g.Enter(context.Background(), Request{Limiter: l, Key: "k", Cost: test.before, ChargedLater: true})
			if v.HoldsSlots() != (len(more) > 0) {
				t.Errorf("%s, %s: holds a place: %v", name, kind, v.HoldsSlots())
			}
			if err := v.LeaveAt(context.Background(), test.after); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			if got := remaining(t, l); got[0] != test.remains || len(more) > 0 && got[2] != 1 {
				t.Errorf("%s, %s: %v remaining, want %d", name, kind, got, test.remains)
			}
		}
	}
}

func TestEnterUnknownCost(t *testing.T) {
	t.Parallel()
	for kind, more := range map[string][]weir.Limit{"units": nil, "a place too": {place}} {
		l := limiter(t, memengine.New(memengine.Options{}), more...)
		g := Gate{}
		enter := func(cost int64, later bool) *Visit {
			return g.Enter(context.Background(), Request{Limiter: l, Key: "k", Cost: cost, ChargedLater: later})
		}
		leave := func(v *Visit, what string) {
			t.Helper()
			if err := v.Leave(context.Background()); err != nil || !v.Act.Allowed() {
				t.Errorf("%s, %s: %+v, %v", kind, what, v.Act, err)
			}
		}
		leave(enter(0, true), "fresh")
		leave(enter(10, false), "all")
		leave(enter(0, false), "for nothing")
		v := enter(0, true)
		if d := v.Act.Decisions[0]; v.Act.Allowed() || v.HoldsSlots() || d.RetryAfter <= 0 || d.RetryAfter > 6*time.Minute {
			t.Errorf("%s, used up: %+v", kind, v.Act)
		}
		if got := remaining(t, l); len(more) > 0 && got[2] != 1 {
			t.Errorf("%s: a refused request holds a place: %v", kind, got)
		}
	}
}

// slow is a store that answers when the caller gives up.
type slow struct{}

func (slow) Take(ctx context.Context, acts []*weir.Act) {
	<-ctx.Done()
	for _, act := range acts {
		act.Err = ctx.Err()
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	g := Gate{Timeout: time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if act := g.Take(ctx, limiter(t, slow{}), "k", 1); !errors.Is(act.Err, context.DeadlineExceeded) {
		t.Errorf("got %v: the caller's end is not the charge's", act.Err)
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", maxLiteral+1)
	keys := []string{"", "a", long[1:], long, long + "a", Bounded(long), "\x00", Unknown, Unknown + "x"}
	seen := map[string]string{}
	for _, key := range keys {
		got := Bounded(key)
		if other, ok := seen[got]; ok || len(got) > maxLiteral {
			t.Errorf("%.20q and %.20q have the key %.20q", key, other, got)
		}
		seen[got] = key
	}
}

// joined joins parts that are known.
func joined(parts ...string) string {
	key, _ := Join(len(parts), func(i int) (string, error) { return parts[i], nil })
	return key
}

func FuzzJoin(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("1:a", "", "", "1:a")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if same := a == c && b == d; same != (joined(a, b) == joined(c, d)) {
			t.Fatalf("%q, %q and %q, %q: %q", a, b, c, d, joined(a, b))
		}
		if joined(a, b) == joined(c) {
			t.Fatalf("%q, %q and %q: %q", a, b, c, joined(c))
		}
	})
}

func TestHandlersDoNotQueue(t *testing.T) {
	t.Parallel()
	l, err := weir.NewLimiter(memengine.New(memengine.Options{}), "test", weir.Limit{Count: 10, Period: time.Hour, Burst: 5, Algorithm: weir.LeakyBucket})
	if err != nil {
		t.Fatal(err)
	}
	g := Gate{}
	if act := g.Take(context.Background(), l, "k", 1); !act.Allowed() {
		t.Errorf("the first: %+v", act)
	}
	if act := g.Take(context.Background(), l, "k", 1); act.Err != nil || act.Allowed() {
		t.Errorf("one that would have to wait: %+v", act)
	}
}
