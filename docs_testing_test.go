package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A sender sends mail, a few to each address.
type sender struct {
	limiter *weir.Limiter
	sent    int
}

var errLater = errors.New("too many mails to this address")

func newSender(store weir.Taker, limit weir.Limit) (*sender, error) {
	limiter, err := weir.NewLimiter(store, "mail", limit)
	return &sender{limiter: limiter}, err
}

func (s *sender) send(ctx context.Context, to string) error {
	d, err := s.limiter.Allow(ctx, to)
	if err == nil && !d.Allowed() {
		return errLater
	}
	s.sent++ // without a decision, too: mail matters more than its limit
	return nil
}

func TestAnHourLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newSender(memstore.New(memstore.Options{}), weir.PerHour(3))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			_ = s.send(t.Context(), "ann@example.org")
		}
		if s.sent != 3 {
			t.Errorf("%d mails at once, want 3", s.sent)
		}
		time.Sleep(time.Hour) // takes no time
		if err := s.send(t.Context(), "ann@example.org"); err != nil {
			t.Errorf("an hour later: %v", err)
		}
	})
}

func TestNextDay(t *testing.T) {
	now := time.Date(2027, 3, 1, 23, 59, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	s, err := newSender(store, weir.Limit{Algorithm: weir.FixedWindow, Count: 1, Period: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	first, second := s.send(t.Context(), "ann@example.org"), s.send(t.Context(), "ann@example.org")
	now = now.Add(time.Minute)
	third := s.send(t.Context(), "ann@example.org")
	if first != nil || second == nil || third != nil {
		t.Errorf("%v, %v, at midnight %v", first, second, third)
	}
}

func TestRefused(t *testing.T) {
	s, err := newSender(memstore.New(memstore.Options{}), weir.PerHour(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.send(t.Context(), "ann@example.org"); !errors.Is(err, errLater) || s.sent != 0 {
		t.Errorf("%v, %d sent", err, s.sent)
	}
}

// A broken store reaches no decision.
type broken struct{ err error }

func (b broken) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		a.Err = b.err
	}
}

func TestStoreFails(t *testing.T) {
	for _, class := range []error{weir.ErrNotApplied, weir.ErrAmbiguous} {
		s, err := newSender(broken{fmt.Errorf("a test: %w", class)}, weir.PerHour(3))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.send(t.Context(), "ann@example.org"); err != nil || s.sent != 1 {
			t.Errorf("%v: %v, %d sent", class, err, s.sent)
		}
	}
}

// A stuck store answers nobody before the context ends.
type stuck struct{}

func (stuck) Take(ctx context.Context, acts []*weir.Act) {
	<-ctx.Done()
	broken{fmt.Errorf("%w: %w", weir.ErrAmbiguous, ctx.Err())}.Take(ctx, acts)
}

func TestStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newSender(stuck{}, weir.PerHour(3))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := s.send(ctx, "ann@example.org"); err != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
