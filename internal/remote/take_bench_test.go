package remote_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchmark has callers take, each b.N/callers times what next returns for the i-th time, and
// reports the CPU time of a take.
func benchmark(b *testing.B, taker weir.Taker, callers int, next func(c int) func(i int) *weir.Act) {
	var work sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	began := cpu()
	for c := range callers {
		work.Go(func() {
			act := next(c)
			for i := range b.N / callers {
				taker.Take(context.Background(), []*weir.Act{act(i)})
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64((cpu()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// BenchmarkCallers is what a decision costs, of one caller and of 64.
func BenchmarkCallers(b *testing.B) {
	server := testserver.StartRedis(b)
	limit := weir.PerDay(1_000_000_000).MustCompile()
	for name, make := range map[string]func() calls.Store{
		"redis":  func() calls.Store { return overRedis(b, server.Addr()) },
		"memory": func() calls.Store { return storetest.Alone{Taker: memengine.New(memengine.Options{})} },
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				taker := remote.New(make(), remote.Options{})
				stop(b, taker)
				benchmark(b, taker, callers, func(c int) func(int) *weir.Act {
					a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("k", c), Limit: limit, Cost: 1})
					return func(int) *weir.Act { return a }
				})
			})
		}
	}
}

// BenchmarkNamed is what a take with an ID of its own costs.
func BenchmarkNamed(b *testing.B) {
	server := testserver.StartRedis(b)
	limit := weir.PerDay(1_000_000_000).MustCompile()
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			taker := remote.New(overRedis(b, server.Addr()), remote.Options{})
			stop(b, taker)
			benchmark(b, taker, callers, func(c int) func(int) *weir.Act {
				a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("k", c), Limit: limit, Cost: 1})
				return func(i int) *weir.Act {
					a.ID, a.Scope.Owner = fmt.Sprint(b.N, c, i), a.Charges[0].Key
					return a
				}
			})
		})
	}
}

// BenchmarkInOutage is what a decision without the store costs.
func BenchmarkInOutage(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			store := newFlaky(nil)
			taker := wrap(b, store, remote.Options{})
			limit := weir.PerDay(1_000_000_000).MustCompile()
			openUp(b, taker, store, weir.ErrNotApplied)
			benchmark(b, taker, callers, func(c int) func(int) *weir.Act {
				return func(i int) *weir.Act {
					return storetest.NewAct(weir.Charge{Key: fmt.Sprint("k", c, i%16), Limit: limit, Cost: 1})
				}
			})
		})
	}
}
