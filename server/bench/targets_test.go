package bench

import (
	"fmt"
	"math"
	"strings"
)

// A metric is one figure of the results: the median of a unit in the benchmark whose name has all words
// of name.
type metric struct{ name, unit string }

// A target is what a figure, or its ratio to another one, should be.
type target struct {
	work, bound     string
	atLeast, atMost float64 // 0: none
	figure, to      metric
}

const (
	seconds   = "sec/op"
	clientCPU = "client-µs/op"
	redisCPU  = "redis-µs/op"
	serverCPU = "server-µs/op"
)

var targets = []target{
	{"hot key granted, 256 callers", "≥ 20 × redis_rate", 20, 0, metric{"Redis/hot key granted/limiter=redis_rate/callers=256", seconds}, metric{"Redis/hot key granted/limiter=weir/callers=256", seconds}},
	{"", "≥ 7 × a bare EVALSHA through rueidis", 7, 0, metric{"Redis/hot key granted/limiter=bare EVALSHA, rueidis/callers=256", seconds}, metric{"Redis/hot key granted/limiter=weir/callers=256", seconds}},
	{"", "Redis ≤ 0.25 µs", 0, 0.25, metric{"Redis/hot key granted/limiter=weir/callers=256", redisCPU}, metric{}},
	{"", "p99 ≤ a tenth of redis_rate's", 0, 0.1, metric{"Redis/hot key granted/limiter=weir/callers=256", "p99-µs"}, metric{"Redis/hot key granted/limiter=redis_rate/callers=256", "p99-µs"}},
	{"hot key refused, 64 callers", "≥ 200 × redis_rate", 200, 0, metric{"Redis/hot key refused/limiter=redis_rate/callers=64", seconds}, metric{"Redis/hot key refused/limiter=weir/callers=64", seconds}},
	{"", "client ≤ 0.15 µs", 0, 0.15, metric{"Redis/hot key refused/limiter=weir/callers=64", clientCPU}, metric{}},
	{"100 000 uniform keys, 256 callers", "≥ 4 × redis_rate", 4, 0, metric{"Redis/100 000 uniform keys/limiter=redis_rate/callers=256", seconds}, metric{"Redis/100 000 uniform keys/limiter=weir/callers=256", seconds}},
	{"", "≥ 1.5 × a bare EVALSHA through rueidis", 1.5, 0, metric{"Redis/100 000 uniform keys/limiter=bare EVALSHA, rueidis/callers=256", seconds}, metric{"Redis/100 000 uniform keys/limiter=weir/callers=256", seconds}},
	{"", "Redis ≤ 4 µs", 0, 4, metric{"Redis/100 000 uniform keys/limiter=weir/callers=256", redisCPU}, metric{}},
	{"", "client ≤ 2 µs", 0, 2, metric{"Redis/100 000 uniform keys/limiter=weir/callers=256", clientCPU}, metric{}},
	{"three limits at once, 64 callers", "≥ 3 × three calls of redis_rate", 3, 0, metric{"Redis/three limits/limiter=redis_rate/callers=64", seconds}, metric{"Redis/three limits/limiter=weir/callers=64", seconds}},
	{"", "Redis ≤ a third of theirs", 0, 1. / 3, metric{"Redis/three limits/limiter=weir/callers=64", redisCPU}, metric{"Redis/three limits/limiter=redis_rate/callers=64", redisCPU}},
	{"one caller, the first example of library.md", "≥ 0.95 × redis_rate", 0.95, 0, metric{"RedisShapes/first example/limiter=redis_rate/callers=1", seconds}, metric{"RedisShapes/first example/limiter=weir/callers=1", seconds}},
	{"8 callers, one key", "≥ 1.2 × redis_rate", 1.2, 0, metric{"Redis/hot key granted/limiter=redis_rate/callers=8", seconds}, metric{"Redis/hot key granted/limiter=weir/callers=8", seconds}},
	{"leases, hot key, 64 callers", "≤ 0.2 µs", 0, 0.2, metric{"Redis/hot key granted/limiter=weir with leases/callers=64", seconds}, metric{}},
	{"leases of a minute, uniform keys, 64 callers", "≤ 1 µs", 0, 1, metric{"Redis/leases of a minute/limiter=weir with leases/callers=64", seconds}, metric{}},
	{"1 to 4 instances", "Redis ≤ 1.15 ×", 0, 1.15, metric{"Redis/instances=4/limiter=weir/callers=64", redisCPU}, metric{"Redis/instances=1/limiter=weir/callers=64", redisCPU}},
	{"10³ to 10⁶ keys in Redis", "Redis ≤ 1.15 ×", 0, 1.15, metric{"Redis/keys=1000000/limiter=weir/callers=64", redisCPU}, metric{"Redis/keys=1000/limiter=weir/callers=64", redisCPU}},
	{"memory, one key", "≤ 0.8 of go-limiter's time", 0, 0.8, metric{"Memory/one key/limiter=weir/callers=1", seconds}, metric{"Memory/one key/limiter=sethvargo/callers=1", seconds}},
	{"memory, 1 000 000 uniform keys", "≤ 1.05 of go-limiter's time", 0, 1.05, metric{"Memory/1 000 000 uniform keys/limiter=weir/callers=1", seconds}, metric{"Memory/1 000 000 uniform keys/limiter=sethvargo/callers=1", seconds}},
	{"the same, 2 threads", "≤ 1.05 of go-limiter's time", 0, 1.05, metric{"Memory/1 000 000 uniform keys/limiter=weir/callers=2", seconds}, metric{"Memory/1 000 000 uniform keys/limiter=sethvargo/callers=2", seconds}},
	{"RESP, 64 connections", "≤ 1.1 × throttlecrab", 0, 1.1, metric{"Listeners/listener=RESP/load=64 connections, 1 together/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=RESP/load=64 connections, 1 together/work=granted/limiter=throttlecrab", serverCPU}},
	{"RESP, 8 connections", "≤ 1.1 × throttlecrab", 0, 1.1, metric{"Listeners/listener=RESP/load=8 connections, 1 together/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=RESP/load=8 connections, 1 together/work=granted/limiter=throttlecrab", serverCPU}},
	{"HTTP GET, 64 connections", "≤ 1 × throttlecrab's POST", 0, 1, metric{"Listeners/listener=HTTP GET/load=64 connections/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=HTTP POST/load=64 connections/work=granted/limiter=throttlecrab", serverCPU}},
	{"HTTP POST, 64 connections", "≤ 1 × throttlecrab's", 0, 1, metric{"Listeners/listener=HTTP POST/load=64 connections/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=HTTP POST/load=64 connections/work=granted/limiter=throttlecrab", serverCPU}},
	{"HTTP GET, 8 connections", "≤ 1 × throttlecrab's POST", 0, 1, metric{"Listeners/listener=HTTP GET/load=8 connections/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=HTTP POST/load=8 connections/work=granted/limiter=throttlecrab", serverCPU}},
	{"HTTP POST, 8 connections", "≤ 1 × throttlecrab's", 0, 1, metric{"Listeners/listener=HTTP POST/load=8 connections/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=HTTP POST/load=8 connections/work=granted/limiter=throttlecrab", serverCPU}},
	{"HTTP POST with a token, 64 connections", "≤ 1 × throttlecrab's without", 0, 1, metric{"Listeners/listener=HTTP POST, a token/load=64 connections/work=granted/limiter=weir", serverCPU}, metric{"Listeners/listener=HTTP POST/load=64 connections/work=granted/limiter=throttlecrab", serverCPU}},
	{"a window of 3600 buckets in Redis", "≤ 2 × the plain one", 0, 2, metric{"RedisShapes/buckets/limiter=weir, rolling_window of 3600/callers=64", redisCPU}, metric{"RedisShapes/buckets/limiter=weir/callers=64", redisCPU}},
	{"the same, refused", "≤ 2 × the plain one", 0, 2, metric{"RedisShapes/buckets/limiter=weir, rolling_window of 3600, refused/callers=64", redisCPU}, metric{"RedisShapes/buckets/limiter=weir, refused/callers=64", redisCPU}},
	{"100 000 holders in memory", "≤ 5 × ten holders", 0, 5, metric{"MemoryShapes/slots/limiter=100000 holders/callers=1", seconds}, metric{"MemoryShapes/slots/limiter=10 holders/callers=1", seconds}},
	{"an override of another key", "≤ 1.1 × none", 0, 1.1, metric{"MemoryShapes/overrides/limiter=weir, 1 override of another key/callers=1", seconds}, metric{"MemoryShapes/overrides/limiter=weir/callers=1", seconds}},
	{"setting the 10 000th override", "≤ 2 × the first", 0, 2, metric{"MemoryShapes/setting an override/limiter=the 10 000th/callers=1", seconds}, metric{"MemoryShapes/setting an override/limiter=the first/callers=1", seconds}},
	{"Redis bytes a key, gcra", "≤ 150", 0, 150, metric{"State/gcra", "bytes/key"}, metric{}},
	{"Redis bytes a key, rolling_window of 60", "≤ 420", 0, 420, metric{"State/rolling_window of 60", "bytes/key"}, metric{}},
	{"Redis bytes a key, sliding_log, 1000 instants", "≤ 12 000", 0, 12_000, metric{"State/sliding_log, 1000 grants in 1000 instants", "bytes/key"}, metric{}},
}

// value returns a figure, or NaN if nothing has that name.
func (m measured) value(of metric) float64 {
	for _, r := range m {
		if r.name == of.name {
			if v, ok := r.median(of.unit); ok {
				return v
			}
		}
	}
	return math.NaN()
}

func targetsTable(m measured) string {
	var b strings.Builder
	b.WriteString("| work | target | measured | met |\n|---|---|---:|---|\n")
	for _, t := range targets {
		v := m.value(t.figure)
		sign := ""
		if t.to != (metric{}) {
			v /= m.value(t.to)
			sign = " ×"
		}
		scaled := v
		if sign == "" && t.figure.unit == seconds {
			scaled *= 1e6
		}
		met := "yes"
		switch {
		case math.IsNaN(v):
			met = "not measured"
		case t.atLeast > 0 && v < t.atLeast, t.atMost > 0 && scaled > t.atMost:
			met = "no"
		}
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s |\n", t.work, t.bound, digits(scaled), sign, met)
	}
	return b.String()
}
