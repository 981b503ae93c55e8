package memstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
)

// TestHoldsInAFullStore takes, renews and gives back holds over two keys of one limit that
// have to share its budget.
func TestHoldsInAFullStore(t *testing.T) {
	t.Parallel()
	for id, step := range algo.Steps {
		for _, kind := range []weir.Kind{acts.KindRelease, acts.KindSettle, acts.KindRefund} {
			t.Run(fmt.Sprint(step.Name, " ", kind), func(t *testing.T) {
				t.Parallel()
				store := memstore.New(memstore.Options{MaxBytes: 1, MaxIDBytes: 1 << 20, Now: storetest.NewClock().Now})
				limit := weir.Limit{Algorithm: weir.Algorithm(id), Count: 4, Period: time.Hour}.MustCompile()
				left := func() int64 {
					peek := storetest.NewAct(weir.Charge{Key: "other", Limit: limit})
					store.Take(context.Background(), []*weir.Act{peek})
					return peek.Decisions[0].Remaining
				}
				for n := range 3 {
					a := storetest.NewAct(weir.Charge{Key: "x", Limit: limit, Cost: 1}, weir.Charge{Key: "y", Limit: limit, Cost: 1})
					a.ID = fmt.Sprint("hold ", n)
					if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil || !a.Allowed() {
						t.Fatalf("hold %d: %+v, %v", n, a.Decisions, a.Err)
					}
					if left() > 3 {
						t.Errorf("hold %d is not charged: %d remain", n, left())
					}
					for _, a.Kind = range []weir.Kind{acts.KindRenew, kind} {
						for i := range a.Charges {
							a.Charges[i].Cost = 0
							if a.Kind == acts.KindRefund && !algo.TraitsOf(limit.Algorithm).HoldsSlots {
								a.Charges[i].Cost = 1
							}
						}
						if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
							t.Fatalf("hold %d: %v", n, a.Err)
						}
					}
					if n := left(); n != 4 && (kind != acts.KindRefund || !algo.TraitsOf(limit.Algorithm).HoldsSlots) {
						t.Errorf("after %v: %d remain", kind, n)
					}
				}
			})
		}
	}
}

// TestPanicUnlocks: a store whose clock or logger panics can be used afterwards.
func TestPanicUnlocks(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(5).MustCompile()
	acts := map[string]func() *weir.Act{
		"single": func() *weir.Act { return storetest.NewAct(weir.Charge{Key: "x", Limit: limit, Cost: 1}) },
		"several": func() *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "x", Limit: limit, Cost: 1}, weir.Charge{Key: "y", Limit: limit, Cost: 1})
			a.ID = "id"
			return a
		},
	}
	for name, act := range acts {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " full ", full), func(t *testing.T) {
				t.Parallel()
				broken := true
				o := memstore.Options{Logger: slog.New(panicking{&broken}), Now: func() time.Time {
					if broken && !full {
						panic("no clock")
					}
					return time.Unix(1e9, 0)
				}}
				if full {
					o.MaxBytes = 1
				}
				store := memstore.New(o)
				func() {
					defer func() {
						if recover() == nil {
							t.Error("no panic")
						}
					}()
					store.Take(context.Background(), []*weir.Act{act()})
				}()
				broken = false
				done := make(chan *weir.Act)
				go func() {
					a := act()
					store.Take(context.Background(), []*weir.Act{a})
					done <- a
				}()
				select {
				case a := <-done:
					if a.Err != nil || !a.Allowed() {
						t.Errorf("%+v, %v", a.Decisions, a.Err)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("the store is locked")
				}
			})
		}
	}
}

// panicking is a log handler that panics while it is broken.
type panicking struct{ broken *bool }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (p panicking) Handle(context.Context, slog.Record) error {
	if *p.broken {
		panic("no log")
	}
	return nil
}

func (p panicking) WithAttrs([]slog.Attr) slog.Handler { return p }
func (p panicking) WithGroup(string) slog.Handler      { return p }
