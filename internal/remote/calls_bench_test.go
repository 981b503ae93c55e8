package remote_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisstore"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
)

// floorLua is about the least that a decision in Redis can be: one limit, one
// key, numbers in decimal, no answer but yes or no.
const floorLua = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + tonumber(ARGV[1])
if tat - now > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', ARGV[3])
return 1`

var floorArgs = []string{"1", "60000000", "61000"}

// A question is one caller's way to ask about a key.
type question func(key string) error

// A peer makes a question for each caller.
type peer struct {
	name string
	open func(b *testing.B, address string, limits int) func() question
}

var peers = []peer{
	{"calls", func(b *testing.B, address string, limits int) func() question {
		return asker(lasting, remote.NewCalls(benchStore(b, address), remote.CallOptions{}), limits)
	}},
	{"calls-cancellable", func(b *testing.B, address string, limits int) func() question {
		return asker(cancellable(b), remote.NewCalls(benchStore(b, address), remote.CallOptions{}), limits)
	}},
	{"store", func(b *testing.B, address string, limits int) func() question {
		return asker(lasting, benchStore(b, address), limits)
	}},
	{"floor-goredis", goRedisFloor},
}

func benchClient(b *testing.B, address string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true})
	b.Cleanup(func() { _ = client.Close() })
	return client
}

func benchStore(b *testing.B, address string) remote.Store {
	store, err := redisstore.New(benchClient(b, address), redisstore.Options{Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// lasting is the context of callers who never give up.
func lasting() context.Context { return context.Background() }

// cancellable is one for each caller who might.
func cancellable(b *testing.B) func() context.Context {
	return func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		b.Cleanup(cancel)
		return ctx
	}
}

// asker takes one unit under so many limits, none of which it exhausts.
func asker(caller func() context.Context, taker weir.Taker, limits int) func() question {
	var compiled []*weir.Limit
	for i := range limits {
		l := weir.Per(1_000_000_000, time.Duration(i+1)*time.Second)
		compiled = append(compiled, l.MustCompile())
	}
	return func() question {
		ctx := caller()
		act := storetest.NewAct(make([]weir.Charge, limits)...)
		acts := []*weir.Act{act}
		return func(key string) error {
			for i, l := range compiled {
				act.Charges[i] = weir.Charge{Key: key, Limit: l, Cost: 1}
				if i > 0 {
					act.Charges[i].Key = key + "#" + strconv.Itoa(i)
				}
				act.Charges[i].HashTag = key
			}
			taker.Take(ctx, acts)
			if act.Err == nil && !act.Allowed() {
				return fmt.Errorf("refused: %+v", act.Decisions)
			}
			return act.Err
		}
	}
}

func goRedisFloor(b *testing.B, address string, _ int) func() question {
	client := benchClient(b, address)
	ctx := context.Background()
	sha := client.ScriptLoad(ctx, floorLua).Val()
	return func() question {
		return func(key string) error {
			return client.EvalSha(ctx, sha, []string{key}, floorArgs[0], floorArgs[1], floorArgs[2]).Err()
		}
	}
}

// BenchmarkRedis compares decisions that travel together with decisions that
// travel alone, and with a lean script called once for each. Every peer has a
// server of its own, one after another.
func BenchmarkRedis(b *testing.B) {
	for _, load := range []struct {
		name         string
		keys, limits int
	}{{"hot", 1, 1}, {"uniform", 100_000, 1}, {"three-limits", 100_000, 3}} {
		keys := make([]string, load.keys)
		for i := range keys {
			keys[i] = fmt.Sprintf("user:%d", i)
		}
		for _, callers := range []int{1, 8, 64, 256} {
			for _, p := range peers {
				if load.limits > 1 && strings.HasPrefix(p.name, "floor") {
					continue // the floor has one limit
				}
				b.Run(fmt.Sprintf("%s/%d/%s", load.name, callers, p.name), func(b *testing.B) {
					address := testserver.StartRedis(b).Addr()
					ask := p.open(b, address, load.limits)
					drive(b, address, callers, keys, ask)
				})
			}
		}
	}
}

// drive has so many callers ask b.N times in all, and reports what Redis did.
func drive(b *testing.B, address string, callers int, keys []string, ask func() question) {
	client := benchClient(b, address)
	if err := ask()("warm"); err != nil {
		b.Fatal(err)
	}
	before, calls, own := cpu(client), scripts(client), ownCPU()
	var asked atomic.Int64
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for caller := range callers {
		group.Go(func() {
			question, n := ask(), caller*7919
			for asked.Add(1) <= int64(b.N) {
				n = (n + 611_953) % len(keys)
				if err := question(keys[n]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric((ownCPU()-own)*1e6/float64(b.N), "client-µs/decision")
	b.ReportMetric((cpu(client)-before)*1e6/float64(b.N), "redis-µs/decision")
	b.ReportMetric((scripts(client)-calls)/float64(b.N), "calls/decision")
}

var (
	cpuLine    = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)
	scriptLine = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)
)

// cpu is how many seconds of processor time the server has used.
func cpu(client *redis.Client) float64 {
	return total(cpuLine, client.Info(context.Background(), "cpu").Val())
}

// ownCPU is how many this process has used.
func ownCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// scripts is how many scripts it has run.
func scripts(client *redis.Client) float64 {
	return total(scriptLine, client.Info(context.Background(), "commandstats").Val())
}

func total(line *regexp.Regexp, info string) float64 {
	sum := 0.0
	for _, m := range line.FindAllStringSubmatch(info, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		sum += n
	}
	return sum
}
