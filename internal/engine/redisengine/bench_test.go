package redisengine_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// large is a limit of an algorithm that a benchmark does not exhaust.
func large(id int) *weir.Limit {
	l := weir.Limit{Algorithm: weir.Algorithm(id), Count: 100_000, Period: time.Minute}
	return l.MustCompile()
}

// cost is what Redis says it has spent since its statistics were reset.
type cost struct{ scripts, micros, commands float64 }

var statLine = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=(\d+)`)

func costs(client *redis.Client) cost {
	var c cost
	for _, m := range statLine.FindAllStringSubmatch(client.Info(context.Background(), "commandstats").Val(), -1) {
		calls, _ := strconv.ParseFloat(m[2], 64)
		micros, _ := strconv.ParseFloat(m[3], 64)
		switch m[1] {
		case "evalsha", "eval":
			c.scripts, c.micros = c.scripts+calls, c.micros+micros
		case "config", "info", "hello", "client", "ping":
		default:
			c.commands += calls
		}
	}
	return c
}

// report says what a decision has cost Redis.
func report(b *testing.B, client *redis.Client, decisions int) {
	c := costs(client)
	b.ReportMetric(c.micros/float64(decisions), "redis-µs/decision")
	b.ReportMetric(c.scripts/float64(decisions), "calls/decision")
	b.ReportMetric(c.commands/float64(decisions), "commands-in-script/decision")
}

// BenchmarkTake takes one charge a call from 64 callers, on one key each.
func BenchmarkTake(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // each take is another holder
		}
		b.Run(step.Name, func(b *testing.B) {
			store := open(b, client, redisengine.Options{Prefix: fmt.Sprint("take", id, ":")})
			limit := large(id)
			takeOne(store, "warm")
			client.ConfigResetStat(context.Background())
			var callers atomic.Int64
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: fmt.Sprint("user:", callers.Add(1)), Limit: limit, Cost: 1})}
				for p.Next() {
					if store.Take(context.Background(), acts); acts[0].Err != nil {
						b.Error(acts[0].Err)
					}
				}
			})
			report(b, client, b.N)
		})
	}
}

// floorLua is about the least that a decision in Redis can be: one limit, one
// key, numbers in decimal, no answer but yes or no.
const floorLua = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + tonumber(ARGV[1])
if tat - now > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', ARGV[3])
return 1`

// BenchmarkTakeBatch takes many acts on uniform keys in one call.
func BenchmarkTakeBatch(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	for _, size := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			store := open(b, client, redisengine.Options{Prefix: fmt.Sprint("batch", size, ":")})
			limit := large(0)
			acts := make([]*weir.Act, size)
			takeOne(store, "warm")
			client.ConfigResetStat(context.Background())
			n := 0
			for b.Loop() {
				for i := range acts {
					n = (n + 611_953) % 100_000
					acts[i] = storetest.NewAct(weir.Charge{Key: fmt.Sprint("user:", n), Limit: limit, Cost: 1})
				}
				if store.Take(context.Background(), acts); acts[0].Err != nil {
					b.Fatal(acts[0].Err)
				}
			}
			report(b, client, b.N*size)
		})
	}
}

// BenchmarkBytesPerKey reports what a key costs Redis, all in: 100 000 keys whose
// names have 30 bytes. The logs hold 1000 instants of one unit, or 10 of 100.
func BenchmarkBytesPerKey(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // a key has as many holders as it has
		}
		b.Run(step.Name, func(b *testing.B) { bytesPerKey(b, client, large(id), 100_000, 1) })
	}
	log := weir.Limit{Algorithm: weir.SlidingLog, Count: 1000, Period: time.Hour}.MustCompile()
	b.Run("sliding_log 1000 instants", func(b *testing.B) { bytesPerKey(b, client, log, 100, 1000) })
	b.Run("sliding_log 10 instants", func(b *testing.B) { bytesPerKey(b, client, log, 1000, 10) })
}

func bytesPerKey(b *testing.B, client *redis.Client, limit *weir.Limit, keys, instants int) {
	ctx := context.Background()
	store := open(b, client, redisengine.Options{Prefix: "w:"})
	for b.Loop() {
		client.FlushAll(ctx)
		takeOne(store, "warm")
		before := used(client)
		for range instants {
			for first := 0; first < keys; first += 64 {
				var acts []*weir.Act
				for k := first; k < min(first+64, keys); k++ {
					acts = append(acts, storetest.NewAct(weir.Charge{Key: fmt.Sprintf("user:%014d", k), Limit: limit, Cost: 1}))
				}
				if store.Take(ctx, acts); acts[0].Err != nil {
					b.Fatal(acts[0].Err)
				}
			}
		}
		name := store.KeyOf(&weir.Charge{Key: "user:00000000000000", Limit: limit})
		b.ReportMetric(float64(used(client)-before)/float64(keys), "bytes/key")
		b.ReportMetric(float64(len(name)), "name-bytes")
	}
	b.ReportMetric(0, "ns/op")
}

func used(client *redis.Client) int64 {
	n, _ := strconv.ParseInt(regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(client.Info(context.Background(), "memory").Val())[1], 10, 64)
	return n
}
