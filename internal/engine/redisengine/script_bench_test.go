package redisengine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// BenchmarkScript runs the script alone, pipelined so that Redis's system calls
// and wake-ups do not count: what the Lua itself costs. It reports the lower
// quartile of all pipelines, because what else runs on the machine only adds.
func BenchmarkScript(b *testing.B) {
	client := dial(b, testserver.StartRedis(b).Addr())
	ctx := context.Background()
	// measure runs what next returns 100 times in a pipeline; a command decides so many.
	measure := func(name string, decisions float64, next func() [][]any) {
		b.Run(name, func(b *testing.B) {
			var micros []float64
			for b.Loop() {
				client.ConfigResetStat(ctx)
				pipe := client.Pipeline()
				for range 100 {
					for _, command := range next() {
						pipe.Do(ctx, command...)
					}
				}
				if _, err := pipe.Exec(ctx); err != nil {
					b.Fatal(err)
				}
				c := costs(client)
				micros = append(micros, c.micros/c.scripts/decisions)
			}
			slices.Sort(micros)
			b.ReportMetric(micros[len(micros)/4], "redis-µs/decision")
			b.ReportMetric(0, "ns/op")
		})
	}
	run := func(name string, decisions int, command ...any) {
		measure(name, float64(decisions), func() [][]any { return [][]any{command} })
	}
	run("floor", 1, "evalsha", client.ScriptLoad(ctx, floorLua).Val(), 1, "floor", 600, 60_000_000, 61_000)
	for _, text := range redisengine.ScriptTexts() {
		client.ScriptLoad(ctx, text)
	}
	for id, step := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue // each take is another holder
		}
		charge := weir.Charge{Key: "k", Limit: large(id), Cost: 1}
		run(step.Name, 1, redisengine.Packed(storetest.NewAct(charge))...)
	}
	for _, n := range []int{16, 64, 128} {
		var acts []*weir.Act
		for i := range n {
			acts = append(acts, storetest.NewAct(weir.Charge{Key: fmt.Sprint("k", i), Limit: large(0), Cost: 1}))
		}
		run(fmt.Sprint("gcra, batch of ", n), n, redisengine.Packed(acts...)...)
	}
	for _, n := range []int{16, 256} {
		var acts []*weir.Act
		for range n {
			acts = append(acts, storetest.NewAct(weir.Charge{Key: "hot", Limit: large(0), Cost: 1}))
		}
		run(fmt.Sprint("gcra, one key ", n, " times"), n, redisengine.Packed(acts...)...)
	}
	var three []weir.Charge
	for i := range 3 {
		three = append(three, weir.Charge{Key: fmt.Sprint("three", i), Limit: large(0), Cost: 1})
	}
	run("gcra, three limits", 1, redisengine.Packed(storetest.NewAct(three...))...)
	repeated := storetest.NewAct(three...)
	repeated.ID, repeated.Scope.Owner = "id", repeated.Charges[0].Key
	run("gcra, three limits, repeated", 1, redisengine.Packed(repeated)...)
	full := weir.PerDay(1).MustCompile()
	for name, first := range map[string]*weir.Limit{"first": large(0), "second": full} {
		key := "alternative for the " + name
		acts := storetest.NewAct(weir.Charge{Key: key, HashTag: "t", Limit: first, Cost: 1}, weir.Charge{Key: "other", HashTag: "t", Limit: large(0), Cost: 1, Alt: 1})
		run("gcra, the "+name+" of two alternatives", 1, redisengine.Packed(acts)...)
	}
	const held = 25
	settled := func(pair int) (commands [][]any) {
		for _, kind := range []weir.Kind{acts.KindTake, acts.KindSettle} {
			var batch []*weir.Act
			for i := range held {
				a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("held", i, " ", pair%400), Limit: large(0), Cost: 10})
				a.Kind, a.ID, a.Scope.Owner = kind, fmt.Sprint("id ", pair, " ", i), a.Charges[0].Key
				if kind == acts.KindTake {
					a.Hold = time.Minute
				} else {
					a.Charges[0].Cost = 5
				}
				batch = append(batch, a)
			}
			commands = append(commands, redisengine.Packed(batch...))
		}
		return commands
	}
	pairs := 0
	measure(fmt.Sprint("gcra, held and settled, batch of ", held), 0.5*held, func() [][]any {
		pairs++
		return settled(pairs)
	})
	run("gcra, refused", 1, redisengine.Packed(storetest.NewAct(weir.Charge{Key: "full", Limit: full, Cost: 1}))...)
}
