package weir_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func TestNewLimiterRefuses(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	many := make([]weir.Limit, weir.MaxCharges+1)
	for field, build := range map[string]func() (*weir.Limiter, error){
		"taker":  func() (*weir.Limiter, error) { return weir.NewLimiter(nil, weir.PerSecond(1)) },
		"limits": func() (*weir.Limiter, error) { return weir.NewLimiter(store) },
		"count":  func() (*weir.Limiter, error) { return weir.NewLimiter(store, weir.PerSecond(-1)) },
		"period": func() (*weir.Limiter, error) { return weir.NewLimiter(store, weir.Per(1, 0)) },
		"name": func() (*weir.Limiter, error) {
			return weir.NewLimiter(store, weir.Limit{Name: "1", Count: 1, Period: time.Second}, weir.PerSecond(1))
		},
	} {
		_, err := build()
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := weir.NewLimiter(store, many...); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
}

func TestLimiterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	limiter, err := weir.NewLimiter(failing{down}, weir.PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := limiter.Allow(context.Background(), "k"); !errors.Is(err, down) || d.Allowed() {
		t.Errorf("%+v, %v", d, err)
	}
	limiter, _ = weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerSecond(1))
	if _, err := limiter.AllowN(context.Background(), "k", -1); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		a.Err = f.err
	}
}

// TestLimiterKeysDoNotMeet gives several limits and keys that look alike.
func TestLimiterKeysDoNotMeet(t *testing.T) {
	t.Parallel()
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerDay(2), weir.PerDay(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a#0", "a#1", "#", ""} {
		for i := range 3 {
			d, err := limiter.Allow(context.Background(), key)
			if err != nil || d.Allowed() != (i < 2) {
				t.Errorf("key %q, ask %d: %+v, %v", key, i, d, err)
			}
		}
		if d, _ := limiter.Peek(context.Background(), key); !d.Allowed() || d.Remaining != 0 {
			t.Errorf("key %q: look: %+v", key, d)
		}
	}
}

// TestNamesSeparateBudgets: the name of a limit is part of its key, whether a Limiter has
// one limit or several. A limit without a name keeps the key as it is.
func TestNamesSeparateBudgets(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	login, api, plain := weir.PerHour(3), weir.PerHour(100), weir.PerHour(5)
	login.Name, api.Name = "login", "api"
	allow := func(n int64, limits ...weir.Limit) int64 {
		t.Helper()
		l, err := weir.NewLimiter(store, limits...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.AllowN(t.Context(), "alice", n)
		if err != nil || !d.Allowed() {
			t.Fatalf("%v: %v, %v", limits, d, err)
		}
		return d.Remaining
	}
	if got := allow(90, api); got != 10 {
		t.Errorf("api: %d remain, want 10", got)
	}
	if got := allow(1, login); got != 2 {
		t.Errorf("login after api: %d remain, want 2", got)
	}
	if got := allow(1, login, api); got != 9 {
		t.Errorf("both: %d remain, want 9 of api, the strictest", got)
	}
	if got := allow(2, plain); got != 3 {
		t.Errorf("without a name: %d remain, want 3", got)
	}
	l, err := weir.NewLimiter(store, plain)
	if err != nil {
		t.Fatal(err)
	}
	if key := l.Act(weir.KindTake, "alice", 1).Charges[0].Key; key != "alice" {
		t.Errorf("without a name the key is %q", key)
	}
}
