package main

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/server/bench/measure"
)

// A target is one promise of speed: what was measured, in words, and whether it
// holds. Judge returns an empty string where the run has not measured it.
type target struct {
	work, want string
	judge      func(r *results) (measured string, met bool)
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
func (r *results) ratio(scenario string, callers int, first, second string, figure func(*measure.Cell) float64) float64 {
	a, b := r.value(scenario, callers, first, figure), r.value(scenario, callers, second, figure)
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// value is the median of a figure; 0 where it was not measured.
func (r *results) value(scenario string, callers int, contestant string, figure func(*measure.Cell) float64) float64 {
	for _, rows := range [][]measure.Row{r.Redis, r.Memory, r.Servers} {
		if row := find(rows, scenario, contestant, callers); row != nil {
			median, _, _ := row.Median(figure)
			return median
		}
	}
	return 0
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
	{"hot key granted, 256 callers", "≥ 20 × redis_rate", func(r *results) (string, bool) {
		return times(r.ratio(hotGranted, 256, best, redisRate, perSecond), 20)
	}},
	{"", "≥ 7 × a bare EVALSHA through rueidis", func(r *results) (string, bool) {
		return times(r.ratio(hotGranted, 256, best, bareRuei, perSecond), 7)
	}},
	{"", "Redis CPU ≤ 0.25 µs a decision", func(r *results) (string, bool) {
		return micros(r.value(hotGranted, 256, best, redisCPU), 0.25)
	}},
	{"", "p99 ≤ a tenth of redis_rate's", func(r *results) (string, bool) {
		return fraction(r.ratio(hotGranted, 256, best, redisRate, p99), 0.1)
	}},
	{"", "granted exactly the limit, with one node and with two", func(r *results) (string, bool) {
		return verdict(r.exact(best)), r.exact(best)
	}},
	{"hot key refused, 64 callers", "≥ 200 × redis_rate", func(r *results) (string, bool) {
		return times(r.ratio(hotRefused, 64, best, redisRate, perSecond), 200)
	}},
	{"", "CPU ≤ 150 ns", func(r *results) (string, bool) {
		return micros(r.value(hotRefused, 64, best, clientCPU), 0.15)
	}},
	{"100 000 uniform keys, 256 callers", "≥ 4 × redis_rate", func(r *results) (string, bool) {
		return times(r.ratio(uniformKeys, 256, best, redisRate, perSecond), 4)
	}},
	{"", "≥ 1.5 × a bare EVALSHA through rueidis", func(r *results) (string, bool) {
		return times(r.ratio(uniformKeys, 256, best, bareRuei, perSecond), 1.5)
	}},
	{"", "Redis CPU ≤ 4 µs a decision", func(r *results) (string, bool) {
		return micros(r.value(uniformKeys, 256, best, redisCPU), 4)
	}},
	{"", "client CPU ≤ 2 µs a decision", func(r *results) (string, bool) {
		return micros(r.value(uniformKeys, 256, best, clientCPU), 2)
	}},
	{"three limits at once, 64 callers", "≥ 3 × three calls of redis_rate", func(r *results) (string, bool) {
		return times(r.ratio(threeLimits, 64, best, redisRate, perSecond), 3)
	}},
	{"", "Redis CPU ≤ a third of theirs", func(r *results) (string, bool) {
		return fraction(r.ratio(threeLimits, 64, best, redisRate, redisCPU), 1.0/3)
	}},
	{"one caller, one key", "≥ 0.9 × a bare EVALSHA on the same client", func(r *results) (string, bool) {
		return times(r.ratio(hotGranted, 1, best, bareGo, perSecond), 0.9)
	}},
	{"8 callers, one key", "≥ 1.2 × redis_rate", func(r *results) (string, bool) {
		return times(r.ratio(hotGranted, 8, best, redisRate, perSecond), 1.2)
	}},
	{"leases, hot key, 64 callers", "≥ 5 million a second", func(r *results) (string, bool) {
		return rate(r.value(hotGranted, 64, leased, perSecond), 5e6)
	}},
	{"leases of a minute, uniform keys, 64 callers", "≥ 1 million a second", func(r *results) (string, bool) {
		return rate(r.value(longLeases, 64, leased, perSecond), 1e6)
	}},
	{"memory, one key", "≤ 80 ns", func(r *results) (string, bool) { return nanos(r.value(oneInMemory, 1, best, perSecond), 80) }},
	{"memory, 1 000 000 uniform keys", "≤ 500 ns", func(r *results) (string, bool) {
		return nanos(r.value(manyInMemory, 1, best, perSecond), 500)
	}},
	{"the same, 2 threads", "≤ 260 ns", func(r *results) (string, bool) {
		return nanos(r.value(manyInMemory, 2, best, perSecond), 260)
	}},
	{"memory, one key", "≤ 0.8 of the best keyed peer's time", func(r *results) (string, bool) { return r.againstPeers(oneInMemory, 1) }},
	{"memory, 1 000 000 uniform keys", "≤ 0.8 of the best keyed peer's time", func(r *results) (string, bool) {
		return r.againstPeers(manyInMemory, 1)
	}},
	{"RLS on grpc-go, 256 callers, uniform keys", "server CPU ≤ 1.6 × an empty handler's", func(r *results) (string, bool) {
		return r.beside("gRPC", uniformKeys, 1.6)
	}},
	{"the same, hot key", "≤ 1.6 ×", func(r *results) (string, bool) { return r.beside("gRPC", hotGranted, 1.6) }},
	{"the same, refused", "≤ 1.25 ×", func(r *results) (string, bool) { return r.beside("gRPC", hotRefused, 1.25) }},
	{"HTTP /v1/auth, 256 callers, uniform keys", "≤ 1.6 × an empty handler's", func(r *results) (string, bool) {
		return r.beside("HTTP", uniformKeys, 1.6)
	}},
	{"growth in memory, 10³ to 10⁷ keys", "≤ 1.2 × as steep as a bare map", func(r *results) (string, bool) {
		return fraction(r.growthRatio(), 1.2)
	}},
	{"growth in Redis, 10³ to 10⁶ keys", "Redis CPU flat, ± 15 %", func(r *results) (string, bool) { return r.flat("growth, %d uniform keys", 1000, 1_000_000) }},
	{"1 to 4 instances", "Redis CPU flat, ± 15 %", func(r *results) (string, bool) { return r.flat("growth, %d instances", 1, 4) }},
}

// flat compares Redis's work a decision in two scenarios.
func (r *results) flat(name string, from, to int) (string, bool) {
	first := r.value(fmt.Sprintf(name, from), 64, best, redisCPU)
	last := r.value(fmt.Sprintf(name, to), 64, best, redisCPU)
	if first == 0 || last == 0 {
		return "", false
	}
	return fmt.Sprintf("%.2f → %.2f µs (%+.0f %%)", first, last, 100*(last/first-1)), last/first < 1.15 && last/first > 0.85
}

// beside compares the work of weir serve with that of an empty handler.
func (r *results) beside(transport, scenario string, most float64) (string, bool) {
	return fraction(r.ratio("server over "+transport+", "+scenario, 256, "weir serve", "empty handler", serverCPU), most)
}

// againstPeers compares Weir in memory with the fastest peer that knows keys.
func (r *results) againstPeers(scenario string, callers int) (string, bool) {
	own, fastest, name := r.value(scenario, callers, best, perSecond), 0.0, ""
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

func times(v, least float64) (string, bool)   { return figure(v, "%.2f ×"), v >= least }
func fraction(v, most float64) (string, bool) { return figure(v, "%.2f ×"), v <= most }
func micros(v, most float64) (string, bool)   { return figure(v, "%.2f µs"), v <= most }

func nanos(perSecond, most float64) (string, bool) {
	if perSecond == 0 {
		return "", false
	}
	return fmt.Sprintf("%.0f ns", 1e9/perSecond), 1e9/perSecond <= most
}

func rate(v, least float64) (string, bool) {
	if v == 0 {
		return "", false
	}
	return fmt.Sprintf("%.2f million", v/1e6), v >= least
}

// figure writes a value, or nothing where there is none.
func figure(v float64, format string) string {
	if v == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf(format, v), " ")
}

func verdict(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}
