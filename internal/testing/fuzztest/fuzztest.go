// Package fuzztest checks the cost of parsers against bounds while they are fuzzed: no
// input that a client chooses may make them slow or take much memory.
package fuzztest

import (
	"flag"
	"runtime/metrics"
	"testing"
	"time"
)

const (
	// MostBytes is what reading something small may allocate.
	MostBytes = 64 << 10
	// perByte is how much more each byte of the input may.
	perByte = 64
	// longest is how long it may take, and longer what each byte adds.
	longest = 10 * time.Millisecond
	longer  = time.Microsecond
	// again is how often a call that was too much is repeated: the collector, a
	// pool that was empty and other processes are not the input's fault.
	again = 20
)

// cost is what a call took.
type cost struct {
	bytes uint64 // about: they are counted in pieces of some KiB
	took  time.Duration
}

// Within calls f, which reads an input of some bytes, and fails the test if that
// allocates more than most bytes, plus 64 for each of the input, or, while inputs
// are being made up, takes longer than 10 ms, plus 1 µs for each. Plain tests, which run beside others
// on machines of any speed, judge no time. What is too much is tried again before it
// counts, so f must be able to run several times.
func Within(t testing.TB, most, input int, f func()) {
	t.Helper()
	allowed := cost{uint64(most + perByte*input), longest + time.Duration(input)*longer}
	if !fuzzing() {
		allowed.took = time.Hour
	}
	least := measure(f)
	for i := 0; i < again && !least.fits(allowed); i++ {
		next := measure(f)
		least = cost{min(least.bytes, next.bytes), min(least.took, next.took)}
	}
	if !least.fits(allowed) {
		t.Errorf("an input of %d bytes took %v and %d bytes; at most %v and %d", input, least.took, least.bytes, allowed.took, allowed.bytes)
	}
}

func (c cost) fits(allowed cost) bool { return c.bytes <= allowed.bytes && c.took <= allowed.took }

func measure(f func()) cost {
	var sample [2]metrics.Sample
	for i := range sample {
		sample[i].Name = "/gc/heap/allocs:bytes"
	}
	metrics.Read(sample[:1])
	began := time.Now()
	f()
	took := time.Since(began)
	metrics.Read(sample[1:])
	return cost{sample[1].Value.Uint64() - sample[0].Value.Uint64(), took}
}

// fuzzing reports whether inputs are being made up.
func fuzzing() bool {
	f := flag.Lookup("test.fuzz")
	return f != nil && f.Value.String() != ""
}
