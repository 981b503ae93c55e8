package main

import (
	"fmt"

	"github.com/weirlimit/weir/server/bench/measure"
)

// A target is one promise of speed: what was measured, in words, and whether it
// holds. judge returns an empty string where the run has not measured it.
type target struct {
	work, want string
	judge      judge
}

// best is Weir as it is deployed on Redis; the other names are its peers'.
const (
	best      = "weir"
	leased    = "weir with leases"
	redisRate = "redis_rate"
	bareGo    = "bare EVALSHA, go-redis"
	bareRuei  = "bare EVALSHA, rueidis"
)

// ratio compares a figure of two contestants in one scenario: the first's median
// over the second's. It is 0 where one is missing.
func ratio(scenario string, callers int, first, second string, figure func(*measure.Cell) float64) func(*results) float64 {
	a, b := value(scenario, callers, first, figure), value(scenario, callers, second, figure)
	return func(r *results) float64 {
		if b(r) == 0 {
			return 0
		}
		return a(r) / b(r)
	}
}

// value is the median of a figure; 0 where it was not measured.
func value(scenario string, callers int, contestant string, figure func(*measure.Cell) float64) func(*results) float64 {
	return func(r *results) float64 {
		for _, rows := range [][]measure.Row{r.Redis, r.Memory, r.Servers} {
			if row := find(rows, scenario, contestant, callers); row != nil {
				median, _, _ := row.Median(figure)
				return median
			}
		}
		return 0
	}
}

// exact reports whether a contestant granted exactly the limit, everywhere.
func (r *results) exact(contestant string) bool {
	seen := false
	for _, e := range r.Exactness {
		if e.Contestant == contestant {
			seen = true
			if e.Granted != e.Limit || e.Errors > 0 {
				return false
			}
		}
	}
	return seen
}

func (r *results) growthRatio() float64 {
	var first, last measure.Growth
	var firstMap, lastMap measure.Growth
	for _, g := range r.Growth {
		a, b := &first, &last
		if g.Subject == "map" {
			a, b = &firstMap, &lastMap
		}
		if a.Keys == 0 {
			*a = g
		}
		*b = g
	}
	if firstMap.Nanos == 0 {
		return 0
	}
	return (last.Nanos / first.Nanos) / (lastMap.Nanos / firstMap.Nanos)
}

var targets = []target{
	{"hot key granted, 256 callers", "≥ 20 × redis_rate", times(20, ratio(hotGranted, 256, best, redisRate, perSecond))},
	{"", "≥ 7 × a bare EVALSHA through rueidis", times(7, ratio(hotGranted, 256, best, bareRuei, perSecond))},
	{"", "Redis CPU ≤ 0.25 µs a decision", micros(0.25, value(hotGranted, 256, best, redisCPU))},
	{"", "p99 ≤ a tenth of redis_rate's", fraction(0.1, ratio(hotGranted, 256, best, redisRate, p99))},
	{"", "granted exactly the limit, with one node and with two", func(r *results) (string, bool) { return verdict(r.exact(best)), r.exact(best) }},
	{"hot key refused, 64 callers", "≥ 200 × redis_rate", times(200, ratio(hotRefused, 64, best, redisRate, perSecond))},
	{"", "CPU ≤ 150 ns", micros(0.15, value(hotRefused, 64, best, clientCPU))},
	{"100 000 uniform keys, 256 callers", "≥ 4 × redis_rate", times(4, ratio(uniformKeys, 256, best, redisRate, perSecond))},
	{"", "≥ 1.5 × a bare EVALSHA through rueidis", times(1.5, ratio(uniformKeys, 256, best, bareRuei, perSecond))},
	{"", "Redis CPU ≤ 4 µs a decision", micros(4, value(uniformKeys, 256, best, redisCPU))},
	{"", "client CPU ≤ 2 µs a decision", micros(2, value(uniformKeys, 256, best, clientCPU))},
	{"three limits at once, 64 callers", "≥ 3 × three calls of redis_rate", times(3, ratio(threeLimits, 64, best, redisRate, perSecond))},
	{"", "Redis CPU ≤ a third of theirs", fraction(1.0/3, ratio(threeLimits, 64, best, redisRate, redisCPU))},
	{"one caller, one key", "≥ 0.9 × a bare EVALSHA on the same client", times(0.9, ratio(hotGranted, 1, best, bareGo, perSecond))},
	{"8 callers, one key", "≥ 1.2 × redis_rate", times(1.2, ratio(hotGranted, 8, best, redisRate, perSecond))},
	{"leases, hot key, 64 callers", "≥ 5 million a second", millions(5, value(hotGranted, 64, leased, perSecond))},
	{"leases of a minute, uniform keys, 64 callers", "≥ 1 million a second", millions(1, value(longLeases, 64, leased, perSecond))},
	{"memory, one key", "≤ 80 ns", nanos(80, value(oneInMemory, 1, best, perSecond))},
	{"memory, 1 000 000 uniform keys", "≤ 500 ns", nanos(500, value(manyInMemory, 1, best, perSecond))},
	{"the same, 2 threads", "≤ 260 ns", nanos(260, value(manyInMemory, 2, best, perSecond))},
	{"memory, one key", "≤ 0.8 of the best keyed peer's time", againstPeers(oneInMemory, 1)},
	{"memory, 1 000 000 uniform keys", "≤ 0.8 of the best keyed peer's time", againstPeers(manyInMemory, 1)},
	{"RLS on grpc-go, 256 callers, uniform keys", "server CPU ≤ 1.6 × an empty handler's", beside("gRPC", uniformKeys, onGRPCGo, 1.6)},
	{"the same, hot key", "≤ 1.6 ×", beside("gRPC", hotGranted, onGRPCGo, 1.6)},
	{"the same, refused", "≤ 1.25 ×", beside("gRPC", hotRefused, onGRPCGo, 1.25)},
	{"RLS on frames, 256 callers, hot key", "server CPU ≤ 0.30 of grpc-go's", fraction(0.30, transports(hotGranted, 256, serverCPU))},
	{"", "≥ 3 × its decisions", times(3, transports(hotGranted, 256, perSecond))},
	{"the same, uniform keys", "server CPU ≤ 0.45 of grpc-go's", fraction(0.45, transports(uniformKeys, 256, serverCPU))},
	{"", "≥ 2 × its decisions", times(2, transports(uniformKeys, 256, perSecond))},
	{"the same, refused", "server CPU ≤ 0.25 of grpc-go's", fraction(0.25, transports(hotRefused, 256, serverCPU))},
	{"", "≥ 3 × its decisions", times(3, transports(hotRefused, 256, perSecond))},
	{"the same, one call at a time", "p50 not above grpc-go's", fraction(1, transports(hotGranted, 1, p50))},
	{"the same, idle connections", "≤ 12 KiB each", idleOnFrames(false, 12)},
	{"", "≤ 24 KiB each with TLS", idleOnFrames(true, 24)},
	{"HTTP /v1/auth, 256 callers, uniform keys", "≤ 1.6 × an empty handler's", beside("HTTP", uniformKeys, weirServe, 1.6)},
	{"growth in memory, 10³ to 10⁷ keys", "≤ 1.2 × as steep as a bare map", fraction(1.2, (*results).growthRatio)},
	{"growth in Redis, 10³ to 10⁶ keys", "Redis CPU flat, ± 15 %", flat("growth, %d uniform keys", 1000, 1_000_000)},
	{"1 to 4 instances", "Redis CPU flat, ± 15 %", flat("growth, %d instances", 1, 4)},
}

// A judge says what was measured, and whether it is good enough.
type judge = func(r *results) (measured string, met bool)

// judged writes a value in a format, or nothing where there is none.
func judged(format string, value func(*results) float64, good func(v float64) bool) judge {
	return func(r *results) (string, bool) {
		v := value(r)
		if v == 0 {
			return "", false
		}
		return fmt.Sprintf(format, v), good(v)
	}
}

func times(least float64, value func(*results) float64) judge {
	return judged("%.2f ×", value, func(v float64) bool { return v >= least })
}

func fraction(most float64, value func(*results) float64) judge {
	return judged("%.2f ×", value, func(v float64) bool { return v <= most })
}

func micros(most float64, value func(*results) float64) judge {
	return judged("%.2f µs", value, func(v float64) bool { return v <= most })
}

// nanos judges how long a decision takes by how many there are a second.
func nanos(most float64, perSecond func(*results) float64) judge {
	each := func(r *results) float64 {
		if v := perSecond(r); v > 0 {
			return 1e9 / v
		}
		return 0
	}
	return judged("%.0f ns", each, func(v float64) bool { return v <= most })
}

func millions(least float64, perSecond func(*results) float64) judge {
	return judged("%.2f million", func(r *results) float64 { return perSecond(r) / 1e6 }, func(v float64) bool { return v >= least })
}

// flat compares Redis's work a decision in two scenarios.
func flat(name string, from, to int) judge {
	return func(r *results) (string, bool) {
		first := value(fmt.Sprintf(name, from), 64, best, redisCPU)(r)
		last := value(fmt.Sprintf(name, to), 64, best, redisCPU)(r)
		if first == 0 || last == 0 {
			return "", false
		}
		return fmt.Sprintf("%.2f → %.2f µs (%+.0f %%)", first, last, 100*(last/first-1)), last/first < 1.15 && last/first > 0.85
	}
}

// beside compares the work of weir serve with that of an empty handler.
func beside(transport, scenario, server string, most float64) judge {
	return fraction(most, ratio("server over "+transport+", "+scenario, 256, server, emptyHandler, serverCPU))
}

// transports compares weir serve on frames with weir serve on grpc-go.
func transports(scenario string, callers int, figure func(*measure.Cell) float64) func(*results) float64 {
	return ratio("server over gRPC, "+scenario, callers, onFrames, onGRPCGo, figure)
}

func idleOnFrames(secured bool, most float64) judge {
	return func(r *results) (string, bool) {
		for _, i := range r.Idle {
			if i.Server == onFrames && i.TLS == secured {
				return fmt.Sprintf("%.1f KiB", i.Bytes/1024), i.Bytes <= most*1024
			}
		}
		return "", false
	}
}

// againstPeers compares Weir in memory with the fastest peer that knows keys.
func againstPeers(scenario string, callers int) judge {
	return func(r *results) (string, bool) {
		own, fastest, name := value(scenario, callers, best, perSecond)(r), 0.0, ""
		for _, row := range r.Memory {
			if row.Scenario != scenario || row.Callers != callers || row.Contestant == best || keyless(row.Contestant) {
				continue
			}
			if v, _, _ := row.Median(perSecond); v > fastest {
				fastest, name = v, row.Contestant
			}
		}
		if own == 0 || fastest == 0 {
			return "", false
		}
		return fmt.Sprintf("%.2f of %s's", fastest/own, name), fastest/own <= 0.8
	}
}

func verdict(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}
