package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func limiter(t *testing.T, taker weir.Taker) *weir.Limiter {
	t.Helper()
	l, err := weir.NewLimiter(taker, weir.PerHour(10), weir.Limit{Name: "day", Count: 20, Period: 24 * time.Hour, Algorithm: weir.SlidingLog})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCorrect(t *testing.T) {
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
		l := limiter(t, memstore.New(memstore.Options{}))
		g := Gate{Prefix: "p:"}
		act := g.Take(context.Background(), l, "k", test.before)
		if err := g.Correct(context.Background(), l, act, test.after); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d, err := l.Look(context.Background(), "p:k"); err != nil || d.Remaining != test.remains {
			t.Errorf("%s: %+v, %v, want %d remaining", name, d, err, test.remains)
		}
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	l := limiter(t, memstore.New(memstore.Options{}))
	g := Gate{}
	if act := g.Look(context.Background(), l, "k"); !act.Allowed() || act.Charges[0].Cost != 0 {
		t.Errorf("fresh: %+v", act)
	}
	if act := g.Take(context.Background(), l, "k", 10); !act.Allowed() {
		t.Errorf("all: %+v", act)
	}
	act := g.Look(context.Background(), l, "k")
	if d := act.Decisions[0]; act.Allowed() || d.RetryAfter <= 0 || d.RetryAfter > 6*time.Minute {
		t.Errorf("used up: %+v", act)
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

func FuzzJoin(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("1:a", "", "", "1:a")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if same := a == c && b == d; same != (Join(a, b) == Join(c, d)) {
			t.Fatalf("%q, %q and %q, %q: %q", a, b, c, d, Join(a, b))
		}
		if Join(a, b) == Join(c) {
			t.Fatalf("%q, %q and %q: %q", a, b, c, Join(c))
		}
	})
}

func TestHandlersDoNotQueue(t *testing.T) {
	t.Parallel()
	l, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Limit{Count: 10, Period: time.Hour, Burst: 5, Algorithm: weir.LeakyBucket})
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
