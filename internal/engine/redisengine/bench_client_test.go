//go:build unix

package redisengine_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkClient takes many acts in one call, on keys of their own and on one key,
// to see what a decision costs the client.
func BenchmarkClient(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	for _, hot := range []bool{false, true} {
		for _, size := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("hot=%v/%d", hot, size), func(b *testing.B) {
				store := open(b, client, redisengine.Options{Prefix: fmt.Sprint("client", size, hot, ":")})
				limit := large(0)
				acts := make([]*weir.Act, size)
				for i := range acts {
					acts[i] = storetest.NewAct(weir.Charge{Key: "user:hot", Limit: limit, Cost: 1})
					if !hot {
						acts[i].Charges[0].Key = fmt.Sprint("user:", i)
					}
				}
				takeOne(store, "warm")
				client.ConfigResetStat(context.Background())
				b.ReportAllocs()
				before := clientCPU()
				for b.Loop() {
					if store.Take(context.Background(), acts); acts[0].Err != nil {
						b.Fatal(acts[0].Err)
					}
				}
				b.ReportMetric(float64((clientCPU()-before).Nanoseconds())/float64(b.N*size), "client-cpu-ns/decision")
				report(b, client, b.N*size)
			})
		}
	}
}

// clientCPU is the processor time that this process has used.
func clientCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
