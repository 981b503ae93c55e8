package memengine_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// TestPanicUnlocks: a store whose clock or logger panics can be used afterwards.
func TestPanicUnlocks(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour(5).MustCompile()
	acts := map[string]func() *weir.Act{
		"single": func() *weir.Act { return storetest.NewAct(weir.Charge{Key: "x", Limit: limit, Cost: 1}) },
		"several": func() *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: "x", Limit: limit, Cost: 1}, weir.Charge{Key: "y", Limit: limit, Cost: 1})
			a.ID, a.Scope.Owner = "id", a.Charges[0].Key
			return a
		},
	}
	for name, act := range acts {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " full ", full), func(t *testing.T) {
				t.Parallel()
				broken := true
				o := memengine.Options{Logger: slog.New(panicking{&broken}), Now: func() time.Time {
					if broken && !full {
						panic("no clock")
					}
					return time.Unix(1e9, 0)
				}}
				if full {
					o.MaxBytes = 1
				}
				store := memengine.New(o)
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
